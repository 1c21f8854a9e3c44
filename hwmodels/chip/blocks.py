"""Area and energy of the blocks of a chip at a node: multiply-adds, SRAM, interfaces.

Sources: `hwmodels.chip.published`. An array's element is a multiplier and an adder of the accumulated width; its registers
count among what is beside (`Technology.other_area_share`).

What a technology node does to area and energy: power laws between printed nodes, and beyond them.

Node names are lengths: 7 nm is 7e-9. Below the smallest printed node the last two go on. Energies are printed at 45 nm
(Horowitz 2014) and at 7 nm (Jouppi et al. 2021), and lie on a power law between; above 45 nm they follow Stillmaker and Baas.

Departs: the energies of Stillmaker and Baas fall by a factor of 15 from 45 nm to 7 nm, those of the two tables of whole
operations by 2.1 to 4.3. The tables are taken.

Area and energy of decoders at a node where nothing else is known: those of Cassandra's unary decoders, by values per cycle.

Source: Cassandra, Table V: 40 decoders of 12.8 values of two bytes per cycle take 1.76 mm2 and 0.264 W at 28 nm.
Departs: the clock is not printed; 1 GHz is assumed.
"""

from __future__ import annotations

from collections.abc import Mapping

import flax.struct
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.chip.published import (
    AREA_FACTORS,
    ARITHMETIC_AREA_M2,
    ARITHMETIC_J_7,
    ARITHMETIC_J_45,
    BITCELLS_M2,
    ENERGY_COEFFICIENTS,
    INTERFACES,
    NOMINAL_V,
    SRAM_J_7,
    SRAM_J_45,
)
from hwmodels.numerics.fields import FREQUENCY, NOT_NEGATIVE, SHARE, Rule, choice, number
from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.numerics.units import BITS_PER_BYTE, NANO

__all__ = [
    "HardwareBlock",
    "Technology",
    "bitcell_area",
    "decoder_area_at",
    "decoder_symbol_energy_at",
    "energy_at",
    "integer_mac_area",
    "integer_mac_energy",
    "interface_area",
    "logic_area_factor",
    "mac_area",
    "mac_energy",
    "peak_hardware",
    "power_law",
    "sram_area",
    "sram_energy_per_byte",
]

# What a compute unit is built of, in the words that area and power are counted in.

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
    frequency_hz: Leaf = number(FREQUENCY, default=1e9)
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


#: nm; between the two, energies are printed at both ends.
_OLDER, _NEWER = 45, 7


def power_law(table: Mapping[int, float] | Mapping[float, float], at: Number) -> Float[Array, "*b"]:
    """A table of positive numbers, read in double logarithms: straight between entries and beyond the ends.

    Args:
        table: static; positive place -> positive value, at least two.
        at: "*b", > 0.
    Gradient: right but at the entries, where it jumps.
    """
    places = sorted(float(place) for place in table)
    values = [value for _, value in sorted(table.items())]
    at = jnp.asarray(as_float(at))
    logs = [jnp.asarray(np.log(one), at.dtype) for one in (places, values)]
    return jnp.exp(jnp.interp(jnp.log(at), *logs, left="extrapolate", right="extrapolate"))


def logic_area_factor(node_m: Number) -> Float[Array, "*b"]:
    """Area of logic over its area at 45 nm, "*b". Source: Stillmaker and Baas 2017; extrapolated below 7 nm.

    At 5 nm it is 0.61 of that at 7 nm, where TSMC names densities of 1.84, which is 0.54.
    """
    return power_law({node * NANO: factor for node, factor in AREA_FACTORS.items()}, node_m)


def bitcell_area(node_m: Number) -> Float[Array, "*b"]:
    """Area of a high-density SRAM cell, "*b", in m^2."""
    return power_law({node * NANO: area for node, area in BITCELLS_M2.items()}, node_m)


def energy_at(node_m: Number, *, at_45_j: Number, at_7_j: Number) -> Float[Array, "*b"]:
    """Energy of an operation at a node, from what it takes at 45 nm and at 7 nm.

    Args:
        node_m: "*b", > 0.
        at_45_j, at_7_j: "*b", > 0.
    Returns:
        "*b"; a power law through both, beyond 7 nm too, and above 45 nm Stillmaker and Baas at nominal voltages.
    """
    node, older, newer = jnp.asarray(as_float(node_m)), as_float(at_45_j), as_float(at_7_j)
    share = jnp.log(node / (_OLDER * NANO)) / np.log(_NEWER / _OLDER)
    below = older * jnp.exp(share * jnp.log(jnp.asarray(newer / older)))
    factors = {
        name * NANO: float(np.polyval(ENERGY_COEFFICIENTS[name], voltage)) for name, voltage in NOMINAL_V.items()
    }
    above = older * power_law(factors, node) / factors[_OLDER * NANO]
    return jnp.where(node > _OLDER * NANO, above, below)


