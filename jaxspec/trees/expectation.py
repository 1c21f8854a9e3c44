"""Exact gain of a tree per cycle: the nodes that are reached, and the mean and variance of the tokens.

At most one child of a parent is accepted. A table accept[depth, rank] says with which probability it is the one of that
rank, given that the parent is accepted; what a row leaves to 1 is the probability that the cycle ends there.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxspec.trees.masks import ancestor_steps
from jaxspec.trees.topology import Tree, is_node, one_tree, ranked_before

__all__ = [
    "checked_acceptance",
    "depth_spread",
    "depth_survival",
    "expected_tokens",
    "node_acceptance",
    "node_draw_probability",
    "reach_probability",
    "smaller_rank_acceptance",
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
