"""The page of `jaxspec scale`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from matplotlib.figure import Figure

from jaxspec.report.columns import Column
from jaxspec.report.device_data import assumptions, device_rows
from jaxspec.report.formatting import NOT_KNOWN, fixed, times
from jaxspec.report.notes import note_lines
from jaxspec.report.page import Drawings, Page, write_page
from jaxspec.report.section import Cell, settings, timing
from jaxspec.report.shown import Shown
from jaxspec.report.titles import device_title
from jaxspec.runs.directory import RunDirectory
from jaxspec.studies.scale.columns import EXCHANGE_COLUMNS, seconds
from jaxspec.studies.scale.figures.accuracy import accuracy_figure
from jaxspec.studies.scale.figures.costs import costs_figure
from jaxspec.studies.scale.figures.exchange import exchange_figure
from jaxspec.studies.scale.result import ScaleResult
from jaxspec.studies.scale.tables import (
    accepted_by_network,
    here,
    intervals_in_words,
    named,
    plan_name,
    scale_headline,
    scale_tables,
    shown_columns,
    target_in_words,
)

__all__ = ["draw_scale_figures", "figures", "scale_section", "shown", "write_scale_report"]

R = TypeVar("R")

_CAPTIONS = {
    "accuracy": "Share of problems answered right by the number of samples. Estimates over subsets of the samples are "
    "without bias; those of beams are one search for each problem and budget.",
    "costs": "Every plan by what it takes and what it reaches. No plan beats those on the grey steps: none is as accurate at "
    "less cost.",
    "exchange": "Drafted tokens move an answer to the left and keep its accuracy; samples move it up, and to the right where "
    "the device has no rows to spare or the longest sample is long. Of the first network, at its most accurate method.",
}

_CLOSING = (
    "All samples of a problem share its prompt: it is processed once, held once and read once per step. A batch runs until "
    "its longest sample ends; of several problems together, the longest of all is waited for, and lengths of different "
    "problems are taken as independent. A step is priced at half of the answer's length. A judge is priced with the priced "
    "network's shapes unless that is the network's own, processes a sample's tokens once in as many rounds as it is asked, "
    "and keeps its own keys and values. A program that checks Python runs on the host and is not priced. Speculation verifies "
    "one chain per problem; positions beyond those measured are accepted as the last of them."
)


def write_scale_report(results: Sequence[ScaleResult], out_dir: str | Path) -> Path:
    """Write the figures and `report.html` into a run directory; see `write_page`."""
    page = Page(
        heading="Samples, or drafted tokens?",
        summary=("time of one sample", "most accurate plan over that", "speculation over that", "most accurate plan"),
        section=scale_section,
        figures=draw_scale_figures,
        captions=_CAPTIONS,
        closing=_CLOSING,
        command="jaxspec scale --config config.toml",
    )
    return write_page(page, results, out_dir)


def draw_scale_figures(result: ScaleResult) -> dict[str, Figure]:
    """All figures of one device by name, without those whose data is absent."""
    drawn = {name: draw() for name, draw in figures(result).items()}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def figures(result: ScaleResult, directory: Path | None = None) -> Drawings:
    """The report's figures of one device by name, each as a function that draws it."""
    return {
        "accuracy": lambda: accuracy_figure(result),
        "costs": lambda: costs_figure(result),
        "exchange": lambda: exchange_figure(result),
    }


def scale_section(result: ScaleResult) -> dict[str, Any]:
    """All that the template needs of one device, its figures apart: plans across, numbers down."""
    rows, best, exchanges = here(result), result.most_accurate, result.speculation.rows
    title = scale_headline(result)
    # What speculation makes of one sample, with the most rows and at the batch asked for.
    mine = [row for row in exchanges if row.batch == result.workload.batch.number]
    one = None if best is None else next(row for row in rows if (row.model, row.samples) == (best.model, 1))
    ratio = None if best is None or one is None else best.total_s.known / one.total_s.known
    drafted = {
        f"accepted by position, {name}": f"{', '.join(fixed(chance, 3) for chance in found.known)} ({found.status})"
        for name, found in accepted_by_network(result).items()
    }
    return {
        "title": title.partition(":")[0],
        "device": device_title(result),
        "headline": title,
        "pays": bool(result.pays.value),
        "provenance": result.statement or NOT_KNOWN,
        "corner": "plan",
        "columns": [plan_name(row, result) for row in rows],
        "best": None,
        "choice": NOT_KNOWN if best is None else plan_name(best, result),
        "rows": [_row(rows, column) for column in shown_columns(rows)],
        "more_tables": [
            {
                "title": "The same matrix rows, for drafted tokens or for samples (batch x rows)",
                "corner": "batch x rows",
                "columns": [named(f"{row.batch} x {row.rows}", row.model, result) for row in exchanges],
                "rows": [_row(exchanges, column) for column in EXCHANGE_COLUMNS],
            }
        ]
        if exchanges
        else [],
        "ratios": [],
        "lossless": {"state": "unknown", "text": _samples_in_words(result)},
        "device_data": device_rows(result),
        "assumptions": assumptions(result),
        "settings": [
            *settings(result, **_task(result)),
            ("draft", str(result.speculation.draft)),
            *drafted.items(),
            *([("target", words)] if (words := target_in_words(result)) else []),
            *(("intervals", words) for words in intervals_in_words(result)),
        ],
        "timing": timing(result),
        "summary": [
            (NOT_KNOWN if one is None else seconds(one.total_s.known), ""),
            (times(ratio), ""),
            (times(mine[-1].speedup.number) if mine else NOT_KNOWN, ""),
        ],
    }


def _row(rows: Sequence[R], column: Column[R]) -> dict[str, Any]:
    cells = [Cell(column.text(row), column.status(row)) for row in rows]
    return {"title": column.title, "meaning": column.meaning, "cells": cells}


def _task(result: ScaleResult) -> dict[str, str | None]:
    task = result.task
    return {
        "task": f"{task.name}, {task.check}" if task.check else task.name,
        "score": task.score if task.judge is None else f"{task.score}, {task.judge}",
    }


def _samples_in_words(result: ScaleResult) -> str:
    ends = ", ".join(
        f"{100 * network.ended.known:.0f} %{f' of {network.name}' if len(result.networks) > 1 else ''}"
        for network in result.networks
    )
    return (
        f"{result.task.samples.value} samples of each of {result.task.problems.value} problems; {ends} have an end within "
        f"{result.task.output_tokens.value} tokens (measured). A sample without an end is not right. Sample i is the same to "
        "the last bit whatever number of samples is asked for."
    )


def shown(found: tuple[Sequence[ScaleResult], RunDirectory]) -> Shown:
    """Tables of plans for the terminal, from what `scale` returned."""
    results, directory = found
    return Shown(
        [result.plain() for result in results],
        scale_tables(results),
        note_lines(results),
        f"report: {directory.path / 'report.html'}",
    )
