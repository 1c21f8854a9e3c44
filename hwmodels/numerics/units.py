"""Scaled units, once. Code computes in SI; these appear where data sheets are read and where numbers are printed."""

from __future__ import annotations

import math

BITS_PER_BYTE = 8.0

KB = 1e3
MB = 1e6
GB = 1e9
TB = 1e12

KIB = 2.0**10
MIB = 2.0**20
GIB = 2.0**30

MEGA = 1e6
GIGA = 1e9
TERA = 1e12

MILLI = 1e-3
MICRO = 1e-6
NANO = 1e-9


def engineering(value: float, digits: int = 10) -> str:
    """A number as engineers and files write it: 165.2e12, 14336, 2.2e-6."""
    if value == 0 or not math.isfinite(value) or 1e-3 <= abs(value) < 1e6:
        return f"{value:.0f}" if 10.0**digits <= abs(value) < 1e6 else f"{value:.{digits}g}"
    power = 3 * math.floor(math.log10(abs(value)) / 3)
    return f"{value / 10.0**power:.{digits}g}e{power}"
