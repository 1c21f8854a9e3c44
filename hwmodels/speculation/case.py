"""Everything that is priced as one pytree, and the price of a plan's cycles on it."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct

from hwmodels.device import Device
from hwmodels.network.architecture import Architecture
from hwmodels.network.footprint import UNCOMPRESSED_BITS, Footprint, uniform_footprint
from hwmodels.network.routing import UNIFORM, Routing
from hwmodels.network.workload import Workload
from hwmodels.numerics.scalars import Number
from hwmodels.speculation.cycle import CycleCost, price_cycle
from hwmodels.speculation.draft_cost import COMPRESSED_COPY, DraftCost
from hwmodels.speculation.engine_terms import NO_ENGINE, EngineTerms
from hwmodels.speculation.plan import Plan
from hwmodels.speculation.pool import fitting_pool

__all__ = ["Case", "price"]


@flax.struct.dataclass
class Case:
    """A device, a network and what runs on it; leaves are single numbers: `vmap` and `grad` take the whole case.

    Attributes:
        footprint: bits read of weights and KV; those of an uncompressed network unless given.
        draft: what a draft step runs; a compressed copy of the target unless given.
        routing: of the target's tokens among the architecture's experts.
        engine: what the engine spends on a cycle beside its kernels.
        pool_fits: static; the draft chooses among as many experts as the first memory has room for, whatever `draft` says.
    """

    device: Device
    architecture: Architecture
    workload: Workload
    footprint: Footprint = dataclasses.field(default_factory=lambda: uniform_footprint(UNCOMPRESSED_BITS))
    draft: DraftCost = COMPRESSED_COPY
    routing: Routing = UNIFORM
    engine: EngineTerms = NO_ENGINE
    pool_fits: bool = flax.struct.field(pytree_node=False, default=False)

    @property
    def steps(self) -> dict[str, Any]:
        """Keywords of functions that price steps of the device and the architecture: workload, footprint, draft, routing."""
        draft, read = self.draft, {"workload": self.workload, "footprint": self.footprint, "routing": self.routing}
        if self.pool_fits:
            draft = dataclasses.replace(draft, pool_experts=fitting_pool(self.device, self.architecture, **read))
        return read | {"draft_cost": draft}

    @property
    def parts(self) -> dict[str, Any]:
        """`steps`, and the engine: keywords of functions that price cycles."""
        return self.steps | {"engine": self.engine}


def price(case: Case, plan: Plan, *, temperature: Number = 0.0) -> CycleCost:
    """Cost of a plan's cycles, and of the autoregressive steps that they are compared with.

    Args:
        plan: of one cycle, or of a family.
        temperature: one number in [0, 1], of the smooth maximum; 0 is exact.
    Raises:
        ValueError: the footprint lacks a kind or names one that does not exist.
    Gradient: right for every leaf of the case, with the kinks of the roofline at temperature 0.
    """
    return price_cycle(case.device, case.architecture, plan=plan, temperature=temperature, **case.parts)
