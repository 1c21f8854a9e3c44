"""Collective operations of several devices: how many rounds and bytes an algorithm takes, and how long that is on a link.

With N devices and a message of S bytes, each device sends (and receives at the same time)

    all-reduce      one-shot  1 round,      (N - 1) S          every device sends all it has to every other
                    two-shot  2 rounds,     2 (N - 1) / N S    a part of the sums each, then the parts to all
                    ring      2 (N - 1),    2 (N - 1) / N S
    all-gather, reduce-scatter, all-to-all
                    one-shot  1 round,      (N - 1) / N S
                    ring      N - 1,        (N - 1) / N S
    send            one-shot  1 round,      S

S is what a device has in the end (all-gather) or to begin with (all others). An algorithm takes

    launch + rounds · hop + (N - 1) · peer + bytes (1 / efficiency + bridge · N · c(N) + socket · N · d(N)) / bandwidth,

where peer is the time of each further device that a kernel signals to, bridge the cost of a path between pairs of devices
that all of them share (of PCIe switches below one host), and socket that of the path between the host's two processors. c(N)
rises from 0 at two devices to 1 at four, d(N) from 0 at four, which one processor has, to 1 at eight. Of several algorithms
a library is taken to choose well but not perfectly: their times are joined by a soft minimum.

Source: rounds and bytes after Thakur, Rabenseifner, Gropp 2005, doi:10.1177/1094342005051521, sec. 4; one-shot and two-shot as
vLLM, SGLang and TensorRT-LLM call their own kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.compute.tile_counts import soft_minimum
from hwmodels.compute.unit import ErrorInterval
from hwmodels.numerics.fields import BYTE_RATE, ENERGY, LATENCY, NOT_NEGATIVE, SHARE, number
from hwmodels.numerics.scalars import Leaf, Number, as_arrays, as_float, same_rank

__all__ = [
    "ALGORITHMS",
    "COLLECTIVES",
    "Algorithm",
    "Collective",
    "CollectiveKernel",
    "Link",
    "collective_time",
    "collective_work",
    "kernels_time",
]

#: What devices do together.
Collective: TypeAlias = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"]

#: How they do it.
Algorithm: TypeAlias = Literal["one_shot", "two_shot", "ring"]

#: All of them, in the order in which results name them.
COLLECTIVES: tuple[Collective, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")

#: Collective -> its algorithms.
ALGORITHMS: dict[Collective, tuple[Algorithm, ...]] = {
    "all_reduce": ("one_shot", "two_shot", "ring"),
    "all_gather": ("one_shot", "ring"),
    "reduce_scatter": ("one_shot", "ring"),
    "all_to_all": ("one_shot", "ring"),
    "send": ("one_shot",),
}


@flax.struct.dataclass
class CollectiveKernel:
    """What one algorithm takes on a link; every field but the algorithm is a leaf, "*b"."""

    launch_s: Leaf = number(LATENCY)  # before anything is sent, >= 0
    efficiency: Leaf = number(SHARE)  # share of the link's bandwidth that large messages reach, in (0, 1]
    hop_s: Leaf = number(NOT_NEGATIVE, default=0.0)  # of each round, >= 0
    peer_s: Leaf = number(NOT_NEGATIVE, default=0.0)  # of each other device, >= 0
    bridge: Leaf = number(
        NOT_NEGATIVE, default=0.0
    )  # bytes' time on a path that all devices share, over the link's, >= 0
    socket: Leaf = number(NOT_NEGATIVE, default=0.0)  # the same of a path between the halves of more than four devices
    algorithm: Algorithm = flax.struct.field(pytree_node=False, default="ring")


@flax.struct.dataclass
class CollectiveWork:
    """What an algorithm does, "*b"."""

    rounds: Float[Array, "*b"]
    sent_bytes: Float[Array, "*b"]  # by each device


def collective_work(
    collective: Collective, algorithm: Algorithm, message_bytes: Number, devices: Number
) -> CollectiveWork:
    """Rounds and bytes of a collective.

    Args:
        collective, algorithm: static; the algorithm is one of `ALGORITHMS[collective]`.
        message_bytes: "*b", >= 0; see the module's heading.
        devices: "*b", >= 1, real.
    Raises:
        ValueError: a collective that is not known, or an algorithm that it does not have.
    """
    if algorithm not in ALGORITHMS.get(collective, ()):
        known = "; ".join(f"{name}: {', '.join(names)}" for name, names in ALGORITHMS.items())
        raise ValueError(f"collective is {collective!r} by {algorithm!r}; allowed are {known}")
    size, count = as_arrays(message_bytes, devices)
    others = count - 1.0
    if collective == "send":
        return CollectiveWork(jnp.ones_like(size * count), size * jnp.ones_like(count))
    passes = 2.0 if collective == "all_reduce" else 1.0
    if collective == "all_reduce" and algorithm == "one_shot":
        return CollectiveWork(jnp.ones_like(size * count), size * others)
    fixed = {"one_shot": 1.0, "two_shot": 2.0}
    rounds = fixed[algorithm] if algorithm in fixed else passes * others
    return CollectiveWork(jnp.broadcast_to(rounds, jnp.shape(size * count)), passes * size * (others / count))


def kernels_time(
    kernels: Sequence[CollectiveKernel],
    collective: Collective,
    message_bytes: Number,
    *,
    devices: Number,
    bandwidth_bytes_per_s: Number,
) -> Float[Array, "*b"]:
    """Seconds of a collective by the best of some kernels; 0 for one device, and for nothing to send.

    Args:
        kernels: one or more; leaves "*b".
        collective: static.
        message_bytes: "*b", >= 0.
        devices: "*b", >= 1, real.
        bandwidth_bytes_per_s: "*b", > 0; of a device's links in one direction.
    Raises:
        ValueError: see `collective_work`.
    Gradient: right for every input; steps at one device and at nothing to send, kinks at two, four and eight devices
        where there is a bridge or a path between sockets.
    """
    numbers = (jnp.asarray(as_float(message_bytes)), jnp.asarray(as_float(devices)), as_float(bandwidth_bytes_per_s))
    kernels, size, count, bandwidth = same_rank(tuple(kernels), *numbers)
    several = count > 1.0
    peers = jnp.where(several, count, 2.0) - 1.0
    crossing = jnp.clip((count - 2.0) / 2.0, 0.0, 1.0)
    over_sockets = jnp.clip((count - 4.0) / 4.0, 0.0, 1.0)
    times = []
    for kernel in kernels:
        work = collective_work(collective, kernel.algorithm, size, peers + 1.0)
        shared = as_float(kernel.bridge) * crossing + as_float(kernel.socket) * over_sockets
        per_byte = (1.0 / as_float(kernel.efficiency) + shared * count) / bandwidth
        waited = as_float(kernel.launch_s) + work.rounds * as_float(kernel.hop_s) + peers * as_float(kernel.peer_s)
        times.append(waited + work.sent_bytes * per_byte)
    seconds = times[0] if len(times) == 1 else soft_minimum(times)
    return jnp.where(several & (size > 0), seconds, 0.0)


# The link between devices that work together, and how long collectives over it take.


@flax.struct.dataclass
class Link:
    """What connects a device with the others. Every field is a leaf, "*b", or a tree of leaves.

    A collective without measured kernels takes what latency and efficiency say, by a ring or at one shot.
    """

    bandwidth_bytes_per_s: Leaf = number(BYTE_RATE)  # of a device in one direction, > 0
    efficiency: Leaf = number(SHARE)  # share of it that large messages reach, in (0, 1]
    launch_s: Leaf = number(LATENCY)  # of a collective, before anything is sent, >= 0
    latency_s: Leaf = number(LATENCY)  # from one device to another, >= 0
    energy_j_per_bit: Leaf = number(ENERGY, default=None)  # sent by a device, >= 0; None: not known
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
