"""Printed figures that areas, energies and prices of chips follow from; `published.toml` has their sources. None is fitted."""

from __future__ import annotations

from typing import Any, NamedTuple

from hwmodels.tables import read_table

__all__ = [
    "AREA_FACTORS",
    "ARITHMETIC_AREA_M2",
    "ARITHMETIC_J_7",
    "ARITHMETIC_J_45",
    "BITCELLS_M2",
    "ENERGY_COEFFICIENTS",
    "FPGA_AREA",
    "FPGA_POWER",
    "INTERFACES",
    "MEMORY_USD_PER_BYTE",
    "NOMINAL_V",
    "SRAM_J_7",
    "SRAM_J_45",
    "WAFER_USD",
    "Interface",
]


class Interface(NamedTuple):
    """One channel to a memory or to another chip."""

    bytes_per_s: float
    phy_m2: float  # analog: the same at every node
    control_m2: float  # at 7 nm


_PRINTED: dict[str, dict[str, Any]] = read_table(__package__, "published.toml")


def _by_number(name: str) -> dict[int, Any]:
    """A table of `published.toml` by whole numbers: nodes in nm, or bytes."""
    return {int(number): value for number, value in _PRINTED[name].items()}


#: Area of the same logic over that at 45 nm, by node in nm.
AREA_FACTORS: dict[int, float] = _by_number("area_factors")

#: Energy of an operation relative to others of the table, b2 V^2 + b1 V + b0, by node in nm; below 65 nm of fast devices.
ENERGY_COEFFICIENTS = {node: tuple(numbers) for node, numbers in _by_number("energy_coefficients").items()}

#: Supply voltages of the predictive technology models that those coefficients are fitted to, by node in nm.
NOMINAL_V: dict[int, float] = _by_number("nominal_v")

#: Area at 45 nm by operation.
ARITHMETIC_AREA_M2: dict[str, float] = _PRINTED["arithmetic_area_m2"]

#: Energy at 45 nm and 0.9 V by operation.
ARITHMETIC_J_45: dict[str, float] = _PRINTED["arithmetic_j_45"]
#: The same at 7 nm.
ARITHMETIC_J_7: dict[str, float] = _PRINTED["arithmetic_j_7"]

#: Energy of reading 64 bits of an SRAM, by its bytes, at 45 nm.
SRAM_J_45: dict[int, float] = _by_number("sram_j_45")
#: The same at 7 nm.
SRAM_J_7: dict[int, float] = _by_number("sram_j_7")

#: Area of a high-density SRAM cell, by node in nm.
BITCELLS_M2: dict[int, float] = _by_number("bitcells_m2")

#: Channels by kind.
INTERFACES = {kind: Interface(**numbers) for kind, numbers in _PRINTED["interfaces"].items()}

#: Price of memory by kind.
MEMORY_USD_PER_BYTE: dict[str, float] = _PRINTED["memory_usd_per_byte"]

#: Price of a wafer of 300 mm, by node in nm.
WAFER_USD: dict[int, float] = _by_number("wafer_usd")

#: An FPGA with hard blocks beside an ASIC of the same node: 18 times the area, 14 times the dynamic power.
#: Kuon and Rose 2007, doi:10.1109/TCAD.2006.884574, abstract.
FPGA_AREA = 18.0
#: See `FPGA_AREA`.
FPGA_POWER = 14.0
