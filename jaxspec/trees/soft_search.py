"""Search for draft trees by gradient: of every size at once, or of the best tokens per price, whatever its size.

* For every size n, a threshold on the logits makes the inclusions sum to n, whatever the logits are, so that all of the
  gradient goes into which nodes these are.
* At a price, log tokens − log time is maximized, the time of any differentiable function of the soft verification length and
  the soft depth. The size is found by the gradient too.

Each step is one of Adam at a lower temperature than the last; what is returned are trees of whole nodes.

Source: own; see `soft_trees` for the relaxation. The problem of every size: Boosting the Performance of Tree-Based Speculative
    Decoding of LLMs on FPGAs, III-C; the price: Eq. (7).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from hwmodels.numerics.exact_products import exact_matmul
from jaxspec.trees.ranked_tree import RankedTree
from jaxspec.trees.searches import prior_score_growth
from jaxspec.trees.soft_trees import NodePaths, Price, log_rate, node_paths, sized_inclusion, soft_inclusion

__all__ = ["PricedTree", "SizedTrees", "search_sizes", "search_with_price"]


@dataclasses.dataclass(frozen=True)
class SizedTrees:
    """Best trees of 1, 2, ... nodes.

    Attributes:
        trees: of each size, nodes by falling inclusion. They need not contain each other.
        expected_tokens: of the trees, by the reach that was searched with.
        inclusion: at the end, from which the trees were cut.
        history: soft expected tokens before each step.
    """

    trees: tuple[RankedTree, ...]
    expected_tokens: Float[np.ndarray, " size"]
    inclusion: Float[np.ndarray, "size node"]
    history: Float[np.ndarray, "step size"]


@dataclasses.dataclass(frozen=True)
class PricedTree:
    """The tree of the best price, and how the search went.

    Attributes:
        tree: nodes by falling inclusion; may be empty, where drafting does not pay.
        expected_tokens: per cycle of this tree.
        price: of a cycle with this tree.
        inclusion: at the end of the start that led to it.
        history: log tokens − log price, both soft, before each step from each start.
        verification_length: soft, likewise.
    """

    tree: RankedTree
    expected_tokens: float
    price: float
    inclusion: Float[np.ndarray, " node"]
    history: Float[np.ndarray, "step start"]
    verification_length: Float[np.ndarray, "step start"]


def _temperatures(ends: tuple[float, float], steps: int) -> Float[Array, " step"]:
    """Falling by the same factor in every step."""
    if not (ends[0] >= ends[1] > 0 and steps >= 1):
        raise ValueError(
            f"temperatures are {ends} and steps {steps}; go from a larger to a smaller one above 0, in 1 or more"
        )
    return jnp.asarray(np.geomspace(*ends, steps), jnp.result_type(float))


def _checked_reach(tree: RankedTree, reach: ArrayLike) -> Float[Array, " node"]:
    chances = jnp.asarray(reach, jnp.result_type(float))
    if chances.shape != np.shape(tree.parent) or not bool(jnp.all((chances >= 0) & (chances <= 1))):
        raise ValueError(
            f"reach has shape {chances.shape}; give a chance from 0 to 1 for each of {np.size(tree.parent)} nodes"
        )
    return chances


def _ascend(
    objective: Callable[[Array, Array], tuple[Array, Any]], logits: Array, temperatures: Array, learning_rate: float
) -> tuple[Array, Any]:
    """Logits after Adam's steps at falling temperatures, and the objective's auxiliary results, by step."""
    optimizer = optax.adam(learning_rate)

    def step(carry, temperature):
        logits, state = carry
        slopes, aux = jax.grad(objective, has_aux=True)(logits, temperature)
        updates, state = optimizer.update(jax.tree.map(jnp.negative, slopes), state, logits)
        return (cast(Array, optax.apply_updates(logits, updates)), state), aux

    (logits, _), history = jax.lax.scan(step, (logits, optimizer.init(logits)), temperatures)
    return logits, history


def search_sizes(
    tree: RankedTree,
    reach: Float[ArrayLike, " node"],
    *,
    max_nodes: int,
    steps: int = 200,
    learning_rate: float = 0.1,
    temperatures: tuple[float, float] = (1.0, 0.1),
) -> SizedTrees:
    """The best tree of 1, 2, ..., max_nodes nodes by gradient, all sizes at once.

    Args:
        tree: the maximal tree, static; its nodes are all there are to choose from.
        reach: "node", in [0, 1], P(node and all above it accepted): `simulation.reach_probability`, or `node_reach` of traces.
        max_nodes: 1 to the nodes there are.
        temperatures: at the first and at the last step, falling by the same factor in each.
    Raises:
        ValueError: a malformed tree, reach that is not one chance per node, or a number out of range.
    """
    paths, chances = node_paths(tree), _checked_reach(tree, reach)
    if not 1 <= max_nodes <= chances.size:
        raise ValueError(f"max_nodes is {max_nodes}; the maximal tree allows 1 to {chances.size}")
    searched = _run_sizes(paths, chances, _temperatures(temperatures, steps), learning_rate, max_nodes=max_nodes)
    included, history = map(np.asarray, searched)
    orders = [_order(paths, row) for row in included]
    trees = tuple(_cut(tree, order, n) for n, order in enumerate(orders, 1))
    tokens = np.array([1 + np.asarray(chances)[order[:n]].sum() for n, order in enumerate(orders, 1)])
    return SizedTrees(trees, tokens, included, history)


@partial(jax.jit, static_argnames="max_nodes")
def _run_sizes(
    paths: NodePaths, chances: Array, temperatures: Array, learning_rate: float, *, max_nodes: int
) -> tuple[Array, Array]:
    sizes = jnp.arange(1, max_nodes + 1).astype(chances.dtype)
    of_size = lambda logits, size, temperature: sized_inclusion(paths, logits, size, temperature=temperature)
    inclusion = jax.vmap(of_size, in_axes=(0, 0, None))

    def objective(logits: Array, temperature: Array) -> tuple[Array, Array]:
        tokens = 1 + exact_matmul(inclusion(logits, sizes, temperature), chances)
        return jnp.sum(tokens), tokens

    start = jnp.zeros((max_nodes, chances.size), chances.dtype)
    logits, history = _ascend(objective, start, temperatures, learning_rate)
    return inclusion(logits, sizes, temperatures[-1]), history


def search_with_price(
    tree: RankedTree,
    reach: Float[ArrayLike, " node"],
    price: Price,
    *,
    steps: int = 300,
    learning_rate: float = 0.1,
    temperatures: tuple[float, float] = (1.0, 0.1),
    starts: Sequence[float] = (-1.0, 1.0, 3.0),
) -> PricedTree:
    """The tree with the most tokens per price by gradient, its size and depth among what is sought.

    Args:
        tree, reach, temperatures: as for `search_sizes`.
        price: of a cycle, > 0, from the verification length (root included) and the depth, as soft numbers; differentiable.
            Compiled anew for each function.
        starts: logits of all nodes at the start of each try; the best tree of all is returned. A roofline's corner and a cost
            per level make several valleys.
    Raises:
        ValueError: as `search_sizes`, or no start.
    """
    paths, chances = node_paths(tree), _checked_reach(tree, reach)
    if not starts:
        raise ValueError("there is no start; give one logit or more, as 0 for inclusions of a half")
    logits = jnp.asarray(list(starts), chances.dtype)
    searched = _run_priced(paths, chances, logits, _temperatures(temperatures, steps), learning_rate, price=price)
    included, (rates, lengths) = jax.device_get(searched)
    candidates = []
    for row in included:
        order = _order(paths, row)
        soft_size = float(row.sum())
        # Near a corner of the price a node more or less matters, and inclusions need not be all 0 or 1.
        for size in {0, int(np.sum(_connected(paths, row) > 0.5)), math.floor(soft_size), math.ceil(soft_size)}:
            kept = order[:size]
            depth = int(paths.level[kept].max(initial=-1)) + 1
            tokens = 1 + float(np.asarray(chances)[kept].sum())
            cost = float(price(jnp.asarray(1.0 + kept.size), jnp.asarray(float(depth))))
            candidates.append(PricedTree(_cut(tree, order, kept.size), tokens, cost, row, rates, lengths))
    return max(candidates, key=lambda one: one.expected_tokens / one.price)


@partial(jax.jit, static_argnames="price")
def _run_priced(
    paths: NodePaths, chances: Array, starts: Array, temperatures: Array, learning_rate: float, *, price: Price
) -> tuple[Array, tuple[Array, Array]]:
    one = lambda logits, temperature: log_rate(paths, logits, chances, price, temperature=temperature)

    def objective(logits: Array, temperature: Array) -> tuple[Array, tuple[Array, Array]]:
        rate, length = jax.vmap(one, in_axes=(0, None))(logits, temperature)
        return jnp.sum(rate), (rate, length)

    start = jnp.broadcast_to(starts[:, None], (starts.size, chances.size))
    logits, history = _ascend(objective, start, temperatures, learning_rate)
    return soft_inclusion(paths, logits, temperature=temperatures[-1]), history


def _connected(paths: NodePaths, inclusion: Float[np.ndarray, " node"]) -> Float[np.ndarray, " node"]:
    """Inclusions without the rounding that may lift a child above its parent."""
    return np.append(inclusion, 1.0)[paths.ancestors].min(axis=1)


def _order(paths: NodePaths, inclusion: Float[np.ndarray, " node"]) -> Int[np.ndarray, " node"]:
    """Nodes by falling inclusion, parents first."""
    return np.argsort(-_connected(paths, inclusion), kind="stable")


def _cut(tree: RankedTree, order: Int[np.ndarray, " node"], num_nodes: int) -> RankedTree:
    """The first nodes of an order in which parents come first."""
    grown = prior_score_growth(tree, -np.argsort(order))
    return grown.first(num_nodes)
