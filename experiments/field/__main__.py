"""Predict speedups that others measured and published: `python -m experiments.field [--rows FILE.csv] [--json FILE]`.

Each row says device, engine, target, draft, precisions, draft length, sequences and acceptance; the prediction is made of
shapes, the calibrated device with the kernels of the row's engine and formats, and the engine's few terms. Rows say what of
that is not measured, and why they cannot be predicted.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console

from experiments.command_line import carry_out
from experiments.field.answers import CALIBRATION_ROWS, Fitted, answers, fitted
from experiments.field.engines import engine_of
from experiments.field.fit import FITTED_TERMS
from experiments.field.predict import price_rows
from experiments.field.rows import OTHER_MACHINES, PUBLISHED, read_rows
from experiments.field.summary import summarise
from hwmodels import catalog
from jaxspec.errors import InputError
from jaxspec.files import to_json, write_text
from jaxspec.report.terminal import Table, new_console, say

__all__ = ["draw"]


#: Of sources, in turn: more sources than colors differ by their markers.
_MARKERS = ("o", "s", "^", "D", "v")

#: Face of a marker by a row's status; None: the source's color.
_FACES = {"calibrated": "white", "predicted": None}


def draw(rows: Sequence[dict[str, Any]]) -> Figure:
    """One figure of all rows with a prediction and a measurement, a color and marker for each source; rows that terms were
    fitted to are open.

    Args:
        rows: as `experiments.field.answers` makes them.
    """
    figure = Figure(figsize=(7.0, 6.4), layout="constrained")
    axes = figure.add_subplot()
    shown = [row for row in rows if row["predicted_speedup"] and row["measured_speedup"] and not row["excluded"]]
    for number, source in enumerate(sorted({row["source"] for row in shown})):
        _draw_source(axes, [row for row in shown if row["source"] == source], source, number)
    ends = [row[name] for row in shown for name in ("measured_speedup", "predicted_speedup")]
    if ends:
        low, high = 0.95 * min(ends), 1.05 * max(ends)
        axes.plot([low, high], [low, high], color="0.4", linewidth=0.8)
        figure.legend(fontsize=7, loc="outside lower center", ncols=2)
    axes.set_xlabel("decode speedup, measured by others")
    axes.set_ylabel("decode speedup, predicted (open: terms were fitted to the row)")
    return figure


def _draw_source(axes: Axes, rows: Sequence[dict[str, Any]], source: str, number: int) -> None:
    color, marker = f"C{number % 10}", _MARKERS[number % len(_MARKERS)]
    for status, face in _FACES.items():
        found = [row for row in rows if row["status"] == status]
        if not found:
            continue
        measured, predicted = ([row[name] for row in found] for name in ("measured_speedup", "predicted_speedup"))
        spread = [
            [row["predicted_speedup"] - row["low"] for row in found],
            [row["high"] - row["predicted_speedup"] for row in found],
        ]
        axes.errorbar(measured, predicted, spread, fmt="none", ecolor=color, elinewidth=0.5, alpha=0.4)
        label = f"{source.removeprefix('github.com/')} ({len(found)} {status})"
        axes.plot(measured, predicted, marker, color=color, markerfacecolor=face or color, markersize=4, label=label)


_EPILOG = """\
  python -m experiments.field                        the published rows that this project ships
  python -m experiments.field --rows mine.csv        rows of your own, in the columns of experiments/field/published.csv
  python -m experiments.field --fit                  fit the engines' terms to 28 of the rows again, and write them
"""

_ENGINE = "vllm"
_ENGINES = Path(__file__).parents[2] / "hwmodels" / "catalog" / "engines"


class _Words(NamedTuple):
    """What the file of an engine says of its numbers: of the scatters, and of terms that are not fitted."""

    title: str
    small_networks: str
    other_drafts: str
    not_fitted: str


_OF_SOURCES = (
    "rows of this engine in experiments/field/published.csv, each source predicted by terms fitted to the others: root mean "
    "square of log speedup, median of the sources"
)
_WORDS = {
    "vllm": _Words(
        "vLLM V1 on GPUs",
        "calibrated: rows of experiments/field/published.csv and other_machines.csv with a network as draft, each machine "
        "predicted by terms fitted to the others: root mean square of log speedup, over two machines (4.9 and 19 %)",
        "heads in experiments/field/published.csv, each kind predicted by terms fitted to the other kinds: root mean square "
        "of log speedup, median of the kinds",
        "0: a pass hides it behind its kernels; not fitted",
    ),
    "sglang": _Words(
        "SGLang on GPUs, without overlapped scheduling of speculation",
        f"no row has a small network as draft; that of heads: {_OF_SOURCES}",
        _OF_SOURCES,
        "0: rows of one kind of head do not tell it from the fitted terms; not fitted",
    ),
}


def main() -> None:
    """Read, predict, show, write; exit code 2 where a file cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.field",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--rows", type=Path, default=PUBLISHED, metavar="FILE", help="measurements (default: published.csv)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every row and the summary there")
    parser.add_argument(
        "--plot", dest="out", type=Path, metavar="FILE", help="draw predicted against measured there (png, svg, pdf)"
    )
    parser.add_argument("--fit", action="store_true", help="fit the engines' terms and write the catalog's files")
    arguments = parser.parse_args()
    carry_out(
        parser,
        arguments,
        lambda: run(arguments.rows, fit=arguments.fit),
        lambda result: show(result["summary"], new_console()),
        lambda result, path: draw(result["rows"]).savefig(path, dpi=150),
    )


