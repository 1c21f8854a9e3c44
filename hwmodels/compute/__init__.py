"""Compute units, a module for each idea: `systolic_array.cycles(...)`, `systolic_cost.gemm_cost(...)`.

Systolic arrays: `systolic_array` (the array and its cycles), `systolic_buffers` (what they read and write), `systolic_cost`
(time and energy). Shared by all units: `folds` (how often a tile covers an extent).
"""

from hwmodels.compute import folds, systolic_array, systolic_buffers, systolic_cost

__all__ = ["folds", "systolic_array", "systolic_buffers", "systolic_cost"]
