"""Placement of a network in the memories of a device: a policy says which part of each class's traffic goes to which memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.device import MemoryTier
from hwmodels.network.operators.expert_sharing import ExpertReads
from hwmodels.network.operators.work import OperatorWork, StoredBytes
from hwmodels.numerics.scalars import same_rank, with_rank

__all__ = ["PlacementPolicy", "TierShares", "expert_reads", "shares_of", "stored_bytes", "with_first"]


@flax.struct.dataclass
class TierShares:
    """Share of the bytes of each class, moved in a step, that goes to each memory; leaves "*b tier", each sums to 1."""

    kv: Float[Array, "... tier"]
    dense: Float[Array, "... tier"]
    experts: Float[Array, "... tier"]


class PlacementPolicy(Protocol):
    """Where things lie: a tree of leaves with these members. Activations always stay in the first memory."""

    title: ClassVar[str]  # in a sentence

    def shares(self, tiers: Sequence[MemoryTier], work: OperatorWork) -> TierShares:
        """Shares of a step's traffic.

        Args:
            tiers: static number, two or more, the fastest first; leaves "*b". The last takes what fits nowhere else.
            work: "*b operator", with `stored`, and with `experts` where the policy looks at single experts.
        Raises:
            ValueError: the work does not say what the policy needs.
        Gradient: kinks where a memory is just full.
        """
        ...

    def draft_experts(self, tiers: Sequence[MemoryTier], work: OperatorWork) -> Float[Array, "*b"]:
        """Experts of a layer, "*b", whose part that a draft reads lies in the first memory: a pool of so many stays there."""
        ...


def stored_bytes(work: OperatorWork) -> StoredBytes:
    """What is held for the step. Raises ValueError: the work does not say."""
    if work.stored is None:
        raise ValueError(
            "the work does not say what is stored, which several memories need; build it with step_operators"
        )
    return work.stored


def expert_reads(work: OperatorWork) -> ExpertReads:
    """How the step reads experts. Raises ValueError: the work does not say."""
    if work.experts is None:
        raise ValueError(
            "the work does not say how experts are read, which this placement needs; build it with step_operators"
        )
    return work.experts


def shares_of(placed: Float[Array, "... tier"]) -> Float[Array, "... tier"]:
    """Parts of a whole; all of it in the first memory where there is nothing, so that shares always sum to one."""
    total = jnp.sum(placed, axis=-1, keepdims=True)
    first = with_rank((jnp.arange(placed.shape[-1]) == 0).astype(placed.dtype), placed.ndim)
    return jnp.where(total > 0, placed / jnp.where(total > 0, total, 1.0), first)


def with_first(first: Float[Array, "*b"], others: Float[Array, "... rest"]) -> Float[Array, "... tier"]:
    """A share of the first memory, and what is left divided among the others as `others`, which sum to one."""
    first, others = same_rank(jnp.asarray(first)[..., None], others)
    rest = (1.0 - first) * others
    return jnp.concatenate([jnp.broadcast_to(first, (*rest.shape[:-1], 1)), rest], axis=-1)
