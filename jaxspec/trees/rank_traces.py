"""Gains of any tree on texts along which a draft was run once.

A trace holds, for a root in a text and each distance after it, the rank (0 for the likeliest) that the draft gave to the
text's own token, all tokens between having been drafted as the text has them. Under greedy decoding the text is the target's
own, and a node is accepted exactly if its path of ranks is the beginning of the root's rank path. So the accepted path of any
static tree is the longest beginning that is in the tree, and a trace prices every tree exactly, without a network.

Decoding visits some of a text's roots only: after a root at which a tokens were accepted, the next is a + 1 tokens on.

Source: Boosting the Performance of Tree-Based Speculative Decoding of LLMs on FPGAs, III-C (scores from accepted nodes) and
    IV-E (AAT curves of growing trees).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, Int32, Num

from jaxspec.errors import InputError
from jaxspec.trees.searches import prior_scores
from jaxspec.trees.topology import ROOT, NestedTrees, Tree, is_node, one_tree

__all__ = [
    "ENDED",
    "UNKNOWN",
    "AATBySize",
    "AcceptanceTable",
    "AcceptedPath",
    "RankTraces",
    "RatioOfTotals",
    "TextCycles",
    "aat_by_size",
    "acceptance_table",
    "accepted_nodes",
    "chain_gains",
    "checked_traces",
    "count_nodes",
    "cycles_along_text",
    "error_of_mean",
    "known_roots",
    "node_reach",
    "path_nodes",
    "prior_scores_from_traces",
    "ratio_of_totals",
    "recorded_roots",
]

# Ratios of totals over texts, as tokens per cycle, and how sure they are when the texts are a sample.


class RatioOfTotals(NamedTuple):
    """A ratio of two totals over texts.

    Attributes:
        mean: total over total; NaN where the denominators are all 0.
        standard_error: of the mean, texts taken as independent; NaN for one text.
        per_text: one number per text, in the unit of the ratio; their mean is `mean`, and the standard deviation of that mean
            is `standard_error`. Not the text's own ratio, unless all denominators are equal.
    """

    mean: Float[Array, "*b"]
    standard_error: Float[Array, "*b"]
    per_text: Float[Array, "*b text"]


def ratio_of_totals(
    numerator: Num[Array | np.ndarray, "*b text"], denominator: Num[Array | np.ndarray, "*b text"]
) -> RatioOfTotals:
    """Total over total, with a standard error over texts. NumPy arrays are computed on the host, in double precision.

    Args:
        numerator, denominator: "*b text", counts >= 0 of each text; totals of whole numbers must fit their type.
    Raises:
        ValueError: shapes that differ, or no text.
    """
    if numerator.shape != denominator.shape or numerator.ndim == 0 or numerator.shape[-1] == 0:
        raise ValueError(
            f"numerator has shape {numerator.shape} and denominator {denominator.shape}; give one of each per text"
        )
    xp: Any = numerator.__array_namespace__()
    as_float = lambda counts: counts.astype(xp.result_type(float))
    texts = numerator.shape[-1]
    below = as_float(xp.sum(denominator, axis=-1))
    mean = as_float(xp.sum(numerator, axis=-1)) / xp.where(below > 0, below, xp.nan)
    deviation = as_float(numerator) - mean[..., None] * as_float(denominator)
    per_text = mean[..., None] + deviation * (texts / xp.where(below > 0, below, xp.nan))[..., None]
    return RatioOfTotals(mean, error_of_mean(per_text), per_text)


def error_of_mean(per_text: Float[Array | np.ndarray, "*b text"]) -> Float[Any, "*b"]:
    """Standard error of the mean of one number per text, texts taken as independent; NaN for one text."""
    xp: Any = per_text.__array_namespace__()
    texts = per_text.shape[-1]
    if texts == 1:
        return xp.full(per_text.shape[:-1], xp.nan, dtype=per_text.dtype)
    return xp.std(per_text, axis=-1, ddof=1) / texts**0.5


#: Rank of a token that was not recorded; it matches no node.
UNKNOWN = -1

#: Rank of a token behind the one that stopped its text, which decoding never reaches; it matches no node.
ENDED = -2


@struct.dataclass
class RankTraces:
    """Rank paths of the roots of some texts.

    Attributes:
        rank: "text start depth", at [t, s, d] the rank of the token that is d + 1 after the root, once s tokens were generated;
            `UNKNOWN` beyond what was recorded, `ENDED` behind a text's stop token.
        num_starts: "text", the first so many roots of each text were recorded; what comes later only fills the arrays, with
            `ENDED` where the text stopped.
    """

    rank: Int[Array, "text start depth"]
    num_starts: Int[Array, " text"]


class AcceptedPath(NamedTuple):
    """End of a tree's accepted path.

    Attributes:
        depth: drafted tokens accepted; the cycle gains one more.
        node: the last accepted node, `ROOT` where none was.
        known: the path ends for its ranks; otherwise it ends because the next rank is `UNKNOWN` though the tree goes on.
    """

    depth: Int32[Array, "*b"]
    node: Int32[Array, "*b"]
    known: Bool[Array, "*b"]


class TextCycles(NamedTuple):
    """Counts of decoding along each text.

    Attributes:
        cycles: verifications.
        generated: tokens; the last cycle may run over what was asked for.
        accepted: cycles in which each node was accepted; 0 for padding.
        complete: all cycles were recorded, and all their paths known. Elsewhere decoding may count otherwise.
    """

    cycles: Int32[Array, " text"]
    generated: Int32[Array, " text"]
    accepted: Int32[Array, "text node"]
    complete: Bool[Array, " text"]


class AATBySize(NamedTuple):
    """Tokens per cycle of every beginning of a growing tree.

    Attributes:
        verification_length: 2 to nodes + 1, the root included.
        cycles, generated, complete: of each size along each text, as in `TextCycles`.
        aat: tokens over cycles; NaN for sizes at which a text is not complete.
    """

    verification_length: Int32[Array, " size"]
    cycles: Int32[Array, "size text"]
    generated: Int32[Array, "size text"]
    complete: Bool[Array, "size text"]
    aat: RatioOfTotals


def accepted_nodes(tree: Tree, rank_path: Int[Array, "*b depth"]) -> AcceptedPath:
    """The longest beginning of each rank path that is in the tree.

    Args:
        tree: one tree; works under `jit` and `vmap`.
        rank_path: "*b depth", as `RankTraces.rank`.
    Raises:
        ValueError: more than one tree, or no depth.
    """
    path = jnp.asarray(rank_path)
    return _ends(tree, path, path_nodes(tree, path), jnp.asarray(tree.num_nodes, jnp.int32))


def cycles_along_text(tree: Tree, traces: RankTraces, *, num_tokens: Int[ArrayLike, "*text"]) -> TextCycles:
    """The cycles in which greedy decoding with a static tree generates each text: exactly what it counts.

    Args:
        tree: one tree; works under `jit` and `vmap`.
        num_tokens: to generate, of all texts or of each; may be traced. Ranks should be known for the tree's depth beyond it.
            A text that stops before is generated to its stop token.
    Raises:
        ValueError: more than one tree, or malformed traces.
    """
    traces = checked_traces(traces)
    nodes = path_nodes(tree, traces.rank)
    ends = _ends(tree, traces.rank, nodes, jnp.asarray(tree.num_nodes, jnp.int32))
    visited, generated, complete = _renewal(ends, traces, num_tokens)
    cycles = jnp.sum(visited, axis=-1, dtype=jnp.int32)
    return TextCycles(cycles, generated, count_nodes(nodes, visited, tree), complete)


def aat_by_size(growth: NestedTrees, traces: RankTraces, *, num_tokens: Int[ArrayLike, "*text"]) -> AATBySize:
    """Tokens per cycle of the first 1, 2, ... nodes of a growing tree, by the cycles that decoding performs.

    Args:
        growth: on the host, one or more nodes in the order in which they are added, as the searches return them.
        traces, num_tokens: as for `cycles_along_text`.
    Raises:
        ValueError: a malformed tree, or malformed traces.
    Source: IV-E, Fig. 6.
    """
    tree = growth.tree()
    return _aat_by_size(tree, checked_traces(traces), jnp.asarray(num_tokens, jnp.int32))


@jax.jit
def _aat_by_size(tree: Tree, traces: RankTraces, num_tokens: Array) -> AATBySize:
    nodes = path_nodes(tree, traces.rank)
    sizes = jnp.arange(1, tree.size + 1, dtype=jnp.int32)

    def of_size(size: Array) -> tuple[Array, Array, Array]:
        visited, generated, complete = _renewal(_ends(tree, traces.rank, nodes, size), traces, num_tokens)
        return jnp.sum(visited, axis=-1, dtype=jnp.int32), generated, complete

    cycles, generated, complete = jax.vmap(of_size)(sizes)
    aat = ratio_of_totals(generated, cycles)
    whole = jnp.all(complete, axis=-1)
    refuse = lambda value: jnp.where(whole.reshape(-1, *[1] * (value.ndim - 1)), value, jnp.nan)
    return AATBySize(sizes + 1, cycles, generated, complete, RatioOfTotals(*map(refuse, aat)))


def prior_scores_from_traces(
    tree: NestedTrees, traces: RankTraces, *, num_tokens: Int[ArrayLike, "*text"] | None = None
) -> Int[np.ndarray, " node"]:
    """In how many cycles each node of a maximal tree was accepted, on the host.

    Args:
        num_tokens: decode so many of each text with the maximal tree, as the paper does; None counts every root of every text
            once, which uses all that was recorded.
    Raises:
        ValueError: a malformed tree, or malformed traces.
        InputError: a text that ends before so many tokens are decoded.
    Source: III-C, the score list.
    """
    maximal, traces = tree.tree(), checked_traces(traces)
    ends = jax.jit(accepted_nodes)(maximal, traces.rank)
    if num_tokens is None:
        counted = known_roots(maximal, traces)
    else:
        counted, _, complete = jax.jit(_renewal)(ends, traces, num_tokens)
        if not bool(jnp.all(complete)):
            short = int(jnp.argmin(complete))
            raise InputError(
                f"text {short} ends before {np.max(num_tokens)} tokens are decoded; record more of it or ask for fewer"
            )
    return prior_scores(tree, np.asarray(ends.node)[np.asarray(counted)])


def checked_traces(traces: RankTraces) -> RankTraces:
    """The traces as int32 arrays.

    Raises:
        ValueError: wrong axes, an empty one, or numbers that are not whole.
    """
    rank, starts = jnp.asarray(traces.rank), jnp.asarray(traces.num_starts)
    whole = all(jnp.issubdtype(leaf.dtype, jnp.integer) for leaf in (rank, starts))
    if rank.ndim != 3 or 0 in rank.shape or starts.shape != rank.shape[:1] or not whole:
        raise ValueError(
            f"rank has shape {rank.shape} and num_starts {starts.shape}; their axes are text, start, depth and text, and they "
            "hold whole numbers"
        )
    return RankTraces(rank=rank.astype(jnp.int32), num_starts=starts.astype(jnp.int32))


def recorded_roots(traces: RankTraces) -> Bool[Array, "text start"]:
    """Mask of the places that hold a root and no padding."""
    return jnp.arange(traces.rank.shape[1], dtype=jnp.int32)[None, :] < traces.num_starts[:, None]


def known_roots(tree: Tree, traces: RankTraces) -> Bool[Array, "text start"]:
    """Roots whose ranks are known down to the tree's depth."""
    deepest = jnp.max(jnp.where(is_node(tree), jnp.asarray(tree.depth, jnp.int32), 0))
    known = jnp.cumprod((traces.rank != UNKNOWN).astype(jnp.int32), axis=2)
    known_depth = jnp.sum(known, axis=2, dtype=jnp.int32)
    return recorded_roots(traces) & (known_depth >= deepest)


