"""Statistics of rank traces over roots, all recorded roots counting alike: chances of nodes and ranks, and their bootstrap.

Decoding visits roots after it accepted something, not all roots alike; what it counts is in `rank_traces`. Over all roots there
are more data, and the estimates do not depend on the tree that decodes.

Source: Boosting the Performance of Tree-Based Speculative Decoding of LLMs on FPGAs, III-C. The table of chances by depth and
    rank is that of Sequoia, arXiv:2402.12374, 3.1, there by rank alone.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int32

from jaxspec.trees.rank_traces import (
    ENDED,
    UNKNOWN,
    RankTraces,
    checked_traces,
    count_nodes,
    known_roots,
    path_nodes,
    recorded_roots,
)
from jaxspec.trees.text_ratios import ratio_of_totals
from jaxspec.trees.topology import Tree

__all__ = ["AcceptanceTable", "acceptance_table", "node_reach"]

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
