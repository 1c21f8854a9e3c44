"""What `jaxspec evaluate` shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jaxspec.report.configurations import operator_time_figure, roofline_figure, tables, tokens_figure
from jaxspec.report.page import Drawings
from jaxspec.report.stopwatch import stopwatch_figure, stopwatch_tables
from jaxspec.report.terminal import Shown, shown_run
from jaxspec.runs.directory import RunDirectory
from jaxspec.studies.evaluate.result import EvaluateResult


def shown(run: tuple[Sequence[EvaluateResult], RunDirectory]) -> Shown:
    """Tables of one draft for the terminal, from what `evaluate` returned."""
    return shown_run(run, [*tables(run[0]), *stopwatch_tables(run[0])], page="result.json")


def figures(result: EvaluateResult, directory: Path | None = None) -> Drawings:
    """Figures of one device by name, each as a function that draws it."""
    del directory
    return {
        "tokens": lambda: tokens_figure(result),
        "roofline": lambda: roofline_figure(result),
        "operator_time": lambda: operator_time_figure(result, compared=("given",)),
        "stopwatch": lambda: stopwatch_figure(result),
    }
