"""Area and energy of the blocks of a chip at a node: multiply-adds, SRAM, interfaces.

Sources: `hwmodels.chip.published`. An array's element is a multiplier and an adder of the accumulated width; its registers
count among what is beside (`Technology.other_area_share`).
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.chip.nodes import bitcell_area, energy_at, logic_area_factor, power_law
from hwmodels.chip.published import (
    ARITHMETIC_AREA_M2,
    ARITHMETIC_J_7,
    ARITHMETIC_J_45,
    INTERFACES,
    SRAM_J_7,
    SRAM_J_45,
)
from hwmodels.numerics.scalars import Number, as_float
from hwmodels.numerics.units import BITS_PER_BYTE, NANO

__all__ = [
    "integer_mac_area",
    "integer_mac_energy",
    "interface_area",
    "mac_area",
    "mac_energy",
    "sram_area",
    "sram_energy_per_byte",
]

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