def chain_gains(traces: RankTraces) -> Int32[Array, "text start"]:
    """Tokens that a chain without end gains from each root, the target's own included, as an `AcceptanceTrace` holds them.

    No more than the recorded depth and one.
    """
    drafted = jnp.cumprod((checked_traces(traces).rank == 0).astype(jnp.int32), axis=2)
    return 1 + jnp.sum(drafted, axis=2, dtype=jnp.int32)


def path_nodes(tree: Tree, rank_path: Int[Array, "*b depth"]) -> Int32[Array, "*b depth"]:
    """The accepted node of each depth; the tree's padded size from where the path has left the tree.

    Along a path the numbers of nodes rise, so that the path in the tree of the first n nodes is its part below n.
    """
    if rank_path.ndim == 0 or rank_path.shape[-1] == 0:
        raise ValueError(f"rank_path has shape {rank_path.shape}; its last axis is depth, 1 or more")
    size = one_tree(tree).size
    parent = jnp.where(is_node(tree), jnp.asarray(tree.parent, jnp.int32), size + 1)  # padding is nobody's child
    # Against the node that each path has reached.
    parent, node_rank = (
        jax.lax.broadcast_to_rank(x, rank_path.ndim) for x in (parent, jnp.asarray(tree.rank, jnp.int32))
    )

    def descend(above: Array, rank: Array) -> tuple[Array, Array]:
        is_next = (parent == above[..., None]) & (node_rank == rank[..., None])
        next_node = jnp.where(jnp.any(is_next, axis=-1), jnp.argmax(is_next, axis=-1).astype(jnp.int32), size)
        return next_node, next_node

    start = jnp.full(rank_path.shape[:-1], ROOT, jnp.int32)
    _, nodes = jax.lax.scan(descend, start, jnp.moveaxis(rank_path.astype(jnp.int32), -1, 0))
    return jnp.moveaxis(nodes, 0, -1)


