"""The page of `jaxspec tree`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from jaxspec.report.columns import Column
from jaxspec.report.device_data import assumptions, device_rows
from jaxspec.report.formatting import fixed, times
from jaxspec.report.notes import note_lines
from jaxspec.report.page import Drawings, Page, write_page
from jaxspec.report.section import Cell, lossless_in_words, settings, timing
from jaxspec.report.shown import Shown
from jaxspec.report.stopwatch import (
    STOPWATCH_CAPTION,
    stopwatch_figure,
    stopwatch_page_tables,
    stopwatch_tables,
)
from jaxspec.report.titles import device_title
from jaxspec.runs.directory import RunDirectory
from jaxspec.studies.tree.columns import CONTEXT_COLUMNS, TOKENS_PER_S, length_in_words
from jaxspec.studies.tree.figures.contexts import contexts_figure
from jaxspec.studies.tree.figures.curve import curve_figure
from jaxspec.studies.tree.figures.drawing import drawing_figure
from jaxspec.studies.tree.figures.performance import performance_figure
from jaxspec.studies.tree.result import ContextChoice, ContextRow, TreeResult
from jaxspec.studies.tree.tables import (
    chain_in_words,
    choice_here,
    intervals_in_words,
    law_in_words,
    proof_in_words,
    schedule_in_words,
    tree_headline,
    tree_provenance,
    tree_tables,
)

__all__ = ["draw_tree_figures", "figures", "shown", "tree_section", "write_tree_report"]

_CAPTIONS = {
    "contexts": "What pays at each context: the length with the highest predicted speed, or plain decoding.",
    "curve": "Tokens per cycle of every beginning of the growing tree on held-out prompts; the law is fitted to few of them.",
    "performance": "Tokens per second of one sequence by the number of verified tokens. A dashed line is plain decoding at "
    "that context; where no part of a curve lies above its line, speculation does not pay.",
    "drawing": "Numbers are the draft's ranks, 0 for its likeliest token. Colour is the share of held-out roots at which the "
    "token was accepted.",
    "stopwatch": STOPWATCH_CAPTION,
}

_CLOSING = (
    "The order in which trees grow comes from calibration text; tokens per cycle come from the ranks that the draft gave to "
    "the target's own continuation of held-out prompts, and the length is chosen on the same prompts. Keys and values of "
    "nodes of earlier draft steps are left out of the draft's traffic, and so is what a draft network computes anew after "
    "a verification."
)


def write_tree_report(results: Sequence[TreeResult], out_dir: str | Path) -> Path:
    """Write the figures and `report.html` into a run directory; see `write_page`."""
    page = Page(
        heading="Which tree pays?",
        summary=("vs bf16 AR", "vs stored AR", "tokens/s", "verify tokens"),
        section=tree_section,
        figures=draw_tree_figures,
        captions=_CAPTIONS,
        closing=_CLOSING,
        command="jaxspec tree --config config.toml",
    )
    return write_page(page, results, out_dir)


def draw_tree_figures(result: TreeResult) -> dict[str, Figure]:
    """All figures of one device by name, without those whose data is absent."""
    drawn = {name: draw() for name, draw in figures(result).items()}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def figures(result: TreeResult, directory: Path | None = None) -> Drawings:
    """The report's figures of one device by name, each as a function that draws it."""
    return {
        "contexts": lambda: contexts_figure(result),
        "performance": lambda: performance_figure(result),
        "curve": lambda: curve_figure(result),
        "drawing": lambda: drawing_figure(result),
        "stopwatch": lambda: stopwatch_figure(result),
    }


def tree_section(result: TreeResult) -> dict[str, Any]:
    """All that the template needs of one device, its figures apart: contexts across, numbers down."""
    own = choice_here(result)
    decided = own or ContextChoice()
    title = tree_headline(result)
    search = {name: value for name, value in result.search.plain().items() if value is not None}
    return {
        "title": title.partition(",")[0],
        "device": device_title(result),
        "headline": title,
        "pays": bool(result.pays.value),
        "provenance": tree_provenance(result),
        "corner": "context",
        "columns": [f"{row.context_tokens:,}" for row in result.contexts],
        "best": None,
        "choice": length_in_words(own) if own else "none",
        "rows": [_row(result.contexts, column) for column in CONTEXT_COLUMNS],
        "ratios": [],
        "lossless": lossless_in_words(result.lossless),
        "more_tables": stopwatch_page_tables(result),
        "device_data": device_rows(result),
        "assumptions": assumptions(result),
        "settings": [
            *settings(result),
            ("draft", str(result.draft.name)),
            ("draft steps priced as", str(result.draft.priced_draft.statement)),
            ("search", ", ".join(f"{name} {value}" for name, value in search.items())),
            *(("tree or chain", words) for words in [chain_in_words(result)] if words),
            ("schedule", schedule_in_words(result)),
            ("law", law_in_words(result)),
            *(("intervals", words) for words in intervals_in_words(result)),
            ("proof", proof_in_words(result).partition(": ")[2]),
        ],
        "timing": timing(result),
        "summary": [
            (times(decided.speedup_vs_bf16_ar.number), ""),
            (times(decided.speedup_vs_stored_ar.number), ""),
            (fixed(decided.tokens_per_s.number, 1), ""),
        ],
    }


def _row(rows: Sequence[ContextRow], column: Column[ContextRow]) -> dict[str, Any]:
    alarm = lambda row: "does not fit" if column is TOKENS_PER_S and not row.fits.value else ""
    cells = [Cell(column.text(row), column.status(row), alarm=alarm(row)) for row in rows]
    return {"title": column.title, "meaning": column.meaning, "cells": cells}


def shown(found: tuple[Sequence[TreeResult], RunDirectory]) -> Shown:
    """Tables of a tree search for the terminal, from what `search_tree` returned."""
    results, directory = found
    return Shown(
        [result.plain() for result in results],
        [*tree_tables(results), *stopwatch_tables(results)],
        note_lines(results),
        f"report: {directory.path / 'report.html'}",
    )
