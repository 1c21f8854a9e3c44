"""Drafts by name, for commands and experiments: what the registry's entries point to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from jaxspec.compress.footprint import Footprint
from jaxspec.compress.knobs import Knobs
from jaxspec.errors import InputError
from jaxspec.formats.shard_index import read_json_object
from jaxspec.models.config import DecoderConfig
from jaxspec.models.embedded import model_place
from jaxspec.models.gguf import is_gguf
from jaxspec.models.head_files import HEAD_MODEL_TYPE
from jaxspec.models.hf_load import LoadedModel
from jaxspec.models.released_heads import described_head, is_eagle_head
from jaxspec.registries import load_object
from jaxspec.settings.draft_kinds import DRAFT_KINDS, DraftKind, check_draft_name
from jaxspec.speculate.drafts.interface import ReadyDraft
from jaxspec.speculate.drafts.layer_skip_draft import CalibrationText

__all__ = ["check_draft", "is_searched", "kind_of", "make_draft", "own_footprint", "own_knobs", "search_draft"]


def make_draft(
    name: str, target: LoadedModel, searched: Mapping[str, Any] | None = None, *, sharing: int = 1
) -> ReadyDraft:
    """A draft that needs no calibration of its own: a name of the registry, or a directory.

    Args:
        searched: from `search_draft`, of a draft that is searched on calibration text.
        sharing: consecutive sequences of a batch that share a pool of experts, of a draft that has one.
    Raises:
        InputError: an unknown name, a broken directory, another vocabulary, a head of another target, a draft that is made
            on calibration text, or one that is searched on it without what was found.
    """
    check_draft_name(name)
    kind = kind_of(name)
    make = load_object(kind.place)
    if kind.calibrated:
        raise InputError(f"draft {name!r} is the target, compressed on calibration text; make it with {make.__name__}")
    if kind.knobs:
        return make(name, target, sharing=sharing)
    if not kind.search:
        return make(name, target)
    if searched is None:
        raise InputError(
            f"draft {name!r} is searched on calibration text, and nothing was searched here; give another, or use jaxspec "
            "tree or compare"
        )
    return make(name, target, searched)


def is_searched(name: str) -> bool:
    """Whether a part of a draft is chosen on calibration text."""
    check_draft_name(name)
    return bool(kind_of(name).search)


def search_draft(name: str, target: LoadedModel, text: CalibrationText) -> dict[str, Any]:
    """Arrays that a searched draft is made of, chosen on calibration text alone."""
    return load_object(kind_of(name).search)(name, target, text)


def check_draft(name: str, target: DecoderConfig, model: str | None = None) -> tuple[str, ...]:
    """Check a draft without reading its weights, and return notes on its tokens.

    Args:
        target: shape of the network that it drafts for.
        model: name or path of that network; None: tokenizers are not compared.
    Raises:
        InputError: it cannot draft for this target.
    """
    check_draft_name(name)
    place = kind_of(name).check
    return (load_object(place)(name, target, model) or ()) if place else ()


def own_footprint(name: str, model: str) -> Footprint | None:
    """Bits that a draft and its target read by their own files; None where the draft's have none.

    Args:
        model: name or path of the target.
    Raises:
        InputError: a broken file.
    """
    place = kind_of(name).footprint
    return load_object(place)(name, model) if place else None


def own_knobs(name: str, target: DecoderConfig) -> Knobs | None:
    """Knobs of a draft that is a compressed copy of its target, by its own files; None of another draft.

    Args:
        target: shape of the network that it drafts for.
    Raises:
        InputError: a broken file.
    """
    place = kind_of(name).knobs
    return load_object(place)(name, target) if place else None


def kind_of(name: str) -> DraftKind:
    """The kind of a draft that `check_draft_name` allows; a directory's is in its config.json, a file's is its suffix.

    Raises:
        InputError: a directory without one.
    """
    for kind in DRAFT_KINDS.values():
        if name in kind.names or (kind.suffix and name.endswith(kind.suffix) and not os.path.isdir(name)):
            return kind
    kinds = {kind.model_type: kind for kind in DRAFT_KINDS.values() if kind.directory}
    place = model_place(name)
    if is_gguf(place):
        return kinds[None]
    config = read_json_object(place / "config.json")
    head = described_head(place, config)
    if head is not None and head.drafts_as == "medusa":
        return kinds["medusa"]
    return kinds.get(HEAD_MODEL_TYPE if is_eagle_head(place, config) else config.get("model_type"), kinds[None])
