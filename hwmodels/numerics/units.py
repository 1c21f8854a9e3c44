"""Scaled units, once. Code computes in SI; these appear where data sheets are read and where numbers are printed."""

from __future__ import annotations

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
