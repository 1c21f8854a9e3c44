"""The advice as one page that needs nothing but itself, and its figures as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jaxspec.report.short_page import ShortSection, write_short_page
from jaxspec.studies.advise.report import advice_table, figures
from jaxspec.studies.advise.result import AdviseResult
from jaxspec.studies.advise.words import acceptance_in_words, advice_in_words, title_in_words

__all__ = ["write_advice"]

_CAPTIONS = {
    "gain": "The number above each batch is the draft length to use there.",
    "limits": "The time of each operator is assigned to its longest wait. Hatched: draft steps.",
}


def write_advice(results: Sequence[AdviseResult], directory: Path) -> Path:
    """Write the page and its figures into a run directory; see `write_short_page`."""
    return write_short_page("Should this network speculate?", [_section(result) for result in results], directory)


def _section(result: AdviseResult) -> ShortSection:
    return ShortSection(
        device=result.device or "",
        title=result.device_title or result.device or "",
        headlines=[advice_in_words(result)],
        table=advice_table(result, title_in_words(result)),
        figures=figures(result),
        captions=_CAPTIONS,
        blocks=result.commands,
        remarks=[acceptance_in_words(result), *result.assumptions, *result.notes],
    )
