"""Several memories side by side: where tensors lie, and the time and energy of a step's traffic to them.

A tensor class (dense weights, cached experts, uncached ones, KV cache, ...) may be spread over several tiers. Traffic to
different tiers either overlaps or follows one another; within a tier it always adds up.

Source: ELMoE-3D, 5.1 (coupled and decoupled bandwidth), 7.1 (what lies in which tier), 7.2 (energy by bit).
"""

from __future__ import annotations

from collections.abc import Sequence

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.device import MemoryTier, Schedule
from hwmodels.numerics.axes import same_rank, select
from hwmodels.numerics.scalars import Leaf, Number, as_float, with_last_axis
from hwmodels.numerics.smoothing import smooth_maximum
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = [
    "Placement",
    "TrafficCost",
    "half_efficiency_bytes",
    "place_in_order",
    "place_softly",
    "seconds_per_byte",
    "traffic_by_tier",
    "traffic_cost",
]


@flax.struct.dataclass
class Placement:
    """Where the bytes of each class lie."""

    stored_bytes: Float[Array, "*b class tier"]  # sums to the sizes of the classes
    overflow_bytes: Float[Array, "*b tier"]  # by which a tier holds more than its capacity

    @property
    def capacity_penalty(self) -> Float[Array, "*b"]:
        """Sum of the squared overflows, in parts of all bytes stored; 0 exactly where everything fits, in [0, tiers].

        Gradient: continuous, 0 at the border of what fits.
        """
        total = jnp.sum(self.stored_bytes, axis=(-2, -1))
        return jnp.sum((self.overflow_bytes / jnp.where(total > 0, total, 1.0)[..., None]) ** 2, axis=-1)


@flax.struct.dataclass
class TrafficCost:
    """Time and energy of a step's traffic."""

    total_s: Float[Array, "*b"]
    tier_s: Float[Array, "*b tier"]  # if only this tier took time
    tier_j: Float[Array, "*b tier"]

    @property
    def total_j(self) -> Float[Array, "*b"]:
        """Energy of all tiers."""
        return jnp.sum(self.tier_j, axis=-1)


def half_efficiency_bytes(tier: MemoryTier) -> Leaf:
    """Size of an access that reaches half the bandwidth, "*b", in bytes: as given, or by Little's law.

    0 where neither is known. With n accesses under way, a bytes each take latency / n + a / bandwidth: half of the
    bandwidth at a = bandwidth * latency / n.
    """
    if tier.given_half_bytes is not None:
        return as_float(tier.given_half_bytes)
    if tier.access_latency_s is None:
        return 0.0
    under_way = 1.0 if tier.outstanding_accesses is None else as_float(tier.outstanding_accesses)
    return _bandwidth(tier) * as_float(tier.access_latency_s) / under_way


def seconds_per_byte(
    tier: MemoryTier, access_bytes: Number = float("inf"), *, active_share: Number = 1.0
) -> Float[Array, "*b"]:
    """Time that one byte of an access occupies the tier: 1 / (bandwidth * a / (a + a_half)).

    Args:
        tier: leaves "*b".
        access_bytes: "*b", > 0; contiguous bytes of one access, infinite for a stream.
        active_share: "*b", in (0, 1]; compute units in use. A coupled tier is slower by it, in bandwidth and in accesses
            under way alike; others do not see it.
    Source: ELMoE-3D, 5.1 and Fig. 9: coupled and decoupled rooflines.
    """
    tier, access, share = same_rank(tier, as_float(access_bytes), as_float(active_share))
    # Not a / (a + a_half), as a may be infinite.
    seconds = (1.0 + half_efficiency_bytes(tier) / access) / _bandwidth(tier)
    return jnp.asarray(seconds / share if tier.coupled else seconds)


