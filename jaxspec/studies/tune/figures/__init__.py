"""Figures of tuning: pure functions from a result to a matplotlib figure, or None where the data is absent."""

from jaxspec.studies.tune.figures.acceptance import acceptance_figure
from jaxspec.studies.tune.figures.convergence import convergence_figure
from jaxspec.studies.tune.figures.knobs import knobs_figure
from jaxspec.studies.tune.figures.operator_time import operator_time_figure
from jaxspec.studies.tune.figures.roofline import roofline_figure
from jaxspec.studies.tune.figures.tokens import tokens_figure

__all__ = [
    "acceptance_figure",
    "convergence_figure",
    "knobs_figure",
    "operator_time_figure",
    "roofline_figure",
    "tokens_figure",
]
