"""Printed figures that areas, energies and prices of chips follow from, each with its source; nothing here is fitted."""

from __future__ import annotations

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

from typing import NamedTuple

#: Area of the same logic over that at 45 nm, by node in nm.
#: Stillmaker and Baas 2017, doi:10.1016/j.vlsi.2017.02.002, table of area scaling factors (of and to 45 nm).
AREA_FACTORS = {
    180: 19.0,
    130: 6.4,
    90: 2.8,
    65: 1.5,
    45: 1.0,
    32: 0.46,
    20: 0.21,
    16: 0.19,
    14: 0.17,
    10: 0.10,
    7: 0.059,
}

#: Energy of an operation relative to others of the table, b2 V^2 + b1 V + b0, by node in nm; below 65 nm of fast devices.
#: Stillmaker and Baas 2017, table of coefficients of the energy factor.
ENERGY_COEFFICIENTS = {
    180: (0.0, 24.64, -17.98),
    130: (7.171, -6.709, 2.904),
    90: (4.762, -4.781, 2.092),
    65: (3.755, -4.398, 1.975),
    45: (1.018, -0.3107, 0.1539),
    32: (0.8367, -0.4341, 0.1701),
    20: (0.373, -0.1582, 0.04104),
    16: (0.2958, -0.1241, 0.03024),
    14: (0.2363, -0.09675, 0.02239),
    10: (0.2068, -0.09311, 0.02375),
    7: (0.1776, -0.09097, 0.02447),
}

#: Supply voltages of the predictive technology models that those coefficients are fitted to, by node in nm.
#: 45 nm: that of Horowitz's energies, 0.9 V. Others: ptm.asu.edu, nominal.
NOMINAL_V = {180: 1.8, 130: 1.3, 90: 1.2, 65: 1.1, 45: 0.9}

#: Area at 45 nm by operation. Horowitz 2014, doi:10.1109/ISSCC.2014.6757323, as printed in Sze et al. 2017, arXiv:1703.09039,
#: table of energy and area (synthesised, 45 nm).
ARITHMETIC_AREA_M2 = {
    "int8 add": 36e-12,
    "int16 add": 67e-12,
    "int32 add": 137e-12,
    "fp16 add": 1360e-12,
    "fp32 add": 4184e-12,
    "int8 multiply": 282e-12,
    "int32 multiply": 3495e-12,
    "fp16 multiply": 1640e-12,
    "fp32 multiply": 7700e-12,
}

#: Energy at 45 nm and 0.9 V by operation. Horowitz 2014, Fig. 1.1.9.
ARITHMETIC_J_45 = {
    "int8 add": 0.03e-12,
    "int32 add": 0.1e-12,
    "fp16 add": 0.4e-12,
    "fp32 add": 0.9e-12,
    "int8 multiply": 0.2e-12,
    "int32 multiply": 3.1e-12,
    "fp16 multiply": 1.1e-12,
    "fp32 multiply": 3.7e-12,
}

#: The same at 7 nm. Jouppi et al. 2021, doi:10.1109/ISCA52012.2021.00010, Table 2.
ARITHMETIC_J_7 = {
    "int8 add": 0.007e-12,
    "int32 add": 0.03e-12,
    "fp16 add": 0.16e-12,
    "fp32 add": 0.38e-12,
    "int8 multiply": 0.07e-12,
    "int32 multiply": 1.48e-12,
    "fp16 multiply": 0.34e-12,
    "fp32 multiply": 1.31e-12,
}

#: Energy of reading 64 bits of an SRAM, by its bytes. 45 nm: Horowitz 2014, Fig. 1.1.9; 7 nm: Jouppi et al. 2021, Table 2.
SRAM_J_45 = {8 * 2**10: 10e-12, 32 * 2**10: 20e-12, 2**20: 100e-12}
#: See `SRAM_J_45`.
SRAM_J_7 = {8 * 2**10: 7.5e-12, 32 * 2**10: 8.5e-12, 2**20: 14e-12}

#: Area of a high-density SRAM cell, by node in nm. All but the last: titles and abstracts of IEDM papers, those of 90 to
#: 32 and 14 nm by Intel (2002, 2004, 2007, 2008, 2014), those of 16, 7 and 5 nm by TSMC (2013, 2016, 2019); 3 nm: TSMC
#: N3B, IEDM 2022.
BITCELLS_M2 = {
    90: 1.0e-12,
    65: 0.57e-12,
    45: 0.346e-12,
    32: 0.171e-12,
    16: 0.07e-12,
    14: 0.0588e-12,
    7: 0.027e-12,
    5: 0.021e-12,
    3: 0.0199e-12,
}


class Interface(NamedTuple):
    """One channel to a memory or to another chip."""

    bytes_per_s: float
    phy_m2: float  # analog: the same at every node
    control_m2: float  # at 7 nm


#: By kind. LLMCompass (Zhang et al., ISCA 2024, doi:10.1109/ISCA59077.2024.00082), Table II and its published cost model:
#: a stack of 1024 bits of HBM2e (the A100's five give 2039 GB/s), 32 bits of DDR5 (4800 MT/s), a link of NVLink 4 (50
#: GB/s both ways).
INTERFACES = {
    "hbm": Interface(407.8e9, 10.45e-6, 5.7e-6),
    "ddr": Interface(19.2e9, 1.45e-6, 0.933e-6),
    "nvlink": Interface(50e9, 0.965e-6, 0.893e-6),
}

#: Price of memory by kind: average spot prices of October 2023 in LLMCompass's cost model, 7 and 2.4 USD per GB.
MEMORY_USD_PER_BYTE = {"hbm": 7e-9, "ddr": 2.4e-9}

#: Price of a wafer of 300 mm, by node in nm. Khan and Mann 2020, "AI chips: what they are and why they matter" (CSET), Table 9.
WAFER_USD = {90: 1650.0, 16: 3984.0, 10: 5992.0, 7: 9346.0, 5: 16988.0}

#: An FPGA with hard blocks beside an ASIC of the same node: 18 times the area, 14 times the dynamic power.
#: Kuon and Rose 2007, doi:10.1109/TCAD.2006.884574, abstract.
FPGA_AREA = 18.0
#: See `FPGA_AREA`.
FPGA_POWER = 14.0