def place_in_order(
    tiers: Sequence[MemoryTier], size_bytes: Float[Array, "*b class"], *, order: Sequence[int] | None = None
) -> Placement:
    """Fill the tiers one after the other with the classes one after the other; what does not fit spills into the next tier.

    Args:
        tiers: static number, the first is filled first; leaves "*b". The last takes all that is left, beyond its capacity
            if need be.
        size_bytes: "*b class", >= 0.
        order: static; all classes, the first to be placed first. As they come, unless given.
    Raises:
        ValueError: no tier, no class, or an order that is not one of the classes.
    Gradient: exact and piecewise linear. Where a class ends just where a tier does, that of slightly larger capacities; at
        sizes and capacities of 0 that from above.
    """
    order, sizes = _order(order, size_bytes), _sizes(tiers, size_bytes)
    sizes, capacities = same_rank(sizes, _capacities(tiers, sizes.dtype))
    rank = np.argsort(order)
    ends = jnp.cumsum(sizes[..., np.array(order)], axis=-1)
    starts = jnp.concatenate([jnp.zeros_like(ends[..., :1]), ends[..., :-1]], axis=-1)
    starts, ends = starts[..., rank, None], ends[..., rank, None]
    room = jnp.cumsum(capacities, axis=-1)[..., None, :]
    infinity = jnp.full_like(room[..., :1], jnp.inf)
    low = jnp.concatenate([-infinity, room[..., :-1]], axis=-1)
    high = jnp.concatenate([room[..., :-1], infinity], axis=-1)

    def within(x):
        """Comparisons instead of `clip`, so that a tie counts as lying below the border in every tier."""
        return jnp.where(x > low, jnp.where(x <= high, x, high), low)

    # The difference of two running sums has the rounding error of the sums; a class that fits as a whole needs none.
    whole = (starts > low) & (ends <= high)
    stored = jnp.where(whole, sizes[..., None], within(ends) - within(starts))
    excess = jnp.sum(sizes, axis=-1) - room[..., 0, -1]
    overflow = select(jnp.arange(len(tiers)) == len(tiers) - 1, jax.nn.relu(excess)[..., None], 0.0)
    return Placement(stored_bytes=stored, overflow_bytes=overflow)


def place_softly(
    tiers: Sequence[MemoryTier],
    size_bytes: Float[Array, "*b class"],
    logits: Float[Array, "*b class tier"],
    *,
    temperature: Number = 1.0,
) -> Placement:
    """Spread each class over the tiers by softmax(logits / temperature), whether it fits or not: to be tuned.

    Args:
        tiers: static number; leaves "*b".
        size_bytes: "*b class", >= 0.
        logits: "*b class tier".
        temperature: one number, > 0; towards 0 each class goes to the tier of its largest logit.
    Raises:
        ValueError: no tier, no class, or logits of another shape.
    Gradient: smooth but for the overflow, which has a kink where a tier is just full; `capacity_penalty` has none.
    """
    sizes, logits = _sizes(tiers, size_bytes), jnp.asarray(as_float(logits))
    if logits.ndim < 2 or logits.shape[-2:] != (sizes.shape[-1], len(tiers)):
        raise ValueError(
            f"logits have shape {logits.shape}; their last axes are {sizes.shape[-1]} classes, {len(tiers)} tiers"
        )
    sizes, shares = same_rank(sizes[..., None], jax.nn.softmax(logits / as_float(temperature), axis=-1))
    stored = sizes * shares
    held, capacities = same_rank(jnp.sum(stored, axis=-2), _capacities(tiers, stored.dtype))
    overflow = jax.nn.relu(held - capacities)
    return Placement(stored_bytes=stored, overflow_bytes=overflow)


def traffic_by_tier(placement: Placement, reads: Number) -> Float[Array, "*b class tier"]:
    """Bytes that a step moves.

    Args:
        reads: "*b class" or one number, >= 0; how often the step moves each stored byte: 1 for dense weights, the share of
            experts that are touched, with each class spread evenly over its tiers.
    """
    stored, reads = same_rank(placement.stored_bytes, jnp.asarray(as_float(reads))[..., None])
    return stored * reads


