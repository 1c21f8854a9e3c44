"""The link between devices that work together, and how long collectives over it take."""

from __future__ import annotations

import flax.struct
from jaxtyping import Array, Float

from hwmodels.compute.unit import ErrorInterval
from hwmodels.numerics.fields import NOT_NEGATIVE, POSITIVE, SHARE, number
from hwmodels.numerics.scalars import Leaf, Number
from hwmodels.parallel.collectives import Collective, CollectiveKernel, kernels_time

__all__ = ["Link", "collective_time"]


@flax.struct.dataclass
class Link:
    """What connects a device with the others. Every field is a leaf, "*b", or a tree of leaves.

    A collective without measured kernels takes what latency and efficiency say, by a ring or at one shot.
    """

    bandwidth_bytes_per_s: Leaf = number(POSITIVE)  # of a device in one direction, > 0
    efficiency: Leaf = number(SHARE)  # share of it that large messages reach, in (0, 1]
    launch_s: Leaf = number(NOT_NEGATIVE)  # of a collective, before anything is sent, >= 0
    latency_s: Leaf = number(NOT_NEGATIVE)  # from one device to another, >= 0
    energy_j_per_bit: Leaf = number(NOT_NEGATIVE, default=None)  # sent by a device, >= 0; None: not known
    all_reduce: tuple[CollectiveKernel, ...] = ()
    all_gather: tuple[CollectiveKernel, ...] = ()
    reduce_scatter: tuple[CollectiveKernel, ...] = ()
    all_to_all: tuple[CollectiveKernel, ...] = ()
    send: tuple[CollectiveKernel, ...] = ()
    #: Devices that it joins, those of one host; None: as many as there are.
    joins: int | None = flax.struct.field(pytree_node=False, default=None)
    #: How far measured times of collectives lie from those of the fits; none where they are not known.
    spreads: tuple[ErrorInterval, ...] = flax.struct.field(pytree_node=False, default=())


def collective_time(
    link: Link, collective: Collective, message_bytes: Number, *, devices: Number
) -> Float[Array, "*b"]:
    """Seconds of one collective; 0 for one device.

    Args:
        link: leaves "*b".
        collective: static.
        message_bytes: "*b", >= 0; what a device has in the end (all-gather) or to begin with (all others).
        devices: "*b", >= 1, real.
    Gradient: as `kernels_time`.
    """
    kernels = getattr(link, collective) or _unmeasured(link, collective)
    return kernels_time(
        kernels, collective, message_bytes, devices=devices, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s
    )


def _unmeasured(link: Link, collective: Collective) -> tuple[CollectiveKernel, ...]:
    of = lambda algorithm: CollectiveKernel(
        launch_s=link.launch_s, efficiency=link.efficiency, hop_s=link.latency_s, algorithm=algorithm
    )
    return (of("one_shot"),) if collective == "send" else (of("one_shot"), of("ring"))
