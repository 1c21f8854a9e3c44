"""What `jaxspec advise` shows: a sentence, a row per batch, and how engines are started."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jaxspec.report.columns import shown_columns
from jaxspec.report.notes import note_lines
from jaxspec.report.page import Drawings
from jaxspec.report.shown import Shown
from jaxspec.report.terminal import Table
from jaxspec.runs.directory import RunDirectory
from jaxspec.studies.advise.columns import BATCH_COLUMNS
from jaxspec.studies.advise.figures import gain_figure, limits_figure
from jaxspec.studies.advise.result import AdviseResult
from jaxspec.studies.advise.words import (
    acceptance_in_words,
    advice_in_words,
    caption,
    command_lines,
    without_command,
)

__all__ = ["advice_table", "figures", "shown"]


def advice_table(result: AdviseResult, title: str | None = None) -> Table:
    """A row per batch; those that do not fit the device are dim.

    Args:
        title: in place of the advice in words.
    """
    table = Table(advice_in_words(result) if title is None else title, "\n".join(caption(result)))
    table.add_column("batch", justify="right")
    shown = shown_columns(BATCH_COLUMNS, result.by_batch)
    for column in shown:
        table.add_column(column.heading, justify="left" if column.title == "limited by" else "right")
    for row in result.by_batch:
        style = None if row.fits.value else "dim"
        table.add_row(str(row.batch), *(column.text(row) for column in shown), style=style)
    return table


def figures(result: AdviseResult, directory: Path | None = None) -> Drawings:
    """The page's figures of one device by name."""
    return {"gain": lambda: gain_figure(result), "limits": lambda: limits_figure(result)}


def shown(found: tuple[Sequence[AdviseResult], RunDirectory]) -> Shown:
    """Tables for the terminal, from what `advise` returned."""
    results, directory = found
    lines = [line for result in results for line in without_command(result)]
    return Shown(
        [result.plain() for result in results],
        [advice_table(result) for result in results],
        [*lines, *note_lines(results)],
        f"page: {directory.path / 'report.html'}; engines' settings: {directory.path / 'engines'}",
        commands=[line for result in results for line in command_lines(result)],
        first=list(dict.fromkeys(map(acceptance_in_words, results))),
    )
