"""Many trees on many chances in one call: simulated tokens per cycle beside their exact expectation.

A grid has one cell for each tree, context length and task. All trials of all cells are drawn by one compiled function.

Source: Boosting the Performance of Tree-Based Speculative Decoding of LLMs on FPGAs, IV-C (tasks; one curve for all of them is
    `hwmodels.speculation.verification_length.geometric_mean_tokens`) and IV-D (context lengths).
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from jaxspec.trees.expectation import expected_tokens, node_acceptance, tokens_variance
from jaxspec.trees.simulation import simulate_nodes, simulate_walks
from jaxspec.trees.topology import Tree

__all__ = ["GridTokens", "simulate_grid"]


class GridTokens(NamedTuple):
    """Tokens per cycle of each cell, the bonus token included.

    Attributes:
        mean: of the trials.
        standard_error: of the mean, from the trials; NaN for a single one.
        expected: exactly, by the sum over nodes.
        z_score: mean minus expectation over the exact standard error of the mean, but no less than one trial's weight, so that
            it is finite where every trial ends alike. Normal with deviation 1 if all is right.
    """

    mean: Float[Array, "tree context task"]
    standard_error: Float[Array, "tree context task"]
    expected: Float[Array, "tree context task"]
    z_score: Float[Array, "tree context task"]


@partial(jax.jit, static_argnames=("num_trials", "each_node", "max_children", "cells_at_once"))
def simulate_grid(
    trees: Tree,
    tables: Float[Array, "context task depth rank"],
    key: Key[Array, ""],
    *,
    num_trials: int,
    each_node: bool = False,
    max_children: int | None = None,
    cells_at_once: int = 16,
) -> GridTokens:
    """Simulate every tree on every table.

    Args:
        trees: along one leading axis, as from `stack_trees`.
        tables: P(child of a rank accepted | parent accepted) by depth and rank, in [0, 1]; rows sum to at most 1. A tree beyond
            a table's ends is not accepted there.
        key: typed; a cell's result depends on it and on the cell's place, not on the grid's size or `cells_at_once`.
        num_trials: static, of each cell, as for `simulate_walks`.
        each_node: draw for each node (`simulate_nodes`), not for each level (`simulate_walks`); slower, of the same law.
        max_children: static; children of one node at most (see `most_children`), which makes walks faster; NaN where a tree has
            more. Not used with `each_node`.
        cells_at_once: static; cells whose trials are in memory together. Some 10 MB each.
    Raises:
        ValueError: not a stack of trees, tables without four axes, or a number out of range.
    """
    if jnp.ndim(trees.parent) != 2:
        raise ValueError(f"parent has shape {jnp.shape(trees.parent)}; stack the trees along one axis with stack_trees")
    if jnp.ndim(tables) != 4 or 0 in tables.shape:
        raise ValueError(f"tables have shape {jnp.shape(tables)}; their axes are context, task, depth and rank")
    if cells_at_once < 1:
        raise ValueError(f"cells_at_once is {cells_at_once}; it must be at least 1")
    if each_node:
        simulate = partial(simulate_nodes, num_trials=num_trials)
    else:
        simulate = partial(simulate_walks, num_trials=num_trials, max_children=max_children)

    def cell(place: tuple[Array, Array, Array]) -> GridTokens:
        number, context, task = place
        tree = jax.tree.map(lambda leaf: leaf[number], trees)
        chances = node_acceptance(tree, tables[context, task])
        own_key = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, number), context), task)
        drawn = simulate(tree, chances, own_key)
        expected = expected_tokens(tree, chances)
        # Rounding may leave a variance of nothing a little below 0.
        error = jnp.sqrt(jnp.maximum(tokens_variance(tree, chances), 0.0) / num_trials)
        z_score = (drawn.mean - expected) / jnp.maximum(error, 1 / num_trials)
        return GridTokens(drawn.mean, drawn.standard_error, expected, z_score)

    shape = (trees.parent.shape[0], *tables.shape[:2])
    cells = math.prod(shape)
    at_once = min(cells_at_once, cells)
    # Whole chunks, of which the last may repeat the last cell, so that one size is compiled.
    number = jnp.minimum(jnp.arange(-(-cells // at_once) * at_once, dtype=jnp.int32), cells - 1)
    cells_of_all = jax.lax.map(cell, jnp.unravel_index(number, shape), batch_size=at_once)
    return jax.tree.map(lambda leaf: leaf[:cells].reshape(shape), cells_of_all)
