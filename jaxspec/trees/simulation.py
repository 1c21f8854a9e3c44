"""Tokens that a tree gains per cycle, simulated in bulk.

At most one child of a parent is accepted. Two simulations of this law:

* every node draws, with the probability of being accepted after its siblings of smaller rank were not; the first child by
  rank that drew an acceptance is taken. This is what verification does, and its cost grows with the nodes;
* one draw per level decides which child is taken, if any. This is cheaper, and stops where no trial goes on.

Exact gain of a tree per cycle: the nodes that are reached, and the mean and variance of the tokens.

At most one child of a parent is accepted. A table accept[depth, rank] says with which probability it is the one of that
rank, given that the parent is accepted; what a row leaves to 1 is the probability that the cycle ends there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32, Key, UInt32

from jaxspec.trees.topology import (
    PADDING,
    Tree,
    ancestor_steps,
    children_table,
    is_node,
    one_tree,
    ranked_before,
    sibling_position,
)

__all__ = [
    "MAX_TRIALS",
    "SimulatedTokens",
    "depth_survival",
    "expected_tokens",
    "node_acceptance",
    "node_draw_probability",
    "reach_probability",
    "simulate_nodes",
    "simulate_walks",
    "tokens_variance",
]


def node_acceptance(tree: Tree, table: Float[Array, "depth rank"]) -> Float[Array, " node"]:
    """P(node accepted | parent accepted) of every node, read from a table; 0 beyond its ends and for padding.

    Args:
        tree: one tree; works under `jit`, `vmap` and `grad`.
        table: row 0 is for children of the root; entries in [0, 1], rows sum to at most 1.
    Raises:
        ValueError: more than one tree, or a table without two axes.
    """
    if jnp.ndim(table) != 2:
        raise ValueError(f"table has shape {jnp.shape(table)}; its axes are depth and rank")
    node = is_node(tree)
    row = jnp.where(node, jnp.asarray(tree.depth, jnp.int32) - 1, table.shape[0])
    column = jnp.where(node, jnp.asarray(tree.rank, jnp.int32), table.shape[1])
    return jnp.asarray(table).at[row, column].get(mode="fill", fill_value=0)


def reach_probability(tree: Tree, acceptance: Float[Array, " node"]) -> Float[Array, " node"]:
    """Probability that each node and all above it are accepted; 0 for padding.

    A product along the way up, so that the gradient in the acceptance is right at 0 and 1 too.

    Raises:
        ValueError: more than one tree, or another number of nodes.
    """
    chances = checked_acceptance(tree, acceptance)
    # The last entry stands for what is above the tree: accepted, and its own parent.
    above = jnp.where(jnp.asarray(tree.parent) >= 0, jnp.asarray(tree.parent, jnp.int32), tree.size)
    above = jnp.append(above, jnp.asarray([tree.size], jnp.int32))
    carry = jnp.append(chances, jnp.ones(1, chances.dtype)), above
    jump = lambda carry, _: ((carry[0] * carry[0][carry[1]], carry[1][carry[1]]), None)
    (reached, _), _ = jax.lax.scan(jump, carry, None, length=ancestor_steps(tree))
    return reached[: tree.size]


def depth_survival(tree: Tree, acceptance: Float[Array, " node"]) -> Float[Array, " depth"]:
    """Probability that at least 1, 2, ... drafted tokens are accepted, up to the tree's padded size.

    Raises:
        ValueError: more than one tree, or another number of nodes.
    """
    reached = reach_probability(tree, acceptance)
    level = jnp.where(is_node(tree), jnp.asarray(tree.depth, jnp.int32) - 1, tree.size)
    return jnp.zeros(tree.size, reached.dtype).at[level].add(reached, mode="drop")


def expected_tokens(tree: Tree, acceptance: Float[Array, " node"]) -> Float[Array, ""]:
    """Exact expectation of the tokens gained per cycle: 1 plus the probabilities that nodes are reached.

    Args:
        tree: one tree; works under `jit`, `vmap` and `grad`.
        acceptance: "node", in [0, 1]; P(node accepted | parent accepted). Those of siblings sum to at most 1.
    Raises:
        ValueError: more than one tree, or another number of nodes.
    """
    return 1.0 + jnp.sum(reach_probability(tree, acceptance))


def tokens_variance(tree: Tree, acceptance: Float[Array, " node"]) -> Float[Array, ""]:
    """Exact variance of the tokens gained per cycle, the square of the standard error of one trial.

    Raises:
        ValueError: more than one tree, or another number of nodes.
    """
    survival = depth_survival(tree, acceptance)
    one, nothing = jnp.ones((), survival.dtype), jnp.zeros((), survival.dtype)
    return depth_spread(-jnp.diff(survival, prepend=one, append=nothing), jnp.sum(survival))


def node_draw_probability(tree: Tree, acceptance: Float[Array, " node"]) -> Float[Array, " node"]:
    """P(node accepted | parent accepted, siblings of smaller rank not): what an independent draw per node must pass.

    Where smaller ranks leave nothing, the node is never asked, and the value is 0.

    Raises:
        ValueError: more than one tree, or another number of nodes.
    """
    chances = checked_acceptance(tree, acceptance)
    left = 1.0 - smaller_rank_acceptance(tree, chances)
    return jnp.where(left > 0, jnp.clip(chances / jnp.where(left > 0, left, 1.0), 0.0, 1.0), 0.0)


def smaller_rank_acceptance(tree: Tree, chances: Float[Array, " node"]) -> Float[Array, " node"]:
    """Probability that a sibling of smaller rank is accepted."""
    return jnp.sum(jnp.where(ranked_before(tree), chances[None, :], 0.0), axis=1)


def depth_spread(probability: Float[Array, " depth_from_0"], mean_depth: Float[Array, ""]) -> Float[Array, ""]:
    """Variance of the accepted depth."""
    depth = jnp.arange(probability.size, dtype=probability.dtype)
    return jnp.sum(probability * (depth - mean_depth) ** 2)


def checked_acceptance(tree: Tree, acceptance: Float[Array, " node"]) -> Float[Array, " node"]:
    """The acceptances with 0 for padding, after a check of their shape."""
    chances = jnp.asarray(acceptance)
    if chances.shape != (one_tree(tree).size,):
        raise ValueError(f"acceptance has shape {chances.shape}; give one per node of the padded size, {tree.size}")
    return jnp.where(is_node(tree), chances, 0.0)


#: Trials of one call: what an int32 counts.
MAX_TRIALS = (1 << 31) - 1

#: Trials drawn together in short and in long runs: enough to keep all cores busy, few enough to stay in the cache.
_SHORT_BLOCK, _LONG_BLOCK = 1 << 14, 1 << 17

#: Bits of one draw, and of the thresholds it is compared with: as many as a float32 in [0, 1] has.
_DRAW_BITS = 24

#: Nodes whose draws share one word.
_WORD = 32


#: From the key of a block and its trials to what takes rows and a level to the rows of the accepted children.
_Walk: TypeAlias = Callable[[Array, int], Callable[[Array, Array], Array]]


class SimulatedTokens(NamedTuple):
    """Tokens gained per cycle in many trials, the bonus token included.

    Attributes:
        mean: in [1, depth of the tree + 1].
        standard_error: of the mean; NaN for a single trial.
        survivors: trials in which at least 1, 2, ... drafted tokens were accepted, up to the tree's padded size.
    """

    mean: Float[Array, ""]
    standard_error: Float[Array, ""]
    survivors: Int32[Array, " depth"]


@partial(jax.jit, static_argnames="num_trials")
def simulate_nodes(
    tree: Tree, acceptance: Float[Array, " node"], key: Key[Array, ""], *, num_trials: int
) -> SimulatedTokens:
    """Simulate cycles in which every node draws on its own and the first accepted child by rank is taken.

    Args:
        tree: one tree; works under `vmap`, over trees, acceptances and keys.
        acceptance: "node", in [0, 1]; P(node accepted | parent accepted). Those of siblings sum to at most 1.
        key: typed; the result depends on it and on the nodes' numbers alone, not on the padding.
        num_trials: static, 1 to MAX_TRIALS.
    Raises:
        ValueError: more than one tree, another number of nodes, or a number of trials out of range.
    """
    size, words = one_tree(tree).size, -(-tree.size // _WORD)
    # Nodes by rank, padding last: of any parent's children, the first by rank holds the lowest bit.
    order = jnp.lexsort((jnp.asarray(tree.rank), jnp.logical_not(is_node(tree))))
    row = jnp.argsort(order).astype(jnp.int32) + 1
    filled = (0, words * _WORD - size)
    thresholds = jnp.pad(_threshold(node_draw_probability(tree, acceptance))[order], filled).reshape(words, _WORD, 1)
    parent = jnp.asarray(tree.parent, jnp.int32)[order]
    # Row 0 is the root; padding is nobody's child, and row size + 1, where walks end, has none.
    parent_row = jnp.pad(
        jnp.where(parent >= 0, row[parent], jnp.where(parent == PADDING, -1, 0)), filled, constant_values=-1
    )
    is_child = parent_row.reshape(words, 1, _WORD) == jnp.arange(size + 2, dtype=jnp.int32)[None, :, None]
    children = _pack(is_child, axis=2)

    def walk(block_key: Array, trials: int):
        draw = lambda word: _pack(_word_draws(block_key, word, trials) < thresholds[word], axis=0)
        drawn = jax.lax.map(draw, jnp.arange(words, dtype=jnp.int32))

        def child(token: Array, _: Array) -> Array:
            hits = drawn & children.at[:, token].get(mode="promise_in_bounds")
            below_lowest = (hits & (~hits + jnp.uint32(1))) - jnp.uint32(1)
            bit = jax.lax.population_count(below_lowest).astype(jnp.int32)
            first = jnp.arange(words, dtype=jnp.int32)[:, None] * _WORD + bit + 1
            return jnp.min(jnp.where(hits != 0, first, size + 1), axis=0)

        return child

    return _simulate(walk, key, size, num_trials, jnp.asarray(acceptance).dtype)


@partial(jax.jit, static_argnames=("num_trials", "max_children"))
def simulate_walks(
    tree: Tree,
    acceptance: Float[Array, " node"],
    key: Key[Array, ""],
    *,
    num_trials: int,
    max_children: int | None = None,
) -> SimulatedTokens:
    """Simulate cycles as walks from the root, with one draw per level that decides which child is accepted, if any.

    The law is that of `simulate_nodes`; trial by trial the two differ.

    Args:
        tree, acceptance, key, num_trials: as for `simulate_nodes`.
        max_children: static; children that a node has at most (see `most_children`): the fewer, the faster. Without it, any
            number. A tree with more gives NaN.
    Raises:
        ValueError: as `simulate_nodes`, or `max_children` below 1.
    """
    size = one_tree(tree).size
    most = size if max_children is None else max_children
    if most < 1:
        raise ValueError(f"max_children is {most}; it must be at least 1")
    width = 1 << min(most, size).bit_length()
    chances = checked_acceptance(tree, acceptance)
    table = children_table(tree, max_children=width)
    # The child is found by bisection; past the last one is a bound that no draw reaches.
    ends = jnp.where(
        table == PADDING, 1 << _DRAW_BITS, _threshold(smaller_rank_acceptance(tree, chances) + chances)[table]
    )
    stop = jnp.full(width, size + 1, jnp.int32)
    ends = jnp.append(ends.reshape(-1), jnp.full(width, 1 << _DRAW_BITS, jnp.int32))
    child_row = jnp.append(jnp.where(table == PADDING, size + 1, table + 1).reshape(-1), stop)

    def walk(block_key: Array, trials: int):
        def child(token: Array, level: Array) -> Array:
            draw = _draws(block_key, level, trials)
            place = token * width
            step = width // 2
            while step:
                passed = draw >= ends.at[place + (step - 1)].get(mode="promise_in_bounds")
                place = place + jnp.where(passed, step, 0)
                step //= 2
            return child_row.at[place].get(mode="promise_in_bounds")

        return child

    simulated = _simulate(walk, key, size, num_trials, chances.dtype)
    too_many = jnp.any(sibling_position(tree) >= most)
    refuse = lambda value: jnp.where(too_many, jnp.nan, value)
    return simulated._replace(mean=refuse(simulated.mean), standard_error=refuse(simulated.standard_error))


def _simulate(walk: _Walk, key: Array, size: int, num_trials: int, dtype: jnp.dtype) -> SimulatedTokens:
    """Count in how many trials a walk goes on to each level.

    Args:
        walk: from the key of a block and its trials to (rows, level) -> rows of the children. Row 0 is the root, and
            size + 1 the end.
    """
    if not 1 <= num_trials <= MAX_TRIALS:
        raise ValueError(f"num_trials is {num_trials}; allowed are 1 to {MAX_TRIALS}: add up several runs for more")
    size_of_block = _SHORT_BLOCK if num_trials < _LONG_BLOCK else _LONG_BLOCK
    trial = jnp.arange(size_of_block, dtype=jnp.int32)
    end = size + 1

    def block(i: Array, survivors: Array) -> Array:
        child = walk(jax.random.fold_in(key, i), size_of_block)
        goes_on = lambda carry: (carry[0] < size) & jnp.any(carry[1] != end)

        def descend(carry):
            level, row, counts = carry
            row = child(row, level)
            return level + 1, row, counts.at[level].add(jnp.sum(row != end, dtype=jnp.int32))

        row = jnp.where(trial < num_trials - i * size_of_block, 0, end).astype(jnp.int32)
        return jax.lax.while_loop(goes_on, descend, (jnp.int32(0), row, survivors))[2]

    blocks = -(-num_trials // size_of_block)
    survivors = jax.lax.fori_loop(jnp.int32(0), jnp.int32(blocks), block, jnp.zeros(size, jnp.int32))
    gained = jnp.sum(survivors.astype(dtype) / num_trials)
    # Trials that end at each depth are whole numbers, so that nothing is lost where nearly all end at one.
    ended = -jnp.diff(survivors, prepend=jnp.int32(num_trials), append=jnp.int32(0))
    variance = depth_spread(ended.astype(dtype) / num_trials, gained)
    error = jnp.sqrt(variance / (num_trials - 1)) if num_trials > 1 else jnp.full((), jnp.nan, dtype)
    return SimulatedTokens(mean=1 + gained, standard_error=error, survivors=survivors)


def _random_words(key: Array, rows: int, trials: int) -> UInt32[Array, "row trial"]:
    """Random bits, all words that the generator puts out: `jax.random.bits` folds each pair of them into one.

    Keys that are split off are the generator's plain output.
    """
    per_call = jax.random.key_data(key).shape[-1]
    calls = -(-rows * trials // per_call)
    words = jax.random.key_data(jax.random.split(key, calls))  # "call word"
    return jnp.concatenate([words[:, i] for i in range(per_call)])[: rows * trials].reshape(rows, trials)


def _draws(key: Array, number: Array, trials: int) -> Int32[Array, " trial"]:
    """Whole numbers below 2^24, all equally likely."""
    bits = _random_words(jax.random.fold_in(key, number), 1, trials)[0]
    return (bits >> jnp.uint32(32 - _DRAW_BITS)).astype(jnp.int32)


def _word_draws(key: Array, number: Array, trials: int) -> Int32[Array, "node trial"]:
    """Draws for the nodes of a word, from half the random bits.

    Each is a whole number below 2^24, all equally likely. The lower 8 bits are shared by the nodes of a trial: they decide
    only where the upper 16 equal those of the threshold, which for two nodes at once happens once in 2^32 trials.
    """
    bits = _random_words(jax.random.fold_in(key, number), _WORD // 2 + 1, trials)
    own, shared = bits[:-1], bits[-1:] & jnp.uint32(0xFF)
    upper = jnp.concatenate([own >> jnp.uint32(16), own & jnp.uint32(0xFFFF)])
    return ((upper << jnp.uint32(8)) | shared).astype(jnp.int32)


def _threshold(probability: Float[Array, "*b"]) -> Int32[Array, "*b"]:
    """Bound that a draw is below with this probability, to 2^-25; exactly at 0 and 1."""
    return jnp.round(jnp.clip(probability, 0.0, 1.0) * 2.0**_DRAW_BITS).astype(jnp.int32)


def _pack(bits: Array, *, axis: int) -> Array:
    """Words whose bit i is entry i along the axis."""
    shape = [1] * bits.ndim
    shape[axis] = _WORD
    place = jnp.arange(_WORD, dtype=jnp.uint32).reshape(shape)
    return jnp.sum(bits.astype(jnp.uint32) << place, axis=axis, dtype=jnp.uint32)
