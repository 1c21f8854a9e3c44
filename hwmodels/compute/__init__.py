"""Compute units, a module for each: `systolic.array.cycles(...)`, `systolic.unit.gemm_cost(...)`."""

from hwmodels.compute import systolic

__all__ = ["systolic"]
