"""One placement for autoregressive decoding, another one for draft-verify cycles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.device import MemoryTier
from hwmodels.memory.placement.expert_cache import BitSlices, ExpertCache
from hwmodels.memory.placement.interface import PlacementPolicy, TierShares, expert_reads
from hwmodels.memory.placement.registry import SINGLE_PLACEMENTS
from hwmodels.network.operators.work import OperatorWork
from hwmodels.numerics.fields import variant

__all__ = ["ByMode"]


@flax.struct.dataclass
class ByMode:
    """Whole experts while decoding autoregressively, their leading bits while speculating, unless others are given."""

    title: ClassVar[str] = "one placement for autoregressive decoding, another for speculation"

    autoregressive: PlacementPolicy = variant(SINGLE_PLACEMENTS, default=ExpertCache())
    speculating: PlacementPolicy = variant(SINGLE_PLACEMENTS, default=BitSlices())

    def shares(self, tiers: Sequence[MemoryTier], work: OperatorWork) -> TierShares:
        """See `PlacementPolicy`."""
        drafts = jnp.asarray(expert_reads(work).speculating)[..., None]
        found = self.autoregressive.shares(tiers, work), self.speculating.shares(tiers, work)
        return jax.tree.map(lambda alone, cycle: (1.0 - drafts) * alone + drafts * cycle, *found)

    def draft_experts(self, tiers: Sequence[MemoryTier], work: OperatorWork) -> Float[Array, "*b"]:
        """See `PlacementPolicy`."""
        return self.speculating.draft_experts(tiers, work)
