"""Systolic arrays: `array` (the array and its cycles), `buffers` (what they read and write), `cost` (time and energy), `unit`
(the array as part of a device)."""

from hwmodels.compute.systolic import array, buffers, cost, unit

__all__ = ["array", "buffers", "cost", "unit"]
