"""Which number of the hardware matters: elasticities of a result by every leaf it depends on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.numerics.scalars import as_float

__all__ = ["changed_trees", "changes_by_name", "elasticities", "finite_elasticities", "leaf_names"]

Tree = TypeVar("Tree")

#: By how much a number of a step function is changed, up and down.
CHANGE = 0.1


def leaf_names(tree: Any) -> list[str]:
    """Names of a tree's leaves in order, as in "memory.bandwidth_bytes_per_s" or "spill.0.capacity_bytes"."""
    return [_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def elasticities(metrics: Callable[[Tree], Any], tree: Tree) -> Any:
    """d log(metric) / d log(leaf) for every leaf: by how many percent a metric grows if a number grows by one percent.

    Args:
        metrics: tree -> positive numbers in any form, one number or a dictionary of them; pure, differentiable.
        tree: leaves are single numbers, a Device for instance.
    Returns:
        in the form of `metrics`: name of the leaf -> elasticity; 0 where the metric does not depend on the leaf, and where
        the leaf is 0 or infinite.
    Gradient: itself of the metrics; where one has a kink, a value between the slopes of both sides.
    """
    leaves, treedef = jax.tree.flatten(tree)
    values = [jnp.asarray(as_float(leaf)) for leaf in leaves]
    names = leaf_names(tree)

    def log_metrics(values: list[Array]) -> Any:
        return jax.tree.map(jnp.log, metrics(treedef.unflatten(values)))

    jacobian = jax.jacrev(log_metrics)(values)

    def by_name(gradient: list[Array]) -> dict[str, Float[Array, ""]]:
        # An infinite leaf ("no limit") has elasticity 0, not infinity times zero.
        products = [jnp.where(jnp.isfinite(v), v * g, 0.0) for v, g in zip(values, gradient, strict=True)]
        return dict(zip(names, products, strict=True))

    return jax.tree.map(by_name, jacobian, is_leaf=lambda node: isinstance(node, list))


def finite_elasticities(
    metrics: Callable[[Tree], Any], tree: Tree, *, names: Sequence[str], change: float = CHANGE
) -> Any:
    """Elasticities of numbers that a derivative says nothing of, such as the sides of an array: tiles are counted in steps.

    log(metric at leaf * (1 + change) / metric at leaf / (1 + change)) / (2 log(1 + change)).

    Args:
        metrics: as `elasticities` takes it; need not be differentiable.
        tree: leaves are single numbers.
        names: static; of the leaves that are changed, as `leaf_names` has them.
        change: static, > 0.
    Returns:
        in the form of `metrics`: name of the leaf -> elasticity.
    """
    logs = jax.vmap(lambda changed: jax.tree.map(jnp.log, metrics(changed)))(changed_trees(tree, names, change))
    return changes_by_name(logs, names, change)


def changed_trees(tree: Tree, names: Sequence[str], change: float = CHANGE) -> Tree:
    """The trees that `finite_elasticities` asks for, leaves "two": each named leaf grown, then shrunk, one at a time."""
    leaves, treedef = jax.tree.flatten(tree)
    known = leaf_names(tree)
    factors = np.ones((len(leaves), 2 * len(names)), np.float32)
    for place, name in enumerate(names):
        factors[known.index(name), 2 * place : 2 * place + 2] = 1.0 + change, 1.0 / (1.0 + change)
    return treedef.unflatten([as_float(leaf) * row for leaf, row in zip(leaves, factors, strict=True)])


def changes_by_name(logs: Any, names: Sequence[str], change: float = CHANGE) -> Any:
    """Elasticities from logarithms of metrics on `changed_trees`, "two": in their form, name of the leaf -> elasticity."""
    step = 2.0 * math.log1p(change)
    return jax.tree.map(lambda each: dict(zip(names, (each[::2] - each[1::2]) / step, strict=True)), logs)


def _name(path: tuple[Any, ...]) -> str:
    return ".".join(str(getattr(key, "name", getattr(key, "idx", getattr(key, "key", key)))) for key in path)
