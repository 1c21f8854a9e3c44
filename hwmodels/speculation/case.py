"""Everything that is priced, as one pytree."""

from __future__ import annotations

import dataclasses

import flax.struct

from hwmodels.device import Device
from hwmodels.network.architecture import Architecture
from hwmodels.network.footprint import UNCOMPRESSED_BITS, Footprint, uniform_footprint
from hwmodels.network.routing import UNIFORM, Routing
from hwmodels.network.workload import Workload
from hwmodels.speculation.draft_cost import COMPRESSED_COPY, DraftCost
from hwmodels.speculation.engine_terms import NO_ENGINE, EngineTerms
from hwmodels.speculation.pool import fitting_pool

__all__ = ["Case"]


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
    def pooled(self) -> Case:
        """The case with a number of experts that the draft chooses among, where the first memory decides it."""
        if not self.pool_fits:
            return self
        read = {"workload": self.workload, "footprint": self.footprint, "routing": self.routing}
        pool = fitting_pool(self.device, self.architecture, **read)
        return dataclasses.replace(self, draft=dataclasses.replace(self.draft, pool_experts=pool), pool_fits=False)
