"""Statistics of rank traces over roots, all recorded roots counting alike: chances of nodes and ranks, and their bootstrap.

Decoding visits roots after it accepted something, not all roots alike; what it counts is in `rank_traces`. Over all roots there
are more data, and the estimates do not depend on the tree that decodes.

Source: Boosting the Performance of Tree-Based Speculative Decoding of LLMs on FPGAs, III-C. The table of chances by depth and
    rank is that of Sequoia, arXiv:2402.12374, 3.1, there by rank alone.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32, Key

from jaxspec.trees.rank_traces import (
    ENDED,
    UNKNOWN,
    RankTraces,
    accepted_nodes,
    checked_traces,
    count_nodes,
    known_roots,
    path_nodes,
    recorded_roots,
)
from jaxspec.trees.simulation import MAX_TRIALS, SimulatedTokens
from jaxspec.trees.text_ratios import ratio_of_totals
from jaxspec.trees.topology import Tree

__all__ = ["AcceptanceTable", "acceptance_table", "node_reach", "simulate_traces"]

#: Trials drawn together: few enough to stay in the cache.
_BLOCK = 1 << 16


class AcceptanceTable(NamedTuple):
    """P(child of a rank accepted | parent accepted) by depth, depth 0 for children of the root.

    Attributes:
        table: rows sum to at most 1; 0 where no root was asked.
        standard_error: of each entry, texts taken as independent; NaN for one text, and where no root was asked.
        asked: roots that the row was counted from.
    """

    table: Float[Array, "depth rank"]
    standard_error: Float[Array, "depth rank"]
    asked: Int32[Array, " depth"]


def node_reach(tree: Tree, traces: RankTraces) -> Float[Array, " node"]:
    """Share of roots at which each node is accepted, all roots counting alike.

    Roots whose ranks are not known down to the tree's depth are left out, whatever their path: the others are then no choice by
    their outcome. 1 plus the sum of the shares is the tokens per cycle from a root drawn from all.

    Returns:
        "node"; 0 for padding, NaN where no root is left.
    Raises:
        ValueError: more than one tree, or malformed traces.
    """
    traces = checked_traces(traces)
    counted = known_roots(tree, traces)
    times = count_nodes(
        path_nodes(tree, traces.rank).reshape(1, -1, traces.rank.shape[2]), counted.reshape(1, -1), tree
    )
    roots = jnp.sum(counted, dtype=jnp.int32).astype(jnp.result_type(float))
    return times[0].astype(roots.dtype) / jnp.where(roots > 0, roots, jnp.nan)


def acceptance_table(traces: RankTraces, *, depth: int, ranks: int) -> AcceptanceTable:
    """Measured chances by depth and rank: of the text's tokens at a distance, how many had each rank.

    Args:
        depth, ranks: static, the table's shape, at most the depth recorded. A root is asked at a depth if its ranks at all
            smaller ones are below `ranks` and the rank there is known.
    Raises:
        ValueError: malformed traces, or a shape out of range.
    """
    traces = checked_traces(traces)
    texts, _, recorded = traces.rank.shape
    if not 1 <= depth <= recorded or ranks < 1:
        raise ValueError(f"depth is {depth} and ranks {ranks}; allowed are depths 1 to {recorded} and ranks from 1")
    rank = jnp.asarray(traces.rank, jnp.int32)[:, :, :depth]
    given = (rank != UNKNOWN) & (rank != ENDED)
    listed = given & (rank < ranks)
    before = jnp.cumprod(listed.astype(jnp.int32), axis=2).astype(bool)
    before = jnp.concatenate([jnp.ones_like(before[:, :, :1]), before[:, :, :-1]], axis=2)
    asked = before & given & recorded_roots(traces)[:, :, None]
    # What is not to be counted falls out of the table.
    column = jnp.where(asked & listed, rank, ranks)
    text = jnp.arange(texts, dtype=jnp.int32)[:, None, None]
    level = jnp.arange(depth, dtype=jnp.int32)[None, None, :]
    times = jnp.zeros((texts, depth, ranks), jnp.int32).at[text, level, column].add(1, mode="drop")
    roots = jnp.sum(asked, axis=1, dtype=jnp.int32)
    by_text = lambda counts: jnp.moveaxis(counts, 0, -1)
    ratio = ratio_of_totals(by_text(times), by_text(jnp.broadcast_to(roots[:, :, None], times.shape)))
    total = jnp.sum(roots, axis=0, dtype=jnp.int32)
    return AcceptanceTable(jnp.where(total[:, None] > 0, ratio.mean, 0.0), ratio.standard_error, total)


@partial(jax.jit, static_argnames="num_trials")
def simulate_traces(tree: Tree, traces: RankTraces, key: Key[Array, ""], *, num_trials: int) -> SimulatedTokens:
    """Simulate cycles at recorded roots drawn with replacement, all alike: dependence between depths is kept as it was.

    Args:
        tree: one tree; works under `vmap`.
        key: typed.
        num_trials: static, 1 to MAX_TRIALS.
    Returns:
        As `simulate_nodes`. Roots are left out as in `node_reach`; NaN where none is left. The standard error is that of the
        drawing, not that of the texts.
    Raises:
        ValueError: more than one tree, malformed traces, or a number of trials out of range.
    """
    if not 1 <= num_trials <= MAX_TRIALS:
        raise ValueError(f"num_trials is {num_trials}; allowed are 1 to {MAX_TRIALS}: add up several runs for more")
    traces = checked_traces(traces)
    counted = known_roots(tree, traces).reshape(-1)
    roots = jnp.sum(counted, dtype=jnp.int32)
    depth_of = accepted_nodes(tree, traces.rank).depth.reshape(-1)[jnp.argsort(jnp.logical_not(counted))]

    def block(i: Array, ended: Array) -> Array:
        drawn = jax.random.randint(jax.random.fold_in(key, i), (_BLOCK,), 0, jnp.maximum(roots, 1), jnp.int32)
        needed = jnp.arange(_BLOCK, dtype=jnp.int32) < num_trials - i * _BLOCK
        return ended.at[depth_of[drawn]].add(needed.astype(jnp.int32))

    blocks = -(-num_trials // _BLOCK)
    ended = jax.lax.fori_loop(jnp.int32(0), jnp.int32(blocks), block, jnp.zeros(tree.size + 1, jnp.int32))
    survivors = jnp.flip(jnp.cumsum(jnp.flip(ended[1:]), dtype=jnp.int32))
    share = ended.astype(jnp.result_type(float)) / jnp.where(roots > 0, num_trials, jnp.nan)
    depth = jnp.arange(tree.size + 1).astype(share.dtype)
    gained = jnp.sum(share * depth)
    variance = jnp.sum(share * (depth - gained) ** 2)
    error = jnp.sqrt(variance / (num_trials - 1)) if num_trials > 1 else jnp.full((), jnp.nan, share.dtype)
    return SimulatedTokens(mean=1 + gained, standard_error=error, survivors=survivors)
