"""What was served as one page that needs nothing but itself, and its figures as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jaxspec.report.short_page import ShortSection, write_short_page
from jaxspec.studies.known_acceptance import acceptance_line
from jaxspec.studies.serve.figures import figures
from jaxspec.studies.serve.report import answer, serving_tables
from jaxspec.studies.serve.result import ServeResult

__all__ = ["write_serving"]

_CAPTIONS = {
    "throughput_latency": "Tokens per second against three latencies: the median, with a bar to the 99th percentile. A star is "
    "where a draft stops to shorten the median request.",
}


def write_serving(results: Sequence[ServeResult], directory: Path) -> Path:
    """Write the page and its figures into a run directory; see `write_short_page`."""
    return write_short_page("Up to which load does a draft pay?", [_section(result) for result in results], directory)


def _section(result: ServeResult) -> ShortSection:
    (table,) = serving_tables([result])
    return ShortSection(
        device=result.device or "",
        title=result.device_title or result.device or "",
        headlines=[answer(crossing, result.rows) for crossing in result.crossings],
        table=table,
        figures=figures(result),
        captions=_CAPTIONS,
        remarks=[acceptance_line(result.acceptance, result.acceptance_source), *result.assumptions, *result.notes],
    )
