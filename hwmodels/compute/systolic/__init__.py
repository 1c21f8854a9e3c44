"""Systolic arrays: `array` (the array and its cycles), `buffers` (what they read and write), `cost` (time and energy)."""

from hwmodels.compute.systolic import array, buffers, cost

__all__ = ["array", "buffers", "cost"]
