"""A host beside processing elements at the banks of its memory: each operator runs where it takes less time.

The first memory's bandwidth is that inside it, which the elements at its banks see; the host sees the share that its interface
has. Weights that lie in another memory are multiplied by the host, at the same time as the elements multiply theirs.

Source: ELMoE-3D, 7: xPU-PIM, xPU-LogicPIM and xPU-NMP process experts in memory, and send them to the xPU as batches grow.
Departs: the paper does not say by what an operator is sent; here by its whole time, traffic included.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import flax.struct
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.chip.blocks import HardwareBlock, Technology
from hwmodels.compute.near_memory import NearMemoryUnit
from hwmodels.compute.tile_counts import products_of
from hwmodels.compute.unit import ComputeUnit, Rated, SingleKernel, UnitTimes, WholePasses
from hwmodels.device import Device
from hwmodels.memory.placement import first_memory_share
from hwmodels.network.operators.work import EXPERT_OPERATORS, OPERATORS, OperatorWork
from hwmodels.numerics.fields import NOT_NEGATIVE, SHARE, choice, number, part, tag
from hwmodels.numerics.scalars import Leaf, Number, with_last_axis, with_rank
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = ["HostAndNear"]

#: Of a device with memories behind the banks.
_PLACES = (
    "places: what does not fit in one memory lies in another; more bits, cached tokens or experts move some there, where host "
    "or banks may read or multiply it faster, so that a step may take less time"
)

_IS_EXPERT = np.array([name in EXPERT_OPERATORS for name in OPERATORS])


@flax.struct.dataclass
class HostAndNear(WholePasses, Rated):
    """A host and elements at the first memory's banks. Every field but `near_memory_runs` is a tree of leaves, "*b"."""

    short_title: ClassVar[str] = "host, banks"
    title: ClassVar[str] = "a host beside processing elements at its memory's banks"

    host: NearMemoryUnit = part(NearMemoryUnit)
    near: NearMemoryUnit = part(NearMemoryUnit)
    external_share: Leaf = number(
        SHARE
    )  # of the first memory's bandwidth that its interface to the host has, in (0, 1]
    interface_j_per_bit: Leaf = number(NOT_NEGATIVE, default=0.0)  # of crossing it, beside the access itself
    near_memory_runs: str = choice("products", "experts")  # what may run at the banks

    @property
    def elements(self) -> Leaf:
        """Those of the host's die, "*b": elements at the banks are on the memory's."""
        return self.host.elements

    def hardware(self, device: Device, technology: Technology) -> tuple[HardwareBlock, ...]:
        """That of the host and that at the banks."""
        return (*self.host.hardware(device, technology), *self.near.hardware(device, technology))

    def growth_remarks(self, *, memories: int, experts: bool) -> list[str]:
        """Of experts' mean rows, and of what the banks have no room for."""
        rows = WholePasses.growth_remarks(self, memories=memories, experts=experts)
        return [*rows, *([_PLACES] if memories > 1 else [])]

    def kernels(self, work: OperatorWork) -> Sequence[tuple[ComputeUnit, OperatorWork]]:
        """The host alone, and the banks with the host's help."""
        return [(_Host(self), work), (_Banks(self), work)]

    def kernel_shares(
        self, work: OperatorWork, total_s: Float[Array, "... operator kernel"]
    ) -> Float[Array, "... operator kernel"]:
        """All of the faster one; what multiplies no weights runs on the host."""
        may = (products_of(work).products > 0) & (work.weight_bytes + work.kv_bytes > 0)
        may = may & with_rank(_IS_EXPERT, may.ndim) if self.near_memory_runs == "experts" else may
        near = (may & (total_s[..., 1] < total_s[..., 0])).astype(total_s.dtype)
        return jnp.stack([1.0 - near, near], axis=-1)

    def operator_times(self, work: OperatorWork, device: Device, *, temperature: Number = 0.0) -> UnitTimes:
        """Of the host alone; `kernels` names both."""
        return _Host(self).operator_times(work, device, temperature=temperature)


@flax.struct.dataclass
class _Host(SingleKernel):
    """The host, which sees the first memory through its interface."""

    short_title: ClassVar[str] = "host"
    title: ClassVar[str] = "a host"

    unit: HostAndNear
    kind: str = tag("host")

    def operator_times(self, work: OperatorWork, device: Device, *, temperature: Number = 0.0) -> UnitTimes:
        """See `ComputeUnit`."""
        times = self.unit.host.operator_times(work, _uncoupled(device), temperature=temperature)
        first, *others = times.memory_share
        share = first * with_last_axis(self.unit.external_share)
        crossing = (work.weight_bytes + work.kv_bytes) * first_memory_share(device, work) + work.activation_bytes
        return _with_crossing(dataclasses.replace(times, memory_share=(share, *others)), self.unit, crossing)


@flax.struct.dataclass
class _Banks(SingleKernel):
    """The elements at the banks, and the host for weights that lie elsewhere."""

    short_title: ClassVar[str] = "banks"
    title: ClassVar[str] = "elements at the banks, with a host's help"

    unit: HostAndNear
    kind: str = tag("banks")

    def operator_times(self, work: OperatorWork, device: Device, *, temperature: Number = 0.0) -> UnitTimes:
        """See `ComputeUnit`."""
        host = self.unit.host.operator_times(work, _uncoupled(device), temperature=temperature)
        near = self.unit.near.operator_times(work, device, temperature=temperature)
        here = first_memory_share(device, work)
        compute_s = jnp.maximum(near.compute_s * here, host.compute_s * (1.0 - here))
        # Of the whole product's energy each part takes its share, whoever multiplies.
        shares = (near.memory_share[0], *host.memory_share[1:])
        times = dataclasses.replace(near, compute_s=compute_s, memory_share=shares)
        return _with_crossing(times, self.unit, work.activation_bytes)


def _uncoupled(device: Device) -> Device:
    """As the host sees it: banks are coupled to their own elements alone."""
    return dataclasses.replace(device, memory=dataclasses.replace(device.memory, coupled=False))


def _with_crossing(times: UnitTimes, unit: HostAndNear, crossing_bytes: Float[Array, "... operator"]) -> UnitTimes:
    energy = crossing_bytes * (BITS_PER_BYTE * with_last_axis(unit.interface_j_per_bit))
    return dataclasses.replace(times, link_j=energy)
