"""A page for each paper: what its folder says of it, and the errors of its tables as `docs/write_residuals.py` left them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from generated.page import ROOT, Page, percent, table

FOLDER = ROOT / "docs" / "residuals"

_NUMBERS = ("cells", "median", "largest", "its median", "its largest")
_HEADINGS = ("table", "status", *_NUMBERS, "simplest predictor")

_EXPLAINED = """\
Errors of the model relative to the printed cells. *Input* cells went into the model, *calibrated* ones were fitted, or a
choice was made with them in view: neither is a prediction. A table is reproduced where its predicted cells have a smaller
median and a smaller largest error than each of the simplest predictors on the same cells; the nearest of them is the last
column. Cells *in doubt* cannot be right as they are printed: nothing is judged by them."""


def papers() -> list[str]:
    """Folders of all papers."""
    return sorted(path.parent.name for path in (ROOT / "experiments" / "papers").glob("*/paper.py"))


def _spread(errors: Mapping[str, Any] | None) -> list[str]:
    return [percent(errors["median"], 2), percent(errors["max"], 2)] if errors else ["", ""]


def _peer(summary: Mapping[str, Any]) -> list[str]:
    """The simplest predictor with the least median, after its errors; nothing where none says anything."""
    known = {name: peer for name, peer in summary["simplest_predictors"].items() if peer["median"] is not None}
    if not known:
        return ["", "", ""]
    name = min(known, key=lambda name: known[name]["median"])
    return [*_spread(known[name]), name]


def _rows(summary: Mapping[str, Any]) -> list[list[str]]:
    """A row for each status; the simplest predictor stands beside the predicted cells, without those in doubt."""
    shown = {**summary["relative_error"], "predicted": summary["judged"], "in doubt": summary["in_doubt"]}
    rows = []
    for status, spread in shown.items():
        if spread:
            peer = _peer(summary) if status == "predicted" else [""] * 3
            rows.append([summary["title"], status, str(spread["cells"]), *_spread(spread), *peer])
    return rows


def _notes(summary: Mapping[str, Any]) -> str:
    lines = [f"* **{summary['title']}**: {summary['covered']} of {summary['cells']} cells. {summary['verdict']}."]
    if summary.get("cause"):
        lines.append(f"    * Cause: {summary['cause']}.")
    values = lambda numbers: ", ".join(f"{name} = {value:.4g}" for name, value in numbers.items())
    if summary["fitted"]:
        lines.append(f"    * Fitted, to {summary['fitted_to']}: {values(summary['fitted'])}.")
    lines += [
        f"    * Inherited, fitted to {cells}: {values(numbers)}." for cells, numbers in summary["inherits"].items()
    ]
    by_outcome = {choice["choice"]: _by_outcome(choice) for choice in summary["choices_by_outcome"]}
    lines += [f"    * Chosen: {text}{by_outcome.get(text, '')}." for text in summary["choices"]]
    lines += [f"    * In doubt: {text}." for text in summary["doubts"]]
    return "\n".join(lines)


def _by_outcome(choice: Mapping[str, Any]) -> str:
    """What follows a choice by outcome: the cells that were in view, and the result under the printed reading."""
    where = f" (**{choice['cells']} cells of this table, calibrated**)" if choice["cells"] else " (inherited)"
    reading = choice["printed_reading"]
    if reading is None:
        return where
    median, largest = _spread(reading["relative_error"])
    return f"{where}. *As printed*: median {median}, largest {largest}; if no choice counted, {reading['verdict']}"


def residuals(result: Mapping[str, Any]) -> str:
    """Errors of a paper's tables, and what was fitted, chosen and is in doubt."""
    summaries = list(result["summary"].values())
    rows = [row for summary in summaries for row in _rows(summary)]
    return "\n\n".join(
        [
            "## Errors by table",
            _EXPLAINED,
            table(_HEADINGS, rows, numbers=_NUMBERS),
            "## Verdicts, fitted numbers, choices, doubts",
            "\n".join(_notes(summary) for summary in summaries),
        ]
    )


def _figures(name: str) -> list[Path]:
    """Figures of a paper, that of its errors first."""
    paths = sorted(FOLDER.glob(f"{name}_*.png"))
    return sorted(paths, key=lambda path: path.stem != f"{name}_errors")


def _shown(figures: list[Path], name: str) -> str:
    told = {path: path.stem.removeprefix(f"{name}_").replace("_", " ") for path in figures}
    return "\n\n".join(f"![{words}]({path.name})" for path, words in told.items())


def _of(name: str) -> list[Page]:
    told = (ROOT / "experiments" / "papers" / name / "README.md").read_text(encoding="utf-8").strip()
    data, figures = FOLDER / f"{name}.json", _figures(name)
    parts = [told]
    if data.is_file():
        parts.append(residuals(json.loads(data.read_text(encoding="utf-8"))))
    if figures:
        parts.append(f"## Figures\n\n{_shown(figures, name)}")
    page = Page(
        f"papers/{name.replace('_', '-')}.md", "\n\n".join(parts) + "\n", told.splitlines()[0].removeprefix("# ")
    )
    return [page, *(Page(f"papers/{path.name}", path.read_bytes()) for path in figures)]


def pages() -> list[Page]:
    """The page of each paper, with its figure of errors."""
    return [page for name in papers() for page in _of(name)]
