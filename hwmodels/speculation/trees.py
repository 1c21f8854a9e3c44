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

from hwmodels.device import Device
from hwmodels.network.architecture import Architecture
from hwmodels.network.footprint import UNCOMPRESSED_BITS, Footprint, uniform_footprint
from hwmodels.network.operators import decode_step, draft_step, stack_steps, verify_step
from hwmodels.network.workload import Workload
from hwmodels.numerics.scalars import Number, as_float
from hwmodels.speculation.chains import CycleTime, cycle_time, tokens_per_cycle
from hwmodels.speculation.plan import ROOT, Acceptance, DraftPlan, node_depths
from hwmodels.step.step_time import work_time

__all__ = [
    "ROOT",
    "PlanSpeedup",
    "TreeShape",
    "expected_tree_tokens",
    "plan_cycle_time",
    "plan_speedup",
    "plan_tokens",
    "tree_cycle_time",
    "tree_shape",
]


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
    depth = node_depths(parent)
    parents = np.asarray(parent)
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
    node_depths(parent)  # refuses what is no tree
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
    draft_architecture: Architecture | None = None,
    temperature: Number = 0.0,
) -> CycleTime:
    """Time of one cycle of a tree: a draft step per depth, then one verification of all nodes and the root.

    Args:
        device, architecture, workload, footprint: leaves are single numbers; `vmap` for more.
        parent: static "node".
        draft_architecture: of a draft that is a network of its own, with its own KV, read at the footprint's draft widths;
            None: the draft is the target's own compressed copy.
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
    step_s = lambda network: lambda s: work_time(device, s.operators(network), temperature=temperature).total_s
    if draft_architecture is None:
        times = jax.vmap(step_s(architecture))(stack_steps(steps))
        draft_s, verify_s = jnp.sum(times[:-1]), times[-1]
    else:
        draft_s = jnp.sum(jax.vmap(step_s(draft_architecture))(stack_steps(steps[:-1])))
        verify_s = step_s(architecture)(steps[-1])
    return CycleTime(draft_step_s=draft_s / len(shape.expanded), verify_s=verify_s, total_s=draft_s + verify_s)


def plan_cycle_time(
    device: Device,
    architecture: Architecture,
    *,
    workload: Workload,
    footprint: Footprint,
    plan: DraftPlan,
    draft_architecture: Architecture | None = None,
    temperature: Number = 0.0,
) -> CycleTime:
    """Time of one cycle of a plan: `cycle_time` of a chain, `tree_cycle_time` of a tree.

    Args: as for these two.
    Raises:
        NotImplementedError: a chain drafted by a network of its own; make it a tree.
    """
    common = {"workload": workload, "footprint": footprint, "temperature": temperature}
    if plan.kind == "chain":
        if draft_architecture is not None:
            raise NotImplementedError("a chain with a draft_architecture of its own; use tree_plan([-1, 0, 1, ...])")
        return cycle_time(device, architecture, draft_length=plan.draft_length, **common)
    assert plan.parent is not None
    return tree_cycle_time(device, architecture, parent=plan.parent, draft_architecture=draft_architecture, **common)


def plan_tokens(acceptance: Acceptance, plan: DraftPlan) -> Float[Array, "*b"]:
    """Expected tokens per cycle of a plan.

    Args:
        acceptance: its field for the plan's kind, "*b position" or "*b node".
        plan: of a chain, with a draft length of at most as many positions, whole.
    Raises:
        ValueError: the acceptance has nothing on plans of this kind.
    """
    chances = acceptance.conditional if plan.kind == "chain" else acceptance.node
    if chances is None:
        field = "conditional" if plan.kind == "chain" else "node"
        raise ValueError(f"acceptance.{field} is None; a {plan.kind} needs it")
    if plan.kind == "tree":
        assert plan.parent is not None
        return expected_tree_tokens(plan.parent, chances)
    tokens = tokens_per_cycle(jnp.asarray(as_float(chances)))
    tokens = jnp.concatenate([jnp.ones_like(tokens[..., :1]), tokens], axis=-1)
    length = jnp.asarray(plan.draft_length).astype(jnp.int32)
    return jnp.take_along_axis(tokens, jnp.broadcast_to(length, tokens.shape[:-1])[..., None], axis=-1)[..., 0]


@flax.struct.dataclass
class PlanSpeedup:
    """A plan beside autoregressive decoding; leaves are "*b"."""

    tokens_per_cycle: Float[Array, "*b"]
    cycle: CycleTime
    speedup_vs_bf16_ar: Float[Array, "*b"]  # over the uncompressed 16-bit network
    speedup_vs_stored_ar: Float[Array, "*b"]  # over the network as it is stored, read at the target's widths


def plan_speedup(
    device: Device,
    architecture: Architecture,
    *,
    workload: Workload,
    footprint: Footprint,
    plan: DraftPlan,
    acceptance: Acceptance,
    draft_architecture: Architecture | None = None,
    temperature: Number = 0.0,
) -> PlanSpeedup:
    """Speedup of one plan over autoregressive decoding; below 1, not to speculate is the answer.

    Args: as for `plan_cycle_time` and `plan_tokens`; leaves are single numbers; `vmap` for more.
    Gradient: right for every input, with the kinks of the roofline at temperature 0.
    """
    cycle = plan_cycle_time(
        device,
        architecture,
        workload=workload,
        footprint=footprint,
        plan=plan,
        draft_architecture=draft_architecture,
        temperature=temperature,
    )
    steps = [decode_step(workload, footprint=f) for f in (uniform_footprint(UNCOMPRESSED_BITS), footprint)]
    ar_s = jax.vmap(lambda s: work_time(device, s.operators(architecture), temperature=temperature).total_s)(
        stack_steps(steps)
    )
    tokens = plan_tokens(acceptance, plan)
    return PlanSpeedup(
        tokens_per_cycle=tokens,
        cycle=cycle,
        speedup_vs_bf16_ar=ar_s[0] * tokens / cycle.total_s,
        speedup_vs_stored_ar=ar_s[1] * tokens / cycle.total_s,
    )
