"""Figures of tuning: pure functions from a result to a matplotlib figure, or None where the data is absent."""

from jaxspec.studies.tune.figures.acceptance import acceptance_figure
from jaxspec.studies.tune.figures.convergence import convergence_figure
from jaxspec.studies.tune.figures.knobs import knobs_figure

__all__ = [
    "acceptance_figure",
    "convergence_figure",
    "knobs_figure",
]
