"""A systolic array as the matrix unit of a device: products as `gemm_cost` has them, its own energies for them.

Weights lie in the weight buffer as a decoder at the array's edge leaves them: coded. Behind any other decoder, and without
one, they lie there in 16 bits.
"""

from __future__ import annotations

from typing import ClassVar

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.chip.blocks import HardwareBlock, Technology
from hwmodels.compute.systolic.array import (
    PARTIAL_SUM_BITS,
    SystolicArray,
    elapsed_cycles,
    smooth_buffer_elements,
)
from hwmodels.compute.tile_counts import products_of, with_products
from hwmodels.compute.unit import ROUNDED_ROWS, SingleKernel, UnitTimes
from hwmodels.decoders.decoder import bits_at
from hwmodels.device import Device
from hwmodels.network.architecture import UNCOMPRESSED_BITS
from hwmodels.network.operators.work import OperatorWork
from hwmodels.numerics.scalars import Number, as_float, with_last_axis
from hwmodels.numerics.smoothing import smooth_maximum
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = ["GemmCost", "SystolicUnit", "gemm_cost"]


@flax.struct.dataclass
class GemmCost:
    """Time and energy of one matrix product, "*b"."""

    total_s: Float[Array, "*b"]
    total_j: Float[Array, "*b"]


def gemm_cost(
    array: SystolicArray,
    m: Number,
    k: Number,
    n: Number,
    *,
    weight_bits: Number = UNCOMPRESSED_BITS,
    temperature: Number = 0.0,
) -> GemmCost:
    """Time and energy of an m x k by k x n product: array and buffers work at the same time, and the slowest decides.

    Args:
        array: leaves "*b".
        m, k, n: "*b", > 0, real.
        weight_bits: "*b", >= 0; stored bits per weight in the buffer. Compressed weights are decoded between buffer and array,
            so that they are fewer bits here and change no cycle.
        temperature: "*b", in [0, 1]; of the folds and of both maxima. 0 is exact.
    Returns:
        "*b", seconds and joules. Energy counts useful multiply-accumulates: idle elements and zeros of padding are free.
    Gradient: right for every input. At temperature 0 the numbers of folds are constants, with a kink where the longest
        time changes; see `smooth_cycles`, `smooth_maximum`.
    Source: Huff-LLM, appendix A.1, and 4 (savings are simulated by narrowing the weight buffer).
    """
    elements = smooth_buffer_elements(array, m, k, n, temperature)
    buffers = (
        (array.input_buffer, elements.input_reads, UNCOMPRESSED_BITS),
        (array.weight_buffer, elements.weight_reads, as_float(weight_bits)),
        (array.output_buffer, elements.output_accesses, PARTIAL_SUM_BITS),
    )
    times = [elapsed_cycles(array, m, k, n, temperature) / as_float(array.frequency_hz)]
    joules = as_float(m) * as_float(k) * as_float(n) * as_float(array.mac_energy_j)
    for buffer, count, bits in buffers:
        moved_bytes = count * (bits / BITS_PER_BYTE)
        times.append(moved_bytes / as_float(buffer.bandwidth_bytes_per_s))
        joules = joules + moved_bytes * (as_float(buffer.access_energy_j) / as_float(buffer.access_bytes))
    return GemmCost(smooth_maximum(jnp.stack(jnp.broadcast_arrays(*times), axis=-1), temperature), jnp.asarray(joules))


@flax.struct.dataclass
class SystolicUnit(SystolicArray, SingleKernel):
    """A `SystolicArray` that multiplies a device's matrices."""

    short_title: ClassVar[str] = "systolic"
    title: ClassVar[str] = "a systolic array"

    def growth_remarks(self, *, memories: int, experts: bool) -> list[str]:
        """Of experts, whose mean rows fill whole folds unless weights stay in the array."""
        return [ROUNDED_ROWS] if experts and self.dataflow != "ws" else []

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
