"""Processor beside an accelerator that keeps the vocabulary projection for itself.

An accelerator whose session has few addresses cannot hold logits of large vocabularies; the CPU computes them from its own
copy of the matrix, over its own path to the same memory.

Source: "Scaling LLM Test-Time Compute with Mobile NPU on Smartphones", 7.2.2, 7.5.
"""

from __future__ import annotations

import dataclasses

import flax.struct
import jax.numpy as jnp
import numpy as np

from hwmodels.compute.unit import UnitTimes
from hwmodels.device import Device
from hwmodels.network.operators.work import OPERATORS, OperatorWork
from hwmodels.numerics.axes import select
from hwmodels.numerics.fields import NOT_NEGATIVE, POSITIVE, number
from hwmodels.numerics.scalars import Leaf, as_float, with_last_axis

__all__ = ["HostProcessor", "head_on_host", "reached_share"]

_IS_HEAD = np.array([name == "lm_head" for name in OPERATORS])


@flax.struct.dataclass
class HostProcessor:
    """Cores that share the work evenly. Every field is a leaf, "*b"."""

    cores: Leaf = number(POSITIVE)  # that work at the same time, > 0
    peak_flops_per_s: Leaf = number(POSITIVE)  # of one core on products of quantized matrices, > 0
    bandwidth_bytes_per_s: Leaf = number(POSITIVE)  # that all of them reach together, > 0
    power_w: Leaf = number(NOT_NEGATIVE)  # of all of them while they compute, >= 0; counts where energy is known


def reached_share(path_bytes_per_s: Leaf, bandwidth_bytes_per_s: Leaf) -> Leaf:
    """Share of a memory's bandwidth that a path of its own rate reaches, "*b", in (0, 1]; kink where they are equal."""
    return jnp.minimum(1.0, as_float(path_bytes_per_s) / as_float(bandwidth_bytes_per_s))


def head_on_host(times: UnitTimes, host: HostProcessor, work: OperatorWork, device: Device) -> UnitTimes:
    """The same times with those of the vocabulary projection replaced by the host's.

    Args:
        times: of all operators on the device.
        host, device: leaves "*b".
        work: "*b operator".
    """
    one = with_last_axis(host)
    busy_s = work.flops / (one.cores * one.peak_flops_per_s)
    tiers = device.tiers
    shares = tuple(
        select(_IS_HEAD, with_last_axis(reached_share(host.bandwidth_bytes_per_s, tier.bandwidth_bytes_per_s)), own)
        for tier, own in zip(tiers, times.memory_share, strict=True)
    )
    energy_j = times.energy_j
    if energy_j is not None:
        read_s = work.weight_bytes / one.bandwidth_bytes_per_s
        energy_j = select(_IS_HEAD, jnp.maximum(busy_s, read_s) * one.power_w, energy_j)
    return dataclasses.replace(
        times, compute_s=select(_IS_HEAD, busy_s, times.compute_s), memory_share=shares, energy_j=energy_j
    )
