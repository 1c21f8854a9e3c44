"""The report of a tuning run: one page that needs nothing but itself, and its figures as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from jaxspec.report.figures.operator_time import operator_time_figure
from jaxspec.report.figures.roofline import roofline_figure
from jaxspec.report.figures.tokens import tokens_figure
from jaxspec.report.page import Drawings, Page, render_page, write_page
from jaxspec.report.shown import Shown
from jaxspec.report.stopwatch import STOPWATCH_CAPTION, stopwatch_figure, stopwatch_tables
from jaxspec.report.table import tables
from jaxspec.runs.directory import RunDirectory, read_metrics
from jaxspec.studies.tune.figures import acceptance_figure, convergence_figure, knobs_figure
from jaxspec.studies.tune.result import TuneResult
from jaxspec.studies.tune.section import section
from jaxspec.studies.tune.told import told_lines

#: The complete, resolved configuration lies beside the report.
DEFAULT_COMMAND = "jaxspec tune --config config.toml"

#: Figure -> what it shows, in a sentence under it.
_CAPTIONS = {
    "acceptance": "Each point of the grid is one pair of knobs for all matrices, measured on calibration text; the "
    "configurations are measured on held-out prompts. Up and left is better; what is fastest depends on the device too. The "
    "ring is what Cassandra's objective J (Eq. 2) would choose, which knows no device.",
    "knobs": "What the tuned draft leaves out of each matrix, and of keys and values. These are settings, not results.",
    "convergence": "Rising lines are the draft as the optimiser sees it, with smooth masks and bits; level lines are the hard, "
    "bit-exact configurations that are reported.",
    "tokens": "Both on the same prompts. The expected number follows from the acceptance at each position, the counted "
    "one is what decoding really yielded.",
    "roofline": "A step is a mixture of operators, so its point may lie below the roof although each operator touches it.",
    "operator_time": "One bar is one step; a cycle is several draft steps and one verification.",
    "stopwatch": STOPWATCH_CAPTION,
}

_CLOSING = (
    "Smooth masks and bit widths serve the search only: every number of a configuration is that of the hard, bit-exact one. "
    "Speedups of a configuration take the tokens per cycle that were counted in decoding held-out prompts, and predicted "
    "times; those of grid points, and of every step of the search, take the acceptance on calibration text."
)


def write_report(
    results: Sequence[TuneResult],
    metrics: Sequence[Mapping[str, Any]],
    out_dir: str | Path,
    *,
    command: str = DEFAULT_COMMAND,
    config_toml: str | None = None,
) -> Path:
    """Write `figures/<device>-<figure>.svg` and `report.html` into a directory; each file is whole or absent.

    Args:
        results: one per device, as in result.json.
        metrics: lines with device, stage, step, speedup and temperature, of all devices.
        out_dir: made where it does not exist.
        command: what reproduces the result.
        config_toml: the resolved configuration, shown in the report; that of `out_dir`/config.toml where it exists,
            unless given.
    Returns:
        The path of the page.
    """
    return write_page(_page(metrics, command), results, out_dir, config_toml=config_toml)


def report_html(
    results: Sequence[TuneResult],
    metrics: Sequence[Mapping[str, Any]],
    *,
    command: str = DEFAULT_COMMAND,
    config_toml: str | None = None,
) -> str:
    """The page as text; arguments as in `write_report`."""
    return render_page(_page(metrics, command), results, config_toml=config_toml)


def draw_figures(result: TuneResult, metrics: Sequence[Mapping[str, Any]]) -> dict[str, Figure]:
    """All figures of one device by name, without those whose data is absent."""
    drawn = {name: draw() for name, draw in _drawings(result, metrics).items()}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def _drawings(result: TuneResult, metrics: Sequence[Mapping[str, Any]]) -> Drawings:
    return {
        "acceptance": lambda: acceptance_figure(result),
        "knobs": lambda: knobs_figure(result),
        "convergence": lambda: convergence_figure(result, metrics),
        "tokens": lambda: tokens_figure(result),
        "roofline": lambda: roofline_figure(result),
        "operator_time": lambda: operator_time_figure(result),
        "stopwatch": lambda: stopwatch_figure(result),
    }


def figures(result: TuneResult, directory: Path | None) -> Drawings:
    """The report's figures of one device by name, each as a function that draws it."""
    return _drawings(result, [] if directory is None else read_metrics(directory))


def _page(metrics: Sequence[Mapping[str, Any]], command: str) -> Page[TuneResult]:
    return Page(
        heading="Which draft pays?",
        summary=("tuned vs bf16 AR", "tuned vs stored AR", "tuned vs grid", "tuned vs default", "draft that pays"),
        section=section,
        figures=lambda result: draw_figures(result, metrics),
        captions=_CAPTIONS,
        closing=_CLOSING,
        command=command,
    )


def shown(found: tuple[Sequence[TuneResult], RunDirectory]) -> Shown:
    """Tables of a tuning run for the terminal, from what `tune` returned."""
    results, directory = found
    return Shown(
        [result.plain() for result in results],
        [*tables(results), *stopwatch_tables(results)],
        told_lines(results, directory.path),
        f"report: {directory.path / 'report.html'}",
    )
