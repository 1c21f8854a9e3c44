"""What a tuning run says in words on a terminal: the answer first, what its rows are, and what to do with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jaxspec.report.notes import note_lines
from jaxspec.report.section import lossless_in_words
from jaxspec.report.titles import in_order
from jaxspec.report.verdict import headline, verdict
from jaxspec.studies.tune.disagreement import disagreement_lines
from jaxspec.studies.tune.optimism import optimism_lines
from jaxspec.studies.tune.result import TuneResult

__all__ = ["told_lines"]

#: Configuration -> what it is, in the order in which they are told.
_ROWS = {
    "default": "the scheme's default knobs",
    "j_grid": "the grid point that objective J chooses",
    "grid": "the best of a grid of drafts with the same knobs for all matrices",
    "uniform": "one set of knobs for all matrices, by gradient",
    "tuned": "knobs of its own for each matrix, by gradient",
}


def told_lines(results: Sequence[TuneResult], directory: Path) -> list[str]:
    """Lines below the tables.

    Args:
        results: one per device.
        directory: of the run.
    """
    rows = in_order({name for result in results for name in result.configurations}, _ROWS)
    return [
        *(headline(result) for result in results),
        *(f"{result.device}, measured: {lossless_in_words(result.lossless)['text']}" for result in results),
        f"rows: {'; '.join(f'{name}: {_ROWS[name]}' for name in rows if name in _ROWS)}",
        *optimism_lines(results),
        *disagreement_lines(results),
        *note_lines(results),
        f"next: open {directory / 'report.html'}, which has figures, knobs and what the device's numbers rest on",
        *([f"next: {_exporting(results, directory)}"] if any(verdict(result).pays for result in results) else []),
    ]


def _exporting(results: Sequence[TuneResult], directory: Path) -> str:
    paying = next(result for result in results if verdict(result).pays)
    device = f" --device {paying.device}" if len(results) > 1 else ""
    best = verdict(paying).best
    configuration = "" if best == "tuned" else f" --configuration {best}"
    return f"jaxspec export {directory}{device}{configuration} -o draft writes the {best} draft for vLLM, SGLang or llama.cpp"
