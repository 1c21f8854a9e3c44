"""The default compute unit: arithmetic at the data sheet's rate, bytes at the rate that streams reach.

Source: Williams, Waterman, Patterson 2009, doi:10.1145/1498765.1498785, per operator instead of per program.
"""

from __future__ import annotations

from typing import ClassVar

import flax.struct
import numpy as np

from hwmodels.chip.energy import energy_per_flop
from hwmodels.compute.unit import ComputeUnit, SingleKernel, UnitTimes
from hwmodels.device import Device
from hwmodels.network.operators.work import MATRIX_OPERATORS, OPERATORS, OperatorWork
from hwmodels.numerics.axes import select
from hwmodels.numerics.scalars import Number, as_float, with_last_axis

__all__ = ["ROOFLINE", "Roofline", "unit_of"]

#: Operators whose arithmetic is products of matrices.
_MULTIPLIES = np.array([name == "attention" or name in MATRIX_OPERATORS for name in OPERATORS])


@flax.struct.dataclass
class Roofline(SingleKernel):
    """A unit without numbers of its own: the device's peak, efficiency and energy per operation are what it has."""

    short_title: ClassVar[str] = "roofline"
    title: ClassVar[str] = "a roofline"

    def operator_times(self, work: OperatorWork, device: Device, *, temperature: Number = 0.0) -> UnitTimes:
        """FLOPs over a rate, whatever the shapes; nothing is counted, so that the temperature does not matter."""
        del temperature
        rate_flops_per_s = as_float(device.peak_flops_per_s) * as_float(device.compute_efficiency)
        compute_s = work.flops / with_last_axis(rate_flops_per_s)
        if device.vector_flops_per_s is not None:
            compute_s = select(_MULTIPLIES, compute_s, work.flops / with_last_axis(device.vector_flops_per_s))
        flop_j = energy_per_flop(device)
        return UnitTimes(
            compute_s=compute_s,
            launch_s=with_last_axis(device.operator_latency_s),
            memory_share=tuple(with_last_axis(tier.efficiency) for tier in device.tiers),
            energy_j=None if flop_j is None else work.flops * with_last_axis(flop_j),
        )


#: The unit of a device that has none of its own.
ROOFLINE = Roofline()


def unit_of(device: Device) -> ComputeUnit:
    """The device's matrix unit, or the roofline where it has none."""
    return ROOFLINE if device.matrix_unit is None else device.matrix_unit
