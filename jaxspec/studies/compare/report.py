"""The page of `jaxspec compare`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from jaxspec.report.columns import shown_columns
from jaxspec.report.device_data import assumptions, device_rows
from jaxspec.report.formatting import NOT_KNOWN, fixed, times
from jaxspec.report.notes import note_lines
from jaxspec.report.page import Drawings, Page, write_page
from jaxspec.report.section import Cell, lossless_in_words, settings, timing
from jaxspec.report.shown import Shown
from jaxspec.report.stopwatch import STOPWATCH_CAPTION, stopwatch_figure, stopwatch_page_tables, stopwatch_tables
from jaxspec.report.titles import device_title, provenance
from jaxspec.runs.directory import RunDirectory
from jaxspec.studies.compare.columns import PAGE_COLUMNS
from jaxspec.studies.compare.figures.quality import quality_figure
from jaxspec.studies.compare.figures.speedups import speedups_figure
from jaxspec.studies.compare.result import CompareResult, Contestant
from jaxspec.studies.compare.tables import (
    by_speed,
    compare_headline,
    compare_tables,
    gaps_in_words,
    intervals_in_words,
    task_in_words,
)

__all__ = ["compare_section", "draw_compare_figures", "figures", "shown", "write_compare_report"]

_CAPTIONS = {
    "speedups": "Speed over autoregressive decoding of the 16-bit network, with 95 % intervals over prompts where a draft was "
    "counted. Light bars decode another network.",
    "quality": "Speed against bits per byte of held-out prompts. Drafts on the dashed line give the 16-bit network's own "
    "output; compression trades quality for speed.",
    "stopwatch": STOPWATCH_CAPTION,
}

_CLOSING = (
    "Every draft proposes a chain, of the length that is predicted to be the fastest on calibration text; held-out prompts "
    "are decoded with it. A self-draft's target is the network as its scheme stores it, which is another network where the "
    "scheme is not lossless. Compression without a draft is plain decoding of fewer bits: its activations, keys and values "
    "stay in 16 bits unless the table says otherwise, and what undoing a scale or a rotation takes is left out. A sparse "
    "cache is read as the same share of the priced context as of the measured one. Skipped blocks take no time. What a draft "
    "network computes anew after a verification is left out."
)


def write_compare_report(results: Sequence[CompareResult], out_dir: str | Path) -> Path:
    """Write the figures and `report.html` into a run directory; see `write_page`."""
    page = Page(
        heading="Which way of decoding is the fastest?",
        summary=("vs bf16 AR", "95 %", "tokens per cycle", "fastest with exact output"),
        section=compare_section,
        figures=draw_compare_figures,
        captions=_CAPTIONS,
        closing=_CLOSING,
        command="jaxspec compare --config config.toml",
    )
    return write_page(page, results, out_dir)


def draw_compare_figures(result: CompareResult) -> dict[str, Figure]:
    """All figures of one device by name, without those whose data is absent."""
    drawn = {name: draw() for name, draw in figures(result).items()}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def figures(result: CompareResult, directory: Path | None = None) -> Drawings:
    """The report's figures of one device by name, each as a function that draws it."""
    return {
        "speedups": lambda: speedups_figure(result),
        "quality": lambda: quality_figure(result),
        "stopwatch": lambda: stopwatch_figure(result),
    }


def compare_section(result: CompareResult) -> dict[str, Any]:
    """All that the template needs of one device, its figures apart: ways to decode across, numbers down."""
    found = by_speed(result)
    best = result.contestants.get(result.best or "", Contestant())
    low, high = best.speedup_low.number, best.speedup_high.number
    statements = {name: each.statement for name, each in found.items() if each.statement}
    return {
        "title": compare_headline(result).partition(":")[0],
        "device": device_title(result),
        "headline": compare_headline(result),
        "pays": bool(result.pays.value),
        "provenance": provenance(result),
        "corner": "way to decode",
        "columns": list(found),
        "best": result.best,
        "choice": result.best or NOT_KNOWN,
        "rows": [_row(found, column) for column in shown_columns(PAGE_COLUMNS, found.values())],
        "ratios": [],
        "lossless": lossless_in_words(result.lossless),
        "more_tables": stopwatch_page_tables(result),
        "device_data": device_rows(result),
        "assumptions": assumptions(result),
        "settings": [
            *settings(result),
            *((f"{name} is", str(statement)) for name, statement in statements.items()),
            *((f"{name} is left out", reason) for name, reason in result.left_out.items()),
            *(("intervals", line) for line in intervals_in_words(result)),
            *(("problems", line) for line in task_in_words(result)),
            *(("defect", line) for line in gaps_in_words(result)),
        ],
        "timing": timing(result),
        "summary": [
            (times(best.speedup_vs_bf16_ar.number), ""),
            (NOT_KNOWN if low is None else f"{fixed(low, 2)} to {fixed(high, 2)}", ""),
            (fixed(best.tokens_per_cycle_counted.number, 2), ""),
        ],
    }


def _row(found: dict[str, Contestant], column: Any) -> dict[str, Any]:
    cells = [Cell(column.text(each), column.status(each)) for each in found.values()]
    return {"title": column.title, "meaning": column.meaning, "cells": cells}


def shown(found: tuple[Sequence[CompareResult], RunDirectory]) -> Shown:
    """Tables of a comparison for the terminal, from what `compare` returned."""
    results, directory = found
    return Shown(
        [result.plain() for result in results],
        [*compare_tables(results), *stopwatch_tables(results)],
        note_lines(results),
        f"report: {directory.path / 'report.html'}",
    )
