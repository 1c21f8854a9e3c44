"""Tables and the page of `jaxspec calibrate`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from jaxspec.report.columns import Column
from jaxspec.report.device_data import assumptions, device_rows
from jaxspec.report.formatting import NOT_KNOWN, fixed, quantity
from jaxspec.report.page import Drawings, Page, write_page
from jaxspec.report.section import Cell, timing
from jaxspec.report.shown import Shown
from jaxspec.report.terminal import Table
from jaxspec.results import Quantity
from jaxspec.runs.directory import RunDirectory
from jaxspec.studies.calibrate.figures import residuals_figure, rows_figure
from jaxspec.studies.calibrate.result import CalibrateResult, FittedPart

__all__ = ["calibrate_section", "calibrate_tables", "figures", "shown", "write_calibrate_report"]

_CAPTIONS = {
    "rows": "Products of matrices in a compiled loop over layers. Where kernels change or pad, time jumps: the device file "
    "carries these steps beside a smooth form.",
    "residuals": "Each point was predicted without its shape (product), its context (attention) or its network (step).",
}

_CLOSING = (
    "Each piece is timed within compiled loops, as decoding runs it, in turn with its neighbours; compilation is apart. "
    "Errors are those of groups that a fit did not see; intervals are quantiles of these errors. Whole steps include "
    "products and attention of networks that the other fits have seen."
)


def _percent(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{100 * value:.1f} %"


def _errors(
    title: str, heading: str, meaning: str, read: Callable[[FittedPart], Quantity[float]]
) -> Column[FittedPart]:
    return Column[FittedPart](title, heading, meaning, read, str, words=lambda part: _percent(read(part).number))


def _interval(part: FittedPart) -> str:
    return NOT_KNOWN if part.low.number is None else f"{part.low.known:.2f}–{part.high.known:.2f}"


def _covered(part: FittedPart) -> str:
    shares = part.covered.value or []
    return f"{', '.join(fixed(100 * share, 0) for share in shares)} %" if shares else NOT_KNOWN


#: Of a fit.
PART_COLUMNS = (
    Column[FittedPart]("times", "times", "that were fitted to", lambda part: part.times, lambda x: fixed(x, 0)),
    _errors(
        "held-out error", "held-out\nerror", "mean, of groups that the fit did not see", lambda part: part.held_out_mean
    ),
    _errors("median", "median", "of the same errors", lambda part: part.held_out_median),
    _errors("largest", "largest", "of the same errors", lambda part: part.held_out_largest),
    _errors("form alone", "form\nalone", "the same mean without measured steps of rows", lambda part: part.smooth_mean),
    Column[FittedPart](
        "90 % interval", "90 %\ninterval", "of measured over predicted", lambda part: part.low, str, words=_interval
    ),
    Column[FittedPart](
        "covered",
        "covered",
        "share of the other half's rows within each half's interval",
        lambda part: part.covered,
        str,
        words=_covered,
    ),
)


def _name(part: FittedPart) -> str:
    return f"products, {part.weight_bits:g}-bit" if part.part == "products" else str(part.part)


def calibrate_tables(result: CalibrateResult) -> list[Table]:
    """The fits, and the steps of rows."""
    table = Table(
        _headline(result),
        "times: measured; errors: of groups that the fit did not see (matrices, contexts, networks); steps are priced with all "
        "other fits",
    )
    table.add_column("part")
    for column in PART_COLUMNS:
        table.add_column(column.heading, justify="right")
    for part in result.parts:
        table.add_row(_name(part), *(column.text(part) for column in PART_COLUMNS))
    return [table, _steps_of_rows(result)]


def _steps_of_rows(result: CalibrateResult) -> Table:
    table = Table(
        "Measured steps of rows, over the smooth form",
        "median over matrices of a size; verification of x tokens is priced by them; measured",
    )
    table.add_column("weights")
    shown_rows = [1, 2, 3, 5, 8, 9, 16, 17, 32, 128]
    for count in shown_rows:
        table.add_column(f"{count}", justify="right")
    for steps in result.row_steps:
        rows = list(steps.rows.known)
        for size, factors in zip(steps.weights.known, steps.factors.known, strict=True):
            cells = [f"{factors[rows.index(c)]:.2f}" if c in rows else "" for c in shown_rows]
            table.add_row(f"{steps.weight_bits:g}-bit, {size:.2g}", *cells)
    return table


def _headline(result: CalibrateResult) -> str:
    error = result.step_error.number
    said = str(result.device_title)
    if error is not None:
        said += f": whole steps within {_percent(error)} in the mean"
        unseen = [part.held_out_mean.number for part in result.parts if part.part == "steps"]
        said += (
            f", {_percent(unseen[0])} of networks that the fit did not see" if unseen and unseen[0] is not None else ""
        )
    if result.noise is not None and not result.noise.believed.value:
        said += "; TOO BUSY TO BE BELIEVED"
    return said


def figures(result: CalibrateResult, directory: Path | None = None) -> Drawings:
    """The report's figures by name, each as a function that draws it."""
    return {"rows": lambda: rows_figure(result), "residuals": lambda: residuals_figure(result)}


