"""Ranks of a draft along the embedded network's text, at several context lengths, on calibration and on held-out prompts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.compress import DEFAULT_SCHEME, hard_draft, uniform_knobs
from jaxspec.models.hf_load import LoadedModel
from jaxspec.models.stored import as_computed
from jaxspec.runs.progress import Reporter
from jaxspec.speculate.chunks import CHUNK
from jaxspec.speculate.drafts import ReadyDraft, self_draft
from jaxspec.speculate.measured_ranks import record_ranks
from jaxspec.speculate.proof import decode_chains
from jaxspec.speculate.sampling import GREEDY
from jaxspec.text import load_text, windows
from jaxspec.trees.rank_traces import RankTraces
from jaxspec.tuning.calibration import calibrate, target_params

__all__ = ["Recorded", "Settings", "Target", "compressed_target", "load_target", "pooled", "record"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is measured."""

    contexts: tuple[int, ...] = (64, 128, 256, 384)  # tokens of a prompt
    prompts: int = 96  # held out, at each context
    calibration_prompts: int = 384  # at each context: late nodes are rarely accepted, and few texts order them badly
    output_tokens: int = 64  # decoded after each
    nodes: int = 63  # of the maximal tree, without the root
    depth: int = 8  # its levels
    seed: int = 0

    @property
    def chunks(self) -> int:
        """Chunks of prompts over both splits and all contexts."""
        return len(self.contexts) * sum(-(-count // CHUNK) for count in (self.prompts, self.calibration_prompts))

    @property
    def recorded_tokens(self) -> int:
        """Tokens after a prompt, so that the last cycle's ranks are known down to the tree's depth."""
        return self.output_tokens + self.depth + 1


class Target(NamedTuple):
    """The embedded network with its text by context and split: prompts and their greedy continuation."""

    loaded: LoadedModel
    params: Any
    texts: dict[tuple[int, str], np.ndarray]


class Recorded(NamedTuple):
    """Ranks of one draft, at one context or (None) at all of them."""

    context: int | None
    calibration: RankTraces
    held_out: RankTraces


def pooled(parts: Sequence[Recorded]) -> Recorded:
    """All contexts together."""
    join = lambda *leaves: jnp.concatenate(leaves)
    return Recorded(
        None,
        jax.tree.map(join, *(part.calibration for part in parts)),
        jax.tree.map(join, *(part.held_out for part in parts)),
    )


def load_target(loaded: LoadedModel, settings: Settings, reporter: Reporter) -> Target:
    """The network, and its continuation of all prompts."""
    params = as_computed(target_params(loaded.params))
    no_draft = self_draft(loaded.config, params, uniform_knobs(DEFAULT_SCHEME, loaded.config))
    text = load_text("stdlib", loaded.tokenizer)
    texts = {}
    with reporter.bar("continuing the prompts", settings.chunks) as bar:
        for context in settings.contexts:
            for split, tokens, count in (
                ("calibration", text.calibration, settings.calibration_prompts),
                ("held_out", text.held_out, settings.prompts),
            ):
                decoded = decode_chains(
                    params,
                    loaded.config,
                    no_draft,
                    windows(tokens, count, context, settings.seed),
                    0,
                    num_tokens=settings.recorded_tokens,
                    decoding=GREEDY,
                    seed=settings.seed,
                    advance=bar.advance,
                )
                texts[context, split] = decoded["tokens"][:, : context + settings.recorded_tokens]
    return Target(loaded, params, texts)


def compressed_target(target: Target) -> ReadyDraft:
    """The draft "self", compressed as `jaxspec evaluate` does unless told otherwise."""
    config = target.loaded.config
    knobs = uniform_knobs(DEFAULT_SCHEME, config)
    context = min(context for context, _ in target.texts)
    text = jnp.asarray(target.texts[context, "calibration"])
    prepared = calibrate(target.params, config, text, scheme=DEFAULT_SCHEME, first=context - 1).prepared
    return self_draft(config, as_computed(hard_draft(target.params, prepared, knobs)), knobs)


def record(target: Target, draft: ReadyDraft, settings: Settings, reporter: Reporter) -> list[Recorded]:
    """Ranks on both splits, for every context."""
    found = []
    with reporter.bar(f"ranks of {draft.draft.name}", settings.chunks) as bar:
        for context in settings.contexts:
            traces = {
                split: record_ranks(
                    target.params,
                    target.loaded.config,
                    draft,
                    target.texts[context, split],
                    prompt_tokens=context,
                    depth=settings.depth,
                    advance=bar.advance,
                )
                for split in ("calibration", "held_out")
            }
            found.append(Recorded(context, **traces))
    return found