#: Multiplier and adder of a number format's multiply-add.
_PARTS = {
    "fp16": ("fp16 multiply", "fp32 add"),
    "int8": ("int8 multiply", "int32 add"),
    "fp32": ("fp32 multiply", "fp32 add"),
}
_READ_BYTES = 8.0


def mac_area(node_m: Number, number_format: str = "fp16") -> Float[Array, "*b"]:
    """Area of a multiplier with its adder, "*b", in m^2.

    Args:
        node_m: "*b", > 0.
        number_format: static, one of `hwmodels.chip.NUMBER_FORMATS`. bfloat16 counts as "fp16", which is somewhat too large.
    """
    return sum(ARITHMETIC_AREA_M2[name] for name in _PARTS[number_format]) * logic_area_factor(node_m)


def mac_energy(node_m: Number, number_format: str = "fp16") -> Float[Array, "*b"]:
    """Energy of one multiply-add, "*b"; arguments as of `mac_area`."""
    parts = _PARTS[number_format]
    return jnp.asarray(
        sum(energy_at(node_m, at_45_j=ARITHMETIC_J_45[name], at_7_j=ARITHMETIC_J_7[name]) for name in parts)
    )


def integer_mac_area(node_m: Number, weight_bits: Number, activation_bits: Number) -> Float[Array, "*b"]:
    """Area of an integer multiplier of two widths with an adder of 32 bits, "*b", in m^2.

    Args:
        node_m: "*b", > 0.
        weight_bits, activation_bits: "*b", > 0.
    Departs: a power law of the product of the widths through the printed 8 x 8 and 32 x 32.
    """
    areas = {size**2: ARITHMETIC_AREA_M2[f"int{size} multiply"] for size in (8, 32)}
    multiplier = power_law(areas, as_float(weight_bits) * as_float(activation_bits))
    return (multiplier + ARITHMETIC_AREA_M2["int32 add"]) * logic_area_factor(node_m)


def integer_mac_energy(node_m: Number, weight_bits: Number, activation_bits: Number) -> Float[Array, "*b"]:
    """Energy of one multiply-add of `integer_mac_area`, "*b"."""
    product = as_float(weight_bits) * as_float(activation_bits)
    at = {
        name: power_law({size**2: table[f"int{size} multiply"] for size in (8, 32)}, product) + table["int32 add"]
        for name, table in (("at_45_j", ARITHMETIC_J_45), ("at_7_j", ARITHMETIC_J_7))
    }
    return energy_at(node_m, **at)


def sram_area(node_m: Number, size_bytes: Number, *, efficiency: Number) -> Float[Array, "*b"]:
    """Area of on-chip memory, "*b", in m^2.

    Args:
        node_m: "*b", > 0.
        size_bytes: "*b", >= 0.
        efficiency: "*b", in (0, 1]; share of the area that is cells.
    """
    return bitcell_area(node_m) * (as_float(size_bytes) * BITS_PER_BYTE) / as_float(efficiency)


def sram_energy_per_byte(node_m: Number, size_bytes: Number) -> Float[Array, "*b"]:
    """Energy of reading or writing a byte of an SRAM of a size, "*b"; more in a larger one.

    Args:
        size_bytes: "*b", > 0; beyond 8 KiB to 1 MiB the slopes of the ends go on.
    """
    at = {"at_45_j": power_law(SRAM_J_45, size_bytes), "at_7_j": power_law(SRAM_J_7, size_bytes)}
    return energy_at(node_m, **at) / _READ_BYTES


def interface_area(kind: str, node_m: Number, bytes_per_s: Number) -> Float[Array, "*b"]:
    """Area on the die of interfaces of a kind with so much bandwidth together, fractions of one counted as such, "*b".

    Args:
        kind: static, one of `INTERFACES`: "hbm" or "ddr" to memories, "nvlink" to other chips.
        node_m: "*b", > 0; what is analog does not shrink.
        bytes_per_s: "*b", >= 0.
    """
    one = INTERFACES[kind]
    control = one.control_m2 * logic_area_factor(node_m) / logic_area_factor(7 * NANO)
    return as_float(bytes_per_s) / one.bytes_per_s * (one.phy_m2 + control)


_NODE_M = 28 * NANO
_VALUES_PER_CYCLE = 40 * 12.8
_AREA_M2 = 1.76e-6 / _VALUES_PER_CYCLE
_SYMBOL_J = 0.264 / (_VALUES_PER_CYCLE * 1e9)


def decoder_area_at(node_m: Number, symbols_per_cycle: Number) -> Float[Array, "*b"]:
    """Area of a decoder of so many values per cycle, "*b", in m^2; scaled as logic."""
    return as_float(symbols_per_cycle) * _AREA_M2 * logic_area_factor(node_m) / logic_area_factor(_NODE_M)


def decoder_symbol_energy_at(node_m: Number) -> Float[Array, "*b"]:
    """Energy of a decoded value, "*b"; scaled as a multiply-add."""
    return _SYMBOL_J * mac_energy(node_m) / mac_energy(_NODE_M)
