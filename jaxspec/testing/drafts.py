"""What every draft keeps to, with a small network as its target."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hwmodels
from hwmodels import catalog
from hwmodels.networks import FAMILIES
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.hf_load import LoadedModel
from jaxspec.speculate.drafts import ReadyDraft
from jaxspec.speculate.engine import decode
from jaxspec.speculate.expansion import TreeLimits
from jaxspec.speculate.loop import Request
from jaxspec.speculate.measured_ranks import ranks_asked, ranks_followed, trace_target
from jaxspec.speculate.sampling import GREEDY
from jaxspec.testing.schemes import random_network
from jaxspec.trees import chain_tree, pad_tree, tree_from_paths

__all__ = ["TARGET", "check_draft", "loaded_target", "network"]

#: Shape of the target.
TARGET = DecoderConfig(
    vocab_size=11, hidden_size=16, intermediate_size=12, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=4
)
#: What is decoded: prompts, their numbers, tokens of each, and the seed.
PROMPTS = np.random.default_rng(0).integers(11, size=(3, 5)).astype(np.int32)
IDS, TOKENS, SEED = np.array([40, 7, 311], np.int32), 9, 5

LIMITS = TreeLimits(nodes=6, depth=6, ranks=3, width=2)
BUSH = pad_tree(tree_from_paths([(0,), (2,), (0, 0), (0, 1), (2, 1), (0, 1, 0)]), size=6)


@functools.cache
def network() -> Params:
    """The target's weights."""
    return random_network(TARGET, 0, sharpness=3.0)


def loaded_target() -> LoadedModel:
    """The target as commands load one."""
    return LoadedModel(TARGET, network(), FAMILIES["llama"], Path())


def gives_one_text(ready: ReadyDraft) -> None:
    """Chains, trees and no tree at all give the same greedy text, in one compilation."""
    draft, params, target = *ready, network()
    traces: list[int] = []

    def traced(tree: Any, prompts: Any, lengths: Any, stop: Any) -> Any:
        traces.append(1)
        return decode(
            target,
            params,
            Request(prompts, jnp.asarray(IDS), jax.random.key(SEED), TOKENS, lengths, stop),
            tree,
            GREEDY,
            draft=draft,
            config=TARGET,
            limits=LIMITS,
        )

    jitted = jax.jit(traced)

    def run(tree: Any, prompts: Any, *, lengths: Any = None, stop: int = -1) -> Any:
        lengths = [prompts.shape[1]] * len(prompts) if lengths is None else lengths
        return jitted(tree, prompts, jnp.asarray(lengths), jnp.asarray([stop]))

    plain = run(chain_tree(0, LIMITS.nodes + 1), PROMPTS)
    np.testing.assert_array_equal(plain.cycles, TOKENS)
    end = PROMPTS.shape[1] + TOKENS
    for tree in (chain_tree(1, LIMITS.nodes + 1), chain_tree(6, LIMITS.nodes + 1), BUSH):
        drafted = run(tree, PROMPTS)
        np.testing.assert_array_equal(drafted.tokens[:, :end], plain.tokens[:, :end])
        np.testing.assert_array_equal(drafted.margin[:, :end], plain.margin[:, :end])
        np.testing.assert_array_equal(drafted.generated, drafted.cycles + np.sum(drafted.accepted_at, axis=1))
    assert len(traces) == 1
    # A prompt of one token tells a draft next to nothing.
    one = run(BUSH, PROMPTS[:, :1])
    np.testing.assert_array_equal(
        one.tokens[:, : 1 + TOKENS], run(chain_tree(0, 7), PROMPTS[:, :1]).tokens[:, : 1 + TOKENS]
    )
    # Among longer ones it is decoded as it is among its like, cycle by cycle, and they are too.
    counts = lambda decoded, row: [np.asarray(part)[row] for part in decoded[1:-1]]
    lengths = np.where(np.arange(len(PROMPTS)) == 1, 1, PROMPTS.shape[1])
    mixed = run(BUSH, PROMPTS, lengths=lengths)
    for row, length in enumerate(lengths):
        alone = one if length == 1 else drafted
        np.testing.assert_array_equal(mixed.tokens[row, : length + TOKENS], alone.tokens[row, : length + TOKENS])
        np.testing.assert_equal(counts(mixed, row), counts(alone, row))
    # A stop token ends a text, wherever in a cycle it comes.
    texts = np.asarray(plain.tokens)[:, PROMPTS.shape[1] : end]
    stop = int(texts[0, TOKENS // 2])
    stopped = run(BUSH, PROMPTS, stop=stop)
    for row, text in enumerate(texts):
        ends = np.append(np.flatnonzero(text == stop) + 1, TOKENS)[0]
        np.testing.assert_array_equal(stopped.tokens[row, PROMPTS.shape[1] :][:ends], text[:ends])
        assert stopped.generated[row] == ends or not np.any(text == stop)
        assert stopped.cycles[row] <= drafted.cycles[row]
    assert len(traces) == 2


def describes_itself(ready: ReadyDraft) -> None:
    """It has a name that takes no part in equality, a size and a cost."""
    draft: Any = ready.draft
    params = ready.params
    renamed = dataclasses.replace(draft, name="other")
    assert (renamed.name, renamed, hash(renamed)) == ("other", draft, hash(draft))  # shares compilations
    assert draft.num_parameters(params) >= 0
    priced = catalog.architecture("llama-3.1-8b")
    cost = draft.cost(TARGET, priced, "llama-3.1-8b")
    assert {cost.passes, cost.shares_ends} <= {0.0, 1.0}
    assert "llama-3.1-8b" in cost.statement or cost.passes == 0
    if cost.architecture is not None:
        whole, part = (sum(hwmodels.parameters(shape).values()) for shape in (priced, cost.architecture))
        assert 0 < float(part) < float(whole)


def follows_as_it_is_asked(ready: ReadyDraft) -> None:
    """A draft that reads many roots of a text at once ranks its tokens as one that is asked root by root."""
    lengths, starts, depth = np.array([5, 2, 4], np.int32), TOKENS, 4
    texts = np.random.default_rng(SEED).integers(TARGET.vocab_size, size=(3, 5 + starts)).astype(np.int32)
    target = network()
    trace = trace_target(target, TARGET, jnp.asarray(texts), jnp.asarray(lengths), padding=depth)
    given = ready.draft, ready.params, trace, jnp.asarray(lengths)
    asked = jax.jit(ranks_asked, static_argnums=(0, 4, 5, 6))(*given, 5, depth, starts)
    followed = jax.jit(ranks_followed, static_argnums=(0, 4, 5))(*given, depth, starts)
    # One block at a time, as where a vocabulary is large.
    apart = jax.jit(ranks_followed, static_argnums=(0, 4, 5, 6))(*given, depth, starts, 1)
    for start in range(starts):
        known = min(depth, starts - start)
        np.testing.assert_array_equal(followed[:, start, :known], asked[:, start, :known])
        np.testing.assert_array_equal(apart[:, start, :known], asked[:, start, :known])


def check_draft(make: Callable[..., ReadyDraft], name: str) -> None:
    """Hold a draft to all that a member of the registry keeps to.

    Args:
        make: what the registry calls, from a name and a loaded target.
    Raises:
        AssertionError: it does not.
    """
    ready = make(name, loaded_target())
    assert ready.draft.name == name
    describes_itself(ready)
    gives_one_text(ready)
    if getattr(ready.draft, "follow", None) is not None:
        follows_as_it_is_asked(ready)
