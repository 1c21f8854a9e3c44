"""Decoding cycles of a network with random weights, timed: what the loop spends beside the steps of its networks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import init_params
from jaxspec.models.stored import as_computed
from jaxspec.speculate.drafts.interface import ReadyDraft
from jaxspec.speculate.drafts.network_draft import NetworkDraft
from jaxspec.speculate.drafts.ngram_draft import NGramDraft, NGramParams
from jaxspec.speculate.sampling import GREEDY
from jaxspec.speculate.timing import chain_way, time_ways
from jaxspec.studies.calibrate.timing import Timing, timing_of

__all__ = ["CYCLE_SLOTS", "cycle_timings"]

#: Tokens of each prompt, and generated behind it: more than a cycle yields.
_PROMPT, _OUTPUT = 128, 64

#: Places of the cache that such decoding attends to.
CYCLE_SLOTS = _PROMPT + _OUTPUT

#: Prompts that are decoded one at a time.
_PROMPTS = 4


def cycle_timings(
    config: DecoderConfig, *, draft_layers: int, lengths: Sequence[int], batch: int, repeats: int
) -> list[Timing]:
    """Seconds of a cycle of chains of some lengths, greedy.

    Args:
        config: of the network.
        draft_layers: of a draft network of the same widths; 0: a lookup in the text drafts.
        batch: sequences decoded together.
    """
    params, draft = as_computed(init_params(config, jax.random.key(0))), _draft(config, draft_layers)
    prompts = np.random.default_rng(0).integers(0, config.vocab_size, (max(batch, _PROMPTS), _PROMPT))
    ways = {str(length): chain_way(draft, length, GREEDY) for length in lengths}
    found = time_ways(
        params,
        config,
        prompts.astype(np.int32),
        ways,
        num_tokens=_OUTPUT,
        decoding=GREEDY,
        seed=0,
        batch=batch,
        repeats=repeats,
    )
    jax.clear_caches()  # no other group runs these programs, and a process may map only so many
    return [timing_of(found[name].cycle_s.tolist(), found[name].compile_s) for name in ways]


def _draft(config: DecoderConfig, layers: int) -> ReadyDraft:
    if not layers:
        return ReadyDraft(NGramDraft(config.vocab_size), NGramParams())
    own = dataclasses.replace(config, num_layers=layers)
    return ReadyDraft(NetworkDraft(own), as_computed(init_params(own, jax.random.key(1))))
