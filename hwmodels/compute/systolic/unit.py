"""A systolic array as the matrix unit of a device: products as `gemm_cost` has them, its own energies for them.

Weights lie in the weight buffer as a decoder at the array's edge leaves them: coded. Behind any other decoder, and without
one, they lie there in 16 bits.
"""

from __future__ import annotations

from typing import ClassVar

import flax.struct
from jaxtyping import Array, Float

from hwmodels.chip.hardware import HardwareBlock
from hwmodels.chip.technology import Technology
from hwmodels.compute.products import products_of, with_products
from hwmodels.compute.systolic.array import SystolicArray
from hwmodels.compute.systolic.cost import gemm_cost
from hwmodels.compute.unit import SingleKernel, UnitTimes
from hwmodels.decoders.decoder import bits_at
from hwmodels.device import Device
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from hwmodels.network.operators.work import OperatorWork
from hwmodels.numerics.scalars import Number, as_float, with_last_axis
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = ["SystolicUnit"]


@flax.struct.dataclass
class SystolicUnit(SystolicArray, SingleKernel):
    """A `SystolicArray` that multiplies a device's matrices."""

    short_title: ClassVar[str] = "systolic"
    title: ClassVar[str] = "a systolic array"

    def hardware(self, device: Device, technology: Technology) -> tuple[HardwareBlock, ...]:
        """The elements with their own energy, and the three buffers."""
        del device, technology
        two_folds = 2.0 * self.elements * (UNCOMPRESSED_BITS / BITS_PER_BYTE)
        buffers = (self.input_buffer, self.weight_buffer, self.output_buffer)
        sizes = (two_folds if one.capacity_bytes is None else as_float(one.capacity_bytes) for one in buffers)
        return (
            HardwareBlock(
                macs=self.elements,
                frequency_hz=self.frequency_hz,
                mac_energy_j=self.mac_energy_j,
                sram_bytes=sum(sizes),
            ),
        )

    def product_time(
        self, m: Number, k: Number, n: Number, *, weight_bits: Number = UNCOMPRESSED_BITS, temperature: Number = 0.0
    ) -> Float[Array, "*b"]:
        """Seconds of an m x k by k x n product, the slower of array and buffers, with weights decoded before the buffer."""
        del weight_bits
        return gemm_cost(self, m, k, n, temperature=temperature).total_s

    def operator_times(self, work: OperatorWork, device: Device, *, temperature: Number = 0.0) -> UnitTimes:
        """Products as `gemm_cost` has them, everything else at the device's roofline; see `ComputeUnit`."""
        unit, shapes = with_last_axis(self), products_of(work)
        decoder, weight_bits = device.decoder, UNCOMPRESSED_BITS
        if decoder is not None:
            weight_bits = bits_at(with_last_axis(decoder), "on_chip", shapes.weight_bits)
        cost = gemm_cost(unit, shapes.m, shapes.k, shapes.n, weight_bits=weight_bits, temperature=as_float(temperature))
        return with_products(work, device, product_s=cost.total_s, product_j=cost.total_j)
