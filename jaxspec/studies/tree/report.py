"""The page of `jaxspec tree`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from jaxspec.report.device_data import assumptions, device_rows
from jaxspec.report.entries import Entry, device_title, lookup, number, provenance
from jaxspec.report.formatting import fixed, times
from jaxspec.report.notes import note_lines
from jaxspec.report.page import Page, write_page
from jaxspec.report.section import Cell, lossless_in_words, settings, timing
from jaxspec.report.shown import Shown
from jaxspec.runs.directory import RunDirectory
from jaxspec.studies.tree.figures.contexts import contexts_figure
from jaxspec.studies.tree.figures.curve import curve_figure
from jaxspec.studies.tree.figures.drawing import drawing_figure
from jaxspec.studies.tree.figures.performance import performance_figure
from jaxspec.studies.tree.tables import (
    law_in_words,
    length_in_words,
    proof_in_words,
    schedule_in_words,
    tree_headline,
    tree_tables,
)

__all__ = ["draw_tree_figures", "shown", "tree_section", "write_tree_report"]

_CAPTIONS = {
    "contexts": "What pays at each context: the length with the highest predicted speed, or plain decoding.",
    "curve": "Tokens per cycle of every beginning of the growing tree on held-out prompts; the law is fitted to few of them.",
    "performance": "Tokens per second of one sequence by the number of verified tokens. A dashed line is plain decoding at "
    "that context; where no part of a curve lies above its line, speculation does not pay.",
    "drawing": "Numbers are the draft's ranks, 0 for its likeliest token. Colour is the share of held-out roots at which the "
    "token was accepted.",
}

_CLOSING = (
    "The order in which trees grow comes from calibration text; tokens per cycle come from the ranks that the draft gave to "
    "the target's own continuation of held-out prompts, and the length is chosen on the same prompts. Keys and values of "
    "nodes of earlier draft steps are left out of the draft's traffic, and so is what a draft network computes anew after "
    "a verification."
)


def write_tree_report(entries: Sequence[Entry], out_dir: str | Path) -> Path:
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
    return write_page(page, entries, out_dir)


def draw_tree_figures(entry: Entry) -> dict[str, Figure]:
    """All figures of one device by name, without those whose data is absent."""
    drawn = {
        "contexts": contexts_figure(entry),
        "performance": performance_figure(entry),
        "curve": curve_figure(entry),
        "drawing": drawing_figure(entry),
    }
    return {name: figure for name, figure in drawn.items() if figure is not None}


def tree_section(entry: Entry) -> dict[str, Any]:
    """All that the template needs of one device, its figures apart: contexts across, numbers down."""
    rows = lookup(entry, "contexts") or []
    here = number(entry, "workload", "context_tokens")
    own = next((row["decision"] for row in rows if row["context_tokens"] == here), {})
    speedups = [(times(number(own, f"speedup_vs_{baseline}_ar")), "") for baseline in ("bf16", "stored")]
    title = tree_headline(entry)
    return {
        "title": title.partition(",")[0],
        "device": device_title(entry),
        "headline": title,
        "pays": bool(lookup(entry, "pays")),
        "provenance": provenance(entry),
        "corner": "context",
        "columns": [f"{row['context_tokens']:,}" for row in rows],
        "best": None,
        "choice": length_in_words(own) if own else "none",
        "rows": [_row(rows, *line) for line in _LINES],
        "ratios": [],
        "lossless": lossless_in_words(entry),
        "device_data": device_rows(entry),
        "assumptions": assumptions(entry),
        "settings": [
            *settings(entry),
            ("draft", str(lookup(entry, "draft", "name"))),
            ("draft steps priced as", str(lookup(entry, "draft", "priced_draft", "statement"))),
            ("search", ", ".join(f"{k} {v}" for k, v in (lookup(entry, "search") or {}).items())),
            ("schedule", schedule_in_words(entry)),
            ("law", law_in_words(entry)),
            ("proof", proof_in_words(entry).partition(": ")[2]),
        ],
        "timing": timing(entry),
        "summary": [*speedups, (fixed(number(own, "tokens_per_s"), 1), "")],
    }


_LINES = (
    ("verified tokens", "per cycle, the root included; AR: do not speculate", "predicted", length_in_words),
    ("tokens per cycle", "on held-out prompts", "measured", lambda d: fixed(number(d, "tokens_per_cycle"), 2)),
    ("tokens/s", "of one sequence", "predicted", lambda d: fixed(number(d, "tokens_per_s"), 1)),
    (
        "speedup vs bf16 AR",
        "over autoregressive decoding of the uncompressed 16-bit model",
        "predicted",
        lambda d: times(number(d, "speedup_vs_bf16_ar")),
    ),
    (
        "speedup vs stored AR",
        "over autoregressive decoding of the stored format",
        "predicted",
        lambda d: times(number(d, "speedup_vs_stored_ar")),
    ),
    (
        "best tree vs stored AR",
        "whether or not it pays",
        "predicted",
        lambda d: times(number(d, "best_tree", "speedup_vs_stored_ar")),
    ),
)


def _row(rows: Sequence[Any], title: str, meaning: str, status: str, write) -> dict[str, Any]:
    cells = [
        Cell(write(row["decision"]), status, alarm="" if row["fits"] or title != "tokens/s" else "does not fit")
        for row in rows
    ]
    return {"title": title, "meaning": meaning, "cells": cells}


def shown(found: tuple[Sequence[Entry], RunDirectory]) -> Shown:
    """Tables of a tree search for the terminal, from what `search_tree` returned."""
    entries, directory = found
    return Shown(entries, tree_tables(entries), note_lines(entries), f"report: {directory.path / 'report.html'}")
