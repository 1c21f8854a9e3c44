"""What a compute unit is built of, in the words that area and power are counted in.

How a device is made: what its area, power and price follow from beside its own sizes and rates.
"""

from __future__ import annotations

import flax.struct

from hwmodels.numerics.fields import NOT_NEGATIVE, POSITIVE, SHARE, Rule, choice, number
from hwmodels.numerics.scalars import Leaf, Number, as_float

__all__ = ["HardwareBlock", "Technology", "peak_hardware"]

#: What one multiply-add multiplies, and adds up: 16 bits in 32, whole numbers of 8 bits in 32, 32 bits in 32.
NUMBER_FORMATS = ("fp16", "int8", "fp32")

_NODE = Rule("the node's name in metres, 1e-10 to 1e-6: 7 nm is 7e-9", lambda value: 1e-10 <= value <= 1e-6)


@flax.struct.dataclass
class Technology:
    """A technology node and what a design has beside arrays and memories. Every field but the last two is a leaf, "*b".

    Defaults are stated where they come from: each may be given in a device's file as `technology.…`.
    """

    node_m: Leaf = number(_NODE)  # name of the node, 7e-9 for 7 nm
    #: Of multipliers whose unit names no clock of its own (a roofline, a GPU), > 0. Assumed: 1 GHz.
    frequency_hz: Leaf = number(POSITIVE, default=1e9)
    #: On-chip memory beside that of the matrix unit, >= 0: caches, scratchpads. None unless given.
    sram_bytes: Leaf = number(NOT_NEGATIVE, default=0.0)
    #: Share of an SRAM's area that is cells, in (0, 1]. 31.8 Mib/mm2 with cells of 0.021 um2: TSMC N3E, IEDM 2022.
    sram_efficiency: Leaf = number(SHARE, default=0.70)
    #: Area of all else over that of arrays, SRAM and decoders, >= 0. 33 % of TPU v1's die is neither buffers nor compute:
    #: Jouppi et al. 2017, arXiv:1704.04760, Fig. 2.
    other_area_share: Leaf = number(NOT_NEGATIVE, default=0.4925)
    #: Drawn by each m2 whatever is done, >= 0. 28 W of at most 331 mm2, TPU v1: Jouppi et al. 2017, Table 2.
    static_w_per_m2: Leaf = number(NOT_NEGATIVE, default=84.6e3)
    #: Faults of a wafer, per m2, >= 0. 0.09 per cm2: TSMC on its 7 nm, 2019.
    defects_per_m2: Leaf = number(NOT_NEGATIVE, default=900.0)
    number_format: str = choice(*NUMBER_FORMATS)
    #: To the memories, unless they are bonded to the die (`coupled`) or lie on it (`on_chip`): stacks beside it, or channels
    #: of 32 bits.
    memory_interface: str = choice("hbm", "ddr")


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