def _drawn(result: CalibrateResult) -> dict[str, Figure]:
    found = {name: draw() for name, draw in figures(result).items()}
    return {name: figure for name, figure in found.items() if figure is not None}


def write_calibrate_report(result: CalibrateResult, out_dir: str | Path) -> Path:
    """Write the figures and `report.html` into a run directory; see `write_page`."""
    page = Page(
        heading="What this machine does",
        summary=(),
        section=calibrate_section,
        figures=_drawn,
        captions=_CAPTIONS,
        closing=_CLOSING,
        command="jaxspec calibrate --config config.toml",
    )
    return write_page(page, [result], out_dir)


def calibrate_section(result: CalibrateResult) -> dict[str, Any]:
    """All that the template needs, the figures apart: fits across, numbers down."""
    noise, terms = result.noise, result.engine_terms.value or {}
    said = "Times of a file: how quiet the machine was is not known." if noise is None else str(noise.words)
    busy = noise is not None and not noise.believed.value
    return {
        "title": str(result.device_title),
        "device": str(result.device_title),
        "headline": _headline(result),
        "pays": not busy,
        "provenance": result.statement or NOT_KNOWN,
        "corner": "fit",
        "columns": [_name(part) for part in result.parts],
        "best": None,
        "choice": NOT_KNOWN,
        "rows": [
            {
                "title": column.title,
                "meaning": column.meaning,
                "cells": [Cell(column.text(part), column.status(part)) for part in result.parts],
            }
            for column in PART_COLUMNS
        ],
        "ratios": [],
        "lossless": {"state": "broken" if busy else "unknown", "text": said[0].upper() + said[1:] + "."},
        "device_data": device_rows(result),
        "assumptions": assumptions(result),
        "settings": [
            ("origin", str(result.origin)),
            ("launch from Python", _time(result.launch_s.number)),
            ("turn of a loop", _time(result.turn_s.number)),
            *((f"loop {words}", _time(terms[name])) for name, words in _LOOP.items() if name in terms),
            ("compiling", _time(result.compile_s.number)),
            *((f"note {i}", note) for i, note in enumerate(result.doubts, start=1)),
        ],
        "timing": timing(result),
        "summary": [],
    }


#: Term of the loop -> what it is of.
_LOOP = {
    "cycle_s": "per cycle",
    "draft_layer_s": "per layer of the draft",
    "draft_pass_s": "per pass of the draft",
    "drafted_token_s": "per drafted token",
}


def _loop(result: CalibrateResult) -> list[str]:
    terms = result.engine_terms.value or {}
    said = [f"{_time(terms[name])} {words}" for name, words in _LOOP.items() if name in terms]
    return [f"the decoding loop spends {', '.join(said)} beside its networks (calibrated)"] if said else []


def _time(value: float | None) -> str:
    return NOT_KNOWN if value is None else quantity("_s", value)


def shown(found: tuple[CalibrateResult, RunDirectory]) -> Shown:
    """Tables for the terminal, from what `calibrate` returned."""
    result, directory = found
    quiet = [] if result.noise is None or not result.noise.believed.value else [str(result.noise.words)]
    return Shown(
        result.plain(),
        calibrate_tables(result),
        [*quiet, *_loop(result), *(f"note: {doubt}" for doubt in result.doubts)],
        f"report: {directory.path / 'report.html'}; device file: {directory.path / 'device.toml'}, and where -o said",
    )
