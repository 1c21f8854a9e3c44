"""Inclusion of each node of a maximal tree as a number: a tree that gradients can change.

Every node has a logit. Its inclusion is the product of sigmoids along its path, at most that of its parent, so that cutting
the inclusions at any level leaves a tree. Expected tokens are 1 + Σ inclusion · reach, linear in the inclusions, where reach is
the chance that a node and all above it are accepted, from a table or from traces. As the temperature falls, inclusions go to
0 and 1, and what is computed from them to that of the tree they leave.

Source: own. Relaxed choice by sigmoids of logits over a falling temperature as in Maddison et al., arXiv:1611.00712, without
    their noise. Effective performance AAT(x) / (T_v(x) + T_d(x)): Boosting the Performance of Tree-Based Speculative Decoding
    of LLMs on FPGAs, Eq. (7).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from hwmodels.numerics.exact_products import exact_matmul
from jaxspec.trees.ranked_tree import RankedTree
from jaxspec.trees.topology import ROOT, node_depths

__all__ = ["NodePaths", "Price", "log_rate", "node_paths", "sized_inclusion", "soft_depth", "soft_inclusion"]

#: Seconds, or any other cost, of a cycle: a differentiable function of verification length and depth, both soft.
Price: TypeAlias = Callable[[Float[Array, ""], Float[Array, ""]], Float[Array, ""]]

#: Halvings of the interval in which the threshold lies; a Newton step follows.
_HALVINGS = 24

#: Sigmoids this far from 0 are 0 or 1 in float32.
_FAR = 30.0


class NodePaths(NamedTuple):
    """A tree as gradients need it: whole numbers, on the host or the device.

    Attributes:
        ancestors: nodes on the way to each node, itself included, then the number of nodes.
        level: depth of each node, from 0 for children of the root.
    """

    ancestors: Int[Array | np.ndarray, "node level"]
    level: Int[Array | np.ndarray, " node"]


def node_paths(tree: RankedTree) -> NodePaths:
    """The ancestors and levels of a tree of one node or more, on the host.

    Raises:
        ValueError: no node, or a parent that is not an earlier node.
    """
    parent = np.asarray(tree.parent)
    if parent.ndim != 1 or not parent.size:
        raise ValueError(f"parent has shape {parent.shape}; give one whole number for each of one or more nodes")
    level = node_depths(parent) - 1
    ancestors = np.full((parent.size, int(level.max()) + 1), parent.size, np.int64)
    for node, above in enumerate(parent.tolist()):
        if above != ROOT:
            ancestors[node] = ancestors[above]
        ancestors[node, level[node]] = node
    return NodePaths(ancestors.astype(np.int32), level.astype(np.int32))


def soft_inclusion(
    paths: NodePaths, logits: Float[Array, "*b node"], *, temperature: Float[ArrayLike, ""]
) -> Float[Array, "*b node"]:
    """Inclusion of each node: the product of the sigmoids of logit / temperature along its path.

    Args:
        temperature: > 0; at small ones nodes are in whose path has only positive logits.
    """
    log_own = jax.nn.log_sigmoid(logits / temperature)
    log_own = jnp.concatenate([log_own, jnp.zeros_like(log_own[..., :1])], axis=-1)
    return jnp.exp(jnp.sum(log_own[..., paths.ancestors], axis=-1))


def sized_inclusion(
    paths: NodePaths,
    logits: Float[Array, " node"],
    num_nodes: Float[ArrayLike, ""],
    *,
    temperature: Float[ArrayLike, ""],
) -> Float[Array, " node"]:
    """The inclusion with a threshold on all logits such that it sums to a number of nodes.

    Args:
        num_nodes: above 0, and at most the nodes there are; need not be whole. `vmap` over several.
        temperature: > 0.
    Returns:
        "node". Its gradient in the logits is that of the threshold too: it sums to 0 over the nodes.
    """
    size = logits.shape[-1]
    count = lambda threshold: jnp.sum(soft_inclusion(paths, logits - threshold, temperature=temperature))
    far = jnp.asarray(_FAR * temperature, logits.dtype)

    def halve(_, interval):
        low, high = interval
        middle = (low + high) / 2
        too_many = count(middle) > num_nodes
        return jnp.where(too_many, middle, low), jnp.where(too_many, high, middle)

    interval = jnp.min(logits) - far, jnp.max(logits) + far
    low, high = jax.lax.fori_loop(0, _HALVINGS, halve, jax.lax.stop_gradient(interval))
    threshold = jax.lax.stop_gradient((low + high) / 2)
    # One Newton step: exact to second order, and it carries the gradient of the implicit threshold.
    slope = jax.lax.stop_gradient(jax.grad(count)(threshold))
    step = (count(threshold) - num_nodes) / jnp.where(slope < 0, slope, -1.0)
    # Where nearly all nodes are in, the count hardly depends on the threshold, and the step is not to be trusted.
    step = jnp.where(jnp.abs(jax.lax.stop_gradient(step)) <= far / _FAR, step, 0.0)
    inclusion = soft_inclusion(paths, logits - (threshold - step), temperature=temperature)
    return jnp.where(jnp.asarray(num_nodes) >= size, jnp.ones_like(inclusion), inclusion)


def soft_depth(paths: NodePaths, inclusion: Float[Array, "*b node"]) -> Float[Array, "*b"]:
    """Levels of the tree: the sum over levels of the largest inclusion there.

    Exact for inclusions of 0 and 1. Kinks where two nodes of a level are the most included; the gradient is shared there.
    """
    at_level = (
        jnp.asarray(paths.level, jnp.int32)[None, :] == jnp.arange(paths.ancestors.shape[1], dtype=jnp.int32)[:, None]
    )
    levels = inclusion[..., None, :]
    return jnp.sum(jnp.max(jnp.where(jax.lax.broadcast_to_rank(at_level, levels.ndim), levels, 0.0), axis=-1), axis=-1)


def log_rate(
    paths: NodePaths,
    logits: Float[Array, " node"],
    reach: Float[Array, " node"],
    price: Price,
    *,
    temperature: Float[ArrayLike, ""],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Log of soft tokens per cycle over the price of a cycle, differentiable, and the soft verification length.

    For a tuning that moves more than the tree, as the hardware that the price depends on.
    """
    inclusion = soft_inclusion(paths, logits, temperature=temperature)
    length = 1 + jnp.sum(inclusion)
    return jnp.log1p(exact_matmul(inclusion, reach)) - jnp.log(price(length, soft_depth(paths, inclusion))), length
