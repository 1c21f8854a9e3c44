"""Drafts by name, for commands and experiments: what proposes a tree's tokens, and whose shapes its steps are priced by."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.compress.knobs import Knobs
from jaxspec.errors import InputError
from jaxspec.formats.shard_index import read_json_object
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.embedded import HEAD_NAME, SMALL_NAME, load_draft_head, load_model
from jaxspec.models.head_files import HEAD_MODEL_TYPE
from jaxspec.models.hf_load import LoadedModel
from jaxspec.speculate.drafts import (
    Draft,
    HeadDraft,
    HeadDraftParams,
    NetworkDraft,
    NGramDraft,
    NGramParams,
    SelfDraft,
    SelfDraftParams,
)
from jaxspec.studies.tree.config import check_draft_name

__all__ = ["NamedDraft", "make_draft", "self_draft"]


class NamedDraft(NamedTuple):
    """A draft with its numbers.

    Attributes:
        network: shape of a draft that is a network of its own; None for the target's copy and for a lookup.
    """

    name: str
    draft: Draft
    params: Any
    network: DecoderConfig | None


def self_draft(config: DecoderConfig, compressed: Params, knobs: Knobs) -> NamedDraft:
    """The target's compressed copy."""
    return NamedDraft("self", SelfDraft(config), SelfDraftParams(compressed, knobs), None)


def make_draft(name: str, target: LoadedModel) -> NamedDraft:
    """A draft that needs no calibration: "ngram", an embedded network or head, or a directory of one.

    Raises:
        InputError: an unknown name, a broken directory, another vocabulary, a head of another target.
    """
    if name == "ngram":
        return NamedDraft(name, NGramDraft(target.config.vocab_size), NGramParams(), None)
    if name == "self":
        raise InputError("draft 'self' is the target, compressed on calibration text; make it with self_draft")
    check_draft_name(name)
    folder = Path(name)
    is_head = name == HEAD_NAME or (
        name != SMALL_NAME and read_json_object(folder / "config.json").get("model_type") == HEAD_MODEL_TYPE
    )
    widen = lambda tree: jax.tree.map(lambda x: jnp.asarray(x).astype(jnp.float32), tree)
    if is_head:
        head = load_draft_head(name, target)
        return NamedDraft(name, HeadDraft(head.config), widen(HeadDraftParams(head.params, head.ends)), head.config)
    network = load_model(name)
    if network.config.vocab_size != target.config.vocab_size:
        raise InputError(
            f"draft {name!r} has {network.config.vocab_size} tokens, the target {target.config.vocab_size}; "
            "a draft needs the target's vocabulary"
        )
    return NamedDraft(name, NetworkDraft(network.config), widen(network.params), network.config)
