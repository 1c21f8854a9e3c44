"""What a compute unit is built of, in the words that area and power are counted in."""

from __future__ import annotations

import flax.struct

from hwmodels.numerics.scalars import Leaf, Number, as_float

__all__ = ["HardwareBlock", "peak_hardware"]


@flax.struct.dataclass
class HardwareBlock:
    """Equal multipliers with the memory and links beside them. Every number is a leaf, "*b"."""

    macs: Leaf  # multiply-adds of a cycle, >= 0
    frequency_hz: Leaf  # > 0
    weight_bits: Leaf = None  # of an integer multiplier, > 0; None: the technology's number format
    activation_bits: Leaf = None  # likewise
    mac_energy_j: Leaf = None  # of a multiply-add where the unit says so itself; None: the technology's
    sram_bytes: Leaf = 0.0  # on-chip memory of the unit, >= 0
    link_bytes_per_s: Leaf = 0.0  # between its parts, all together, >= 0
    link_j_per_bit: Leaf = 0.0  # >= 0
    fpga: bool = flax.struct.field(pytree_node=False, default=False)  # configured, not hard-wired


def peak_hardware(peak_flops_per_s: Number, frequency_hz: Number) -> HardwareBlock:
    """As many multipliers as a peak rate takes at a clock; a multiply-add counts 2."""
    frequency_hz = as_float(frequency_hz)
    return HardwareBlock(macs=as_float(peak_flops_per_s) / (2.0 * frequency_hz), frequency_hz=frequency_hz)
