"""Draft trees: expected tokens of a cycle and its time, for any topology.

A tree is an array `parent`: node i was drafted after node parent[i], or after the last committed token where that is `ROOT`.
Parents come before their children, so nodes are numbered from 0 in an order in which they can be drafted.
"""

from __future__ import annotations

from collections.abc import Sequence

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from hwmodels.architecture import Architecture
from hwmodels.device import Device
from hwmodels.interface import Footprint, Workload
from hwmodels.operators import draft_step, stack_steps, verify_step
from hwmodels.scalars import Number, as_float
from hwmodels.speculation import CycleTime
from hwmodels.step import work_time

__all__ = ["ROOT", "TreeShape", "expected_tree_tokens", "tree_cycle_time", "tree_shape"]

#: Parent of a node that follows the last committed token.
ROOT = -1


@flax.struct.dataclass
class TreeShape:
    """What a topology costs, as numbers.

    The draft first runs on the committed token, then once for each depth on the nodes that have children.
    """

    depth: Int[np.ndarray, " node"]  # 1 for children of the root
    expanded: Int[np.ndarray, " step"]  # tokens of each draft step: 1, then inner nodes of depth 1, 2, ...
    visible_tokens: Float[np.ndarray, ""]  # new tokens that a verified one sees on average, root included


def tree_shape(parent: Sequence[int] | Int[np.ndarray, " node"]) -> TreeShape:
    """Depths and draft steps of a tree, on the host.

    Args:
        parent: "node", each `ROOT` or an earlier node.
    Raises:
        ValueError: no node, or a parent that is not an earlier one.
    """
    parents = np.asarray(parent)
    if parents.ndim != 1 or parents.size == 0 or not np.issubdtype(parents.dtype, np.integer):
        raise ValueError(f"parent is {parent!r}; it must be a list of one or more whole numbers: {ROOT} is the root")
    depth = np.zeros(parents.size, np.int64)
    for node, above in enumerate(parents):
        if not ROOT <= above < node:
            raise ValueError(
                f"parent[{node}] is {above}; allowed are {ROOT} (the root) to {node - 1}: number parents first"
            )
        depth[node] = 1 + (depth[above] if above != ROOT else 0)
    inner = np.unique(parents[parents != ROOT])
    expanded = np.bincount(depth[inner], minlength=int(depth.max()))[1 : int(depth.max())]
    return TreeShape(
        depth=depth,
        expanded=np.concatenate([[1], expanded]),
        visible_tokens=np.asarray((1 + np.sum(depth + 1)) / (parents.size + 1)),
    )


def expected_tree_tokens(
    parent: Sequence[int] | Int[np.ndarray, " node"], node_acceptance: Float[Array, "*b node"]
) -> Float[Array, "*b"]:
    """Expected tokens per cycle: 1 plus, for each node, the probability that it and all above it are accepted.

    Args:
        parent: static "node".
        node_acceptance: "*b node", in [0, 1]; P(node accepted | its parent accepted). At most one child of a parent is
            accepted, so that those of siblings sum to at most 1.
    Raises:
        ValueError: a parent that is not an earlier node, or another number of nodes.
    """
    tree_shape(parent)
    chances = jnp.asarray(as_float(node_acceptance))
    if chances.ndim == 0 or chances.shape[-1] != len(parent):
        raise ValueError(f"node_acceptance has shape {chances.shape}; its last axis must be the {len(parent)} nodes")
    reached: list[Array] = []
    for node, above in enumerate(np.asarray(parent).tolist()):
        reached.append(chances[..., node] * (reached[above] if above != ROOT else 1.0))
    return 1.0 + jnp.sum(jnp.stack(reached, axis=-1), axis=-1)


def tree_cycle_time(
    device: Device,
    architecture: Architecture,
    *,
    workload: Workload,
    footprint: Footprint,
    parent: Sequence[int] | Int[np.ndarray, " node"],
    temperature: Number = 0.0,
) -> CycleTime:
    """Time of one cycle of a tree: a draft step per depth, then one verification of all nodes and the root.

    Args:
        device, architecture, workload, footprint: leaves are single numbers; `vmap` for more.
        parent: static "node".
        temperature: one number in [0, 1], of the smooth maximum; 0 is exact.
    Returns:
        `draft_step_s` is the mean over draft steps. A chain costs what `cycle_time` says.
    Raises:
        ValueError: a parent that is not an earlier node.
    Source: Boosting the Performance of Tree-Based Speculative Decoding of LLMs on FPGAs, III-A: the target processes all x
        tokens of a tree at once.
    Departs: as `cycle_time`. Keys and values of nodes of earlier draft steps are left out of the draft's traffic.
    """
    shape = tree_shape(parent)
    nodes = float(len(shape.depth))
    steps = [
        draft_step(workload, footprint=footprint, tokens=float(count), visible_new_tokens=1.0)
        for count in shape.expanded
    ]
    visible = float(shape.visible_tokens)
    steps.append(verify_step(workload, footprint=footprint, verify_tokens=nodes + 1.0, visible_new_tokens=visible))
    times = jax.vmap(lambda s: work_time(device, s.operators(architecture), temperature=temperature).total_s)(
        stack_steps(steps)
    )
    draft_s = jnp.sum(times[:-1])
    return CycleTime(draft_step_s=draft_s / len(shape.expanded), verify_s=times[-1], total_s=draft_s + times[-1])