def traffic_cost(
    tiers: Sequence[MemoryTier],
    traffic_bytes: Float[Array, "*b class tier"],
    *,
    schedule: Schedule,
    access_bytes: Number = float("inf"),
    active_share: Number = 1.0,
    temperature: Number = 0.0,
) -> TrafficCost:
    """Time and energy of a step's traffic.

    Serial, it is never slower to move a byte to a faster tier. Overlapped it may be, as the slower tier then idles.

    Args:
        tiers: static number; leaves "*b".
        traffic_bytes: "*b class tier", >= 0.
        schedule: static; whether tiers work at the same time.
        access_bytes: "*b class" or one number, > 0; contiguous bytes of one access.
        active_share: "*b", in (0, 1]; compute units in use, seen by coupled tiers.
        temperature: one number in [0, 1], of the smooth maximum over tiers; 1 is serial. Serial traffic ignores it.
    Raises:
        ValueError: no tier, traffic of another number of tiers, or an unknown schedule.
    Gradient: overlapped, a kink where two tiers take equally long, at temperature 0; see `smooth_maximum`.
    """
    traffic = jnp.asarray(as_float(traffic_bytes))
    if not tiers or traffic.ndim < 2 or traffic.shape[-1] != len(tiers):
        raise ValueError(
            f"traffic has shape {traffic.shape}; its last axes are classes and tiers, of which {len(tiers)} came"
        )
    if schedule not in ("overlapped", "serial"):
        raise ValueError(f"schedule is {schedule!r}; allowed are 'overlapped' and 'serial'")
    tiers = with_last_axis(tuple(tiers))
    share = jnp.asarray(as_float(active_share))[..., None]
    seconds = [seconds_per_byte(tier, access_bytes, active_share=share) for tier in tiers]
    traffic, each_s = same_rank(traffic, jnp.stack(jnp.broadcast_arrays(*seconds), axis=-1))
    tier_s = jnp.sum(traffic * each_s, axis=-2)
    bits = jnp.sum(traffic, axis=-2) * BITS_PER_BYTE
    per_bit = [jnp.zeros(1) if tier.energy_j_per_bit is None else tier.energy_j_per_bit for tier in tiers]
    bits, each_j = same_rank(bits, jnp.concatenate(jnp.broadcast_arrays(*per_bit), axis=-1))
    tier_j = bits * each_j
    total_s = jnp.sum(tier_s, axis=-1) if schedule == "serial" else smooth_maximum(tier_s, temperature)
    return TrafficCost(total_s=total_s, tier_s=tier_s, tier_j=tier_j)


def _bandwidth(tier: MemoryTier) -> Leaf:
    """What streams reach with all compute units in use."""
    return as_float(tier.bandwidth_bytes_per_s) * as_float(tier.efficiency)


def _capacities(tiers: Sequence[MemoryTier], dtype: jnp.dtype) -> Float[Array, "*b tier"]:
    capacities = [jnp.asarray(as_float(tier.capacity_bytes)).astype(dtype) for tier in tiers]
    return jnp.stack(jnp.broadcast_arrays(*capacities), axis=-1)


def _sizes(tiers: Sequence[MemoryTier], size_bytes: Number) -> Float[Array, "*b class"]:
    sizes = jnp.asarray(as_float(size_bytes))
    if not tiers or sizes.ndim == 0 or sizes.shape[-1] == 0:
        raise ValueError(f"{len(tiers)} tiers and sizes of shape {sizes.shape} came; both need at least one")
    return sizes


def _order(order: Sequence[int] | None, size_bytes: Number) -> tuple[int, ...]:
    classes = range(jnp.shape(size_bytes)[-1])
    if order is None:
        return tuple(classes)
    if sorted(order) != list(classes):
        raise ValueError(
            f"order is {tuple(order)}; it must name each of the {len(classes)} classes once, 0 to {len(classes) - 1}"
        )
    return tuple(order)
