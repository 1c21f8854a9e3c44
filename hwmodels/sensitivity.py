"""Which number of the hardware matters: elasticities of a result by every leaf it depends on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.scalars import as_float

__all__ = ["elasticities", "leaf_names"]

Tree = TypeVar("Tree")


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


def _name(path: tuple[Any, ...]) -> str:
    return ".".join(str(getattr(key, "name", getattr(key, "idx", getattr(key, "key", key)))) for key in path)
