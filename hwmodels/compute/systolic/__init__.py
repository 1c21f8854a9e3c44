"""Systolic arrays: `array` (the array and its cycles), `buffers` (what they read and write), `unit` (time and energy;
the array as part of a device)."""

from hwmodels.compute.systolic import array, unit

__all__ = ["array", "unit"]
