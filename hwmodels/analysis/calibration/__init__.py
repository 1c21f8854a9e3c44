"""Fitting device parameters to measured times, a module for each idea: `least_squares.fit(...)`, `splits.half_of_shapes(...)`.

The method: `least_squares` (any model), `splits` (what is held out), `report` (what was found). Measurements: `measurements`
(one's own, CSV), `kernel_tables` (those of the optional package aiconfigurator-core). Models: `gemm`, `attention`.
"""

from hwmodels.analysis.calibration import attention, gemm, kernel_tables, least_squares, measurements, report, splits

__all__ = ["attention", "gemm", "kernel_tables", "least_squares", "measurements", "report", "splits"]
