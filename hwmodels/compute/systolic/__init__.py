"""Systolic arrays: `array` (the array, its cycles, what its buffers read and write), `unit` (time and energy; the array as
part of a device)."""

from hwmodels.compute.systolic import array, unit

__all__ = ["array", "unit"]
