"""Figures of a tuning run: pure functions from result data to a matplotlib figure, or None where the data is absent."""

from jaxspec.report.figures.acceptance import acceptance_figure
from jaxspec.report.figures.convergence import convergence_figure
from jaxspec.report.figures.knobs import knobs_figure
from jaxspec.report.figures.operator_time import operator_time_figure
from jaxspec.report.figures.roofline import roofline_figure
from jaxspec.report.figures.tokens import tokens_figure

__all__ = [
    "acceptance_figure",
    "convergence_figure",
    "knobs_figure",
    "operator_time_figure",
    "roofline_figure",
    "tokens_figure",
]
