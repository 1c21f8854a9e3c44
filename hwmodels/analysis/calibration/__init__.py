"""Fitting device parameters to measured times, a module for each idea: `least_squares.fit(...)`, `report.half_of_shapes(...)`.

The method: `least_squares` (any model), `report` (what is held out, intervals, what was found). Measurements:
`kernel_tables` (those of the optional package aiconfigurator-core). Models: `gemm`, `attention` (with its tables).
"""

from hwmodels.analysis.calibration import attention, gemm, kernel_tables, least_squares, report

__all__ = [
    "attention",
    "gemm",
    "kernel_tables",
    "least_squares",
    "report",
]