def _ends(tree: Tree, rank_path: Array, nodes: Int32[Array, "*b depth"], size: Int32[Array, ""]) -> AcceptedPath:
    """Ends of the paths in the tree of the first `size` nodes."""
    depth = jnp.sum(nodes < size, axis=-1, dtype=jnp.int32)
    before = jnp.concatenate([jnp.full_like(nodes[..., :1], ROOT), nodes], axis=-1)
    last = jnp.take_along_axis(before, depth[..., None], axis=-1)[..., 0]
    ahead = jnp.concatenate([rank_path, jnp.full_like(rank_path[..., :1], UNKNOWN)], axis=-1)
    next_rank = jnp.take_along_axis(ahead, depth[..., None], axis=-1)[..., 0]
    row = jnp.where(is_node(tree), jnp.asarray(tree.parent, jnp.int32) + 1, tree.size + 1)
    numbers = jnp.arange(tree.size, dtype=jnp.int32)
    first_child = jnp.full(tree.size + 1, tree.size, jnp.int32).at[row].min(numbers, mode="drop")
    goes_on = first_child[last + 1] < size
    return AcceptedPath(depth, last, jnp.logical_not((next_rank == UNKNOWN) & goes_on))


def _renewal(ends: AcceptedPath, traces: RankTraces, num_tokens: ArrayLike) -> tuple[Array, Array, Array]:
    """Roots that decoding visits ("text start"), the tokens generated and whether all was known ("text")."""
    asked = jnp.broadcast_to(jnp.asarray(num_tokens, jnp.int32), traces.num_starts.shape)
    # A text that stopped has no token behind its last one: neither one that was asked for nor one that a cycle adds.
    stopped = jnp.any(traces.rank == ENDED, axis=(1, 2))
    last = jnp.where(stopped, traces.num_starts, jnp.iinfo(jnp.int32).max)
    asked = jnp.minimum(asked, last)
    starts = jnp.arange(traces.rank.shape[1], dtype=jnp.int32)

    def visit(carry: tuple[Array, Array], inputs: tuple[Array, Array, Array]):
        next_root, all_known = carry
        start, depth, known = inputs
        here = (next_root == start) & (start < asked) & (start < traces.num_starts)
        return (jnp.where(here, jnp.minimum(start + depth + 1, last), next_root), all_known & (known | ~here)), here

    begin = jnp.zeros(asked.shape, jnp.int32), jnp.ones(asked.shape, bool)
    (generated, all_known), visited = jax.lax.scan(visit, begin, (starts, ends.depth.T, ends.known.T))
    return visited.T, generated, all_known & (generated >= asked)


def count_nodes(nodes: Int32[Array, "text start depth"], counted: Bool[Array, "text start"], tree: Tree) -> Array:
    """Counts of each node on counted paths, "text node"."""
    where = jnp.where(counted[:, :, None], nodes, tree.size)
    text = jnp.arange(nodes.shape[0], dtype=jnp.int32)[:, None, None]
    return jnp.zeros((nodes.shape[0], tree.size), jnp.int32).at[text, where].add(1, mode="drop")


# Statistics of rank traces over roots, all recorded roots counting alike: chances of nodes and ranks, and their bootstrap.

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
