"""Decoding of a network with random weights, timed: steps as decoding runs them, and cycles, which hold more than steps.

A step's time moves by tens of percent with what else the machine does. Steps and cycles that took turns were met alike, so that
what a cycle takes beyond its steps is not the noise of another moment.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, abstract_params, init_params
from jaxspec.models.stored import as_computed, as_stored
from jaxspec.speculate.drafts.interface import ReadyDraft
from jaxspec.speculate.drafts.network_draft import NetworkDraft
from jaxspec.speculate.drafts.ngram_draft import NGramDraft, NGramParams
from jaxspec.speculate.sampling import GREEDY
from jaxspec.speculate.timing import AUTOREGRESSIVE, chain_way, time_ways
from jaxspec.studies.calibrate.timing import Timing, timing_of

__all__ = ["CYCLE_SLOTS", "cycle_timings", "random_params"]

#: Tokens of each prompt, and generated behind it: more than a cycle yields.
_PROMPT, _OUTPUT = 128, 64

#: Places of the cache that such decoding attends to.
CYCLE_SLOTS = _PROMPT + _OUTPUT

#: Prompts that are decoded one at a time.
_PROMPTS = 4


def random_params(config: DecoderConfig, held: str, seed: int = 0) -> Params:
    """Random weights as a network of them decodes.

    Args:
        held: format of its matrices: float32, as small networks decode, or one of 16 bits, as large ones do.
    """
    key = jax.random.key(seed)
    return as_computed(init_params(config, key)) if held == "float32" else as_stored(_drawn(config, key, held))


def _drawn(config: DecoderConfig, key: jax.Array, held: str) -> Params:
    """Matrices of about unit gain, vectors of ones, each made in the format that it is held in: 8 billion weights in float32,
    as `init_params` makes them, are more than a GPU has room for beside their copy."""
    leaves, structure = jax.tree.flatten(abstract_params(config))
    stacked = config.num_layers

    def draw(key: jax.Array, leaf: Any) -> jax.Array:
        if leaf.ndim < 2 or leaf.shape[:-1] == (stacked,):
            return jnp.ones(leaf.shape, held)
        return jax.random.normal(key, leaf.shape, held) * jnp.asarray(leaf.shape[-1] ** -0.5, held)

    one = jax.jit(draw, static_argnums=1)
    keys = jax.random.split(key, len(leaves))
    return jax.tree.unflatten(structure, [one(key, leaf) for key, leaf in zip(keys, leaves, strict=True)])


def cycle_timings(
    config: DecoderConfig, held: str, *, draft_layers: int, lengths: Sequence[int], batch: int, repeats: int
) -> list[Timing]:
    """Seconds of greedy decoding: of a step without speculation, of a verification of each chain, of a cycle of each.

    Args:
        config: of the network.
        held: see `random_params`; the draft network's too.
        draft_layers: of a draft network of the same widths; 0: a lookup in the text drafts.
        lengths: of the chains.
        batch: sequences decoded together.
    """
    params, draft = random_params(config, held), _draft(config, held, draft_layers)
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
    alone, chains = found[AUTOREGRESSIVE], [found[name] for name in ways]
    steps = [timing_of(seconds.tolist(), 0.0) for seconds in (alone.cycle_s, *(chain.verify_s for chain in chains))]
    return steps + [timing_of(chain.cycle_s.tolist(), chain.compile_s) for chain in chains]


def _draft(config: DecoderConfig, held: str, layers: int) -> ReadyDraft:
    if not layers:
        return ReadyDraft(NGramDraft(config.vocab_size), NGramParams())
    own = dataclasses.replace(config, num_layers=layers)
    return ReadyDraft(NetworkDraft(own), random_params(own, held, seed=1))
