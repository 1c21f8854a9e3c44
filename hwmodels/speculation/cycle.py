"""The one pricing path: draft-verify cycles of any plan, and the autoregressive decoding that they are compared with.

Source: Leviathan et al. 2023, arXiv:2211.17192, Sec. 3.3, with the draft's cost from the hardware model; Boosting the
    Performance of Tree-Based Speculative Decoding of LLMs on FPGAs, III-A: the target processes all tokens of a tree at once.
Departs: each draft step sees the same context; keys and values of uncommitted tokens are left out of its traffic. Sampling and
    the acceptance test cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.device import Device
from hwmodels.network.architecture import Architecture
from hwmodels.network.footprint import UNCOMPRESSED_BITS, Footprint, uniform_footprint
from hwmodels.network.operators import StepShape, decode_step, draft_step, verify_step
from hwmodels.network.workload import Workload
from hwmodels.numerics.scalars import Number, as_float
from hwmodels.speculation.draft_cost import DraftCost
from hwmodels.speculation.plan import Plan
from hwmodels.step.priced_steps import PricedStep, price_steps

__all__ = [
    "Baselines",
    "CycleCost",
    "PricedDecoding",
    "baseline_steps",
    "baselines",
    "plan_steps",
    "price_cycle",
    "price_decoding",
]


@flax.struct.dataclass
class CycleCost:
    """Cost of one draft-verify cycle, or of a family of them, "*b"."""

    draft: PricedStep  # one draft step of each kind, leaves "step ..."
    verify: PricedStep  # the verification, leaves "*b ..."
    draft_s: Float[Array, "*b"]  # all draft steps of the cycle
    verify_s: Float[Array, "*b"]
    energy_j: Float[Array, "*b"] | None  # of all steps; None where the device's energy is not known

    @property
    def total_s(self) -> Float[Array, "*b"]:
        """Time of the cycle: its draft steps, then the verification."""
        return self.draft_s + self.verify_s


@flax.struct.dataclass
class Baselines:
    """One step of autoregressive decoding of all sequences together."""

    bf16: PricedStep  # of the uncompressed 16-bit network
    stored: PricedStep  # of the network as it is stored, read at the target's widths


@flax.struct.dataclass
class PricedDecoding:
    """A cycle and what it is compared with."""

    cycle: CycleCost
    baselines: Baselines


def price_cycle(
    device: Device,
    architecture: Architecture,
    *,
    footprint: Footprint,
    draft_cost: DraftCost,
    workload: Workload,
    plan: Plan,
    temperature: Number = 0.0,
) -> CycleCost:
    """Price the cycles of a plan.

    Args:
        device, architecture, footprint, draft_cost, workload: leaves are single numbers; `vmap` for more.
        footprint: a draft with an architecture of its own is read at the draft's widths too, with a KV cache of its own.
        plan: of one cycle, or of a family.
        temperature: one number in [0, 1], of the smooth maximum; 0 is exact.
    Raises:
        ValueError: the footprint lacks a kind or names one that does not exist.
    Gradient: right for every input, with the kinks of the roofline at temperature 0.
    """
    return _priced(device, architecture, (), footprint, draft_cost, workload, plan, temperature)[0]


def baselines(
    device: Device,
    architecture: Architecture,
    *,
    footprint: Footprint,
    workload: Workload,
    temperature: Number = 0.0,
) -> Baselines:
    """Price autoregressive decoding, in 16 bits and as stored. Arguments: `price_cycle`."""
    steps = baseline_steps(workload, footprint)
    return Baselines(*price_steps(device, architecture, steps, temperature=temperature))


def price_decoding(
    device: Device,
    architecture: Architecture,
    *,
    footprint: Footprint,
    draft_cost: DraftCost,
    workload: Workload,
    plan: Plan,
    temperature: Number = 0.0,
) -> PricedDecoding:
    """`price_cycle` and `baselines` through one map, which compiles once and runs together. Arguments: `price_cycle`."""
    steps = baseline_steps(workload, footprint)
    cycle, found = _priced(device, architecture, steps, footprint, draft_cost, workload, plan, temperature)
    return PricedDecoding(cycle=cycle, baselines=Baselines(*found))


def baseline_steps(workload: Workload, footprint: Footprint) -> tuple[StepShape, StepShape]:
    """A step of autoregressive decoding in 16 bits, and one of what is stored."""
    return (
        decode_step(workload, footprint=uniform_footprint(UNCOMPRESSED_BITS)),
        decode_step(workload, footprint=footprint),
    )


def plan_steps(workload: Workload, footprint: Footprint, plan: Plan) -> tuple[StepShape, StepShape]:
    """The draft steps of a plan, leaves "step" or single numbers, and its verifications, "*b"."""
    return (
        draft_step(workload, footprint=footprint, tokens=plan.draft_tokens, visible_new_tokens=plan.draft_visible),
        verify_step(
            workload, footprint=footprint, verify_tokens=plan.verify_tokens, visible_new_tokens=plan.verify_visible
        ),
    )


def _priced(
    device: Device,
    architecture: Architecture,
    besides: Sequence[StepShape],
    footprint: Footprint,
    draft_cost: DraftCost,
    workload: Workload,
    plan: Plan,
    temperature: Number,
) -> tuple[CycleCost, list[PricedStep]]:
    """The plan's cycles, and other steps of the target in the same map."""
    draft_steps, verify_steps = plan_steps(workload, footprint, plan)
    if draft_cost.architecture is None:
        *others, draft, verify = price_steps(
            device, architecture, [*besides, draft_steps, verify_steps], temperature=temperature
        )
    else:
        *others, verify = price_steps(device, architecture, [*besides, verify_steps], temperature=temperature)
        (draft,) = price_steps(device, draft_cost.architecture, [draft_steps], temperature=temperature)
    runs = jnp.asarray(as_float(plan.draft_repeats)) * jnp.asarray(as_float(draft_cost.passes))[..., None]
    energy_j = None
    if draft.cost.energy is not None and verify.cost.energy is not None:
        energy_j = jnp.sum(runs * draft.cost.energy.total_j, axis=-1) + verify.cost.energy.total_j
    cycle = CycleCost(
        draft=draft,
        verify=verify,
        draft_s=jnp.sum(runs * draft.cost.total_s, axis=-1),
        verify_s=verify.cost.total_s,
        energy_j=energy_j,
    )
    return cycle, others
