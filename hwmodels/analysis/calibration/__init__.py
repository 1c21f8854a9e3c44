"""Fitting device parameters to measured times, a module for each idea: `least_squares.fit(...)`, `splits.half_of_shapes(...)`.

The method: `least_squares` (any model), `splits` (what is held out), `intervals`, `report` (what was found). Measurements:
`kernel_tables` and `attention_tables` (those of the optional package aiconfigurator-core).
Models: `gemm`, `attention`.
"""

from hwmodels.analysis.calibration import (
    attention,
    attention_tables,
    gemm,
    intervals,
    kernel_tables,
    least_squares,
    report,
    splits,
)

__all__ = ["attention", "attention_tables", "gemm", "intervals", "kernel_tables", "least_squares", "report", "splits"]