def run(path: Path = PUBLISHED, *, fit: bool = False) -> dict[str, Any]:
    """Rows and summary as they are written. Raises InputError."""
    rows = read_rows(path)
    parts = price_rows(rows)
    if fit:
        if path != PUBLISHED:
            raise InputError(f"--fit with --rows {path}: terms are fitted to the published rows; leave --rows out")
        elsewhere = read_rows(OTHER_MACHINES)
        further = list(zip(elsewhere, price_rows(elsewhere), strict=True))
        fits = {engine: fitted(rows, parts, engine, further) for engine in FITTED_TERMS}
        for engine, found in fits.items():
            write_text(_ENGINES / f"{engine}.toml", _entry(engine, found))
        write_text(CALIBRATION_ROWS, to_json(sorted(name for found in fits.values() for name in found.rows)))
    engine_of.cache_clear()  # its terms may just have been written
    found, terms = answers(rows, parts), catalog.engine(_ENGINE)
    return {
        "rows": found,
        "summary": summarise(rows, found) | {"engine": _ENGINE, "engine_terms": dataclasses.asdict(terms)},
    }


def _entry(engine: str, found: Fitted) -> str:
    """An engine's file of the catalog."""
    words = _WORDS[engine]
    source = f"fitted to {len(found.rows)} rows of experiments/field/published.csv by python -m experiments.field --fit"
    values = {
        name: {"value": value, "source": source if name in FITTED_TERMS[engine] else words.not_fitted}
        for name, value in dataclasses.asdict(found.terms).items()
    }
    scatter = {
        "scatter_of_small_networks": {"value": found.scatter["small network"], "source": words.small_networks},
        "scatter_of_other_drafts": {"value": found.scatter["other drafts"], "source": words.other_drafts},
    }
    return tomli_w.dumps({"title": words.title} | values | scatter)


def show(summary: dict[str, Any], console: Console) -> None:
    """The summary as tables: for each source this model, and the simplest predictors of the same rows."""
    for name, found in summary["sources"].items():
        table = Table(f"{name}: decode speedup, predicted against measured", _caption(found))
        table.add_column("predictor")
        for heading in ("rows", "median error", "90 %", "largest", "with its sign"):
            table.add_column(heading, justify="right")
        for title, errors in _errors(found).items():
            table.add_row(title, *_cells(errors))
        console.print(table)
    say(f"{summary['predicted']} of {summary['rows']} rows predicted.", console=console)
    for note, count in summary["notes"].items():
        say(f"{count} {'row' if count == 1 else 'rows'}: {note}.", console=console)
    for reason, count in summary["without_prediction"].items():
        say(f"{count} not predicted: {reason}.", console=console)


def _errors(found: dict[str, Any]) -> dict[str, Any]:
    """Rows of a source's table; those that the terms were fitted to stand apart."""
    fitted = {"this model, rows fitted to": found["calibrated_speedup"]} if found["calibrated_speedup"]["rows"] else {}
    return {"this model": found["speedup"]} | fitted | found["simplest"]


def _cells(errors: dict[str, Any]) -> list[str]:
    if not errors["rows"]:
        return ["0", "", "", "", ""]
    sizes = [f"{100.0 * errors[name]:.1f} %" for name in ("median", "p90", "largest")]
    return [str(errors["rows"]), *sizes, f"{100.0 * errors['bias']:+.1f} %"]


def _caption(found: dict[str, Any]) -> str:
    """What else was compared, one remark per line."""
    best, cycle = found["best_draft_length"], found["cycle_over_step"]
    lines = [
        f"{found['inside_interval']} of {found['speedup']['rows']} inside their 90 % intervals",
        f"wrong signs where the gain is above 5 %: {found['wrong_signs']} of {found['decided']}",
    ]
    if cycle["rows"]:
        lines.append(f"cycle over a step without speculation: median error {100.0 * cycle['median']:.1f} %")
    if best["groups"]:
        lines.append(f"best draft length, or within 2 % of it: {best['right']} of {best['groups']} groups")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
