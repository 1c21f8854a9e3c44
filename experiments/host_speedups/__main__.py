"""Predict speedups of the embedded network on this machine, write them down, then time them.

Usage: `python -m experiments.host_speedups --device host.toml [--json FILE]`. Acceptance is counted, times come from the device
file, which `jaxspec calibrate` makes: kernels, and what this package's own loop spends beside them.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import rankdata

from experiments.command_line import print_table, run_and_write
from experiments.field.summary import errors_of
from experiments.host_speedups.run import BATCHES, LENGTHS, Host, groups, measure
from hwmodels.analysis.uncertainty.cycle_errors import COVERAGE
from jaxspec.errors import InputError
from jaxspec.host.measuring import machine_name
from jaxspec.host.stopwatch import BELIEVABLE
from jaxspec.report.formatting import NOT_KNOWN, fixed
from jaxspec.report.terminal import say
from jaxspec.results.network_results import LOST_IN_NOISE
from jaxspec.runs.progress import Reporter
from jaxspec.settings.common import REPEATS
from jaxspec.studies.measured.pricing import resolve_device
from jaxspec.studies.measured.stopwatch import loop_terms

__all__ = ["PREDICTORS", "draw", "summarise"]


_MARKERS = {1: "o", 16: "s"}


def draw(rows: Sequence[dict[str, Any]]) -> Figure:
    """One figure of all rows that have a measured speedup; an end of its interval that is not known is not drawn."""
    rows = [row for row in rows if row["measured_speedup"]["median"] is not None]
    figure = Figure(figsize=(7.0, 5.6), layout="constrained")
    axes = figure.add_subplot()
    kinds = list(dict.fromkeys((row["draft"], _form(row), row["batch"]) for row in rows))
    for number, kind in enumerate(kinds):
        here = [row for row in rows if (row["draft"], _form(row), row["batch"]) == kind]
        color, marker = f"C{number % 10}", _MARKERS.get(kind[2], "^")
        for row in here:
            clock = row["measured_speedup"]
            middle = clock["median"]
            low, high = (middle if clock[end] is None else clock[end] for end in ("low", "high"))
            place = (middle, row["predicted_speedup"])
            axes.errorbar(*place, xerr=[[middle - low], [high - middle]], fmt=marker, color=color, ms=4, elinewidth=0.5)
        axes.plot([], [], marker, color=color, ms=4, label=f"{kind[0]}, {kind[1]}, batch {kind[2]}")
    ends = [value for row in rows for value in (row["measured_speedup"]["median"], row["predicted_speedup"])]
    if ends:
        low, high = 0.95 * min(ends), 1.05 * max(ends)
        axes.plot([low, high], [low, high], color="0.4", linewidth=0.8)
        figure.legend(fontsize=7, loc="outside lower center", ncols=2)
    axes.set_xlabel("speedup, measured on this machine")
    axes.set_ylabel("speedup, predicted")
    return figure


def _form(row: dict[str, Any]) -> str:
    return "chains" if row["shape"].startswith("chain of") else "trees"


#: A way that is picked is right if it loses no more than this against the fastest.
CLOSE = 0.05

#: Name -> speedup that it tells of a row.
PREDICTORS: dict[str, Callable[[dict[str, Any]], float]] = {
    "this model": lambda row: row["predicted_speedup"],
    "tokens per cycle alone": lambda row: row["gain_per_turn"],
}
_CONSTANT = "a constant, the median of the answers"


def summarise(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Errors over all rows, by batch and altogether.

    Args:
        rows: as `experiments.host_speedups.run` makes them. None of their numbers is a time that is lost in noise, or a ratio
            over one: no error counts it.
    Returns:
        Also how many rows have no measured speedup, under "lost"; the largest noise is None where one of a row is not known.
    """
    noise = [row["noise"] for row in rows]
    parts = {"all": rows} | {
        f"batch {batch}": [row for row in rows if row["batch"] == batch] for batch in _batches(rows)
    }
    return {
        "rows": len(rows),
        "lost": sum(row["measured_speedup"]["median"] is None for row in rows),
        "largest_noise": None if None in noise else max(noise, default=None),
        "parts": {name: _part(part) for name, part in parts.items() if part},
        "picked": {
            f"batch {batch}": _picked([row for row in rows if row["batch"] == batch]) for batch in _batches(rows)
        },
    }


def _batches(rows: Sequence[dict[str, Any]]) -> list[int]:
    return sorted({row["batch"] for row in rows})


def _part(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    clocked = [row for row in rows if row["measured_speedup"]["median"] is not None]
    measured = [row["measured_speedup"]["median"] for row in clocked]
    predictors = PREDICTORS | {_CONSTANT: lambda row: float(np.median(measured))}
    errors: dict[str, Any] = {}
    for name, rule in predictors.items():
        told = [rule(row) for row in clocked]
        order = (
            None
            if len(set(told)) < 2 or len(set(measured)) < 2
            else float(np.corrcoef(rankdata(told), rankdata(measured))[0, 1])
        )
        errors[name] = errors_of(told, measured) | {"spearman": order}
    clocks = {
        "cycle": ("predicted_cycle_s", "measured_cycle_s"),
        "verification": ("predicted_verify_s", "measured_verify_s"),
        "step without speculation": ("predicted_ar_s", "measured_ar_s"),
    }
    times = {
        name: _errors([(row[told], row[clock]["median"]) for row in rows]) for name, (told, clock) in clocks.items()
    }
    ratio = _errors(
        [(row["predicted_cycle_s"] / row["predicted_ar_s"], row["measured_cycle_over_step"]["median"]) for row in rows]
    )
    return {"speedup": errors, "times": times | {"cycle over step": ratio}, "covered": _covered(rows)}


def _errors(pairs: Sequence[tuple[float, float | None]]) -> dict[str, Any]:
    """Of predicted and measured numbers, those that are measured."""
    known = [(told, clock) for told, clock in pairs if clock is not None]
    return errors_of([told for told, _ in known], [clock for _, clock in known])


def _covered(rows: Sequence[dict[str, Any]]) -> float | None:
    """Share of known measured speedups within the interval of the predicted one.

    None where the device's file has no errors, or no speedup is known.
    """
    inside = []
    for row in rows:
        interval = row.get("predicted_speedup_interval")  # runs of earlier versions have none
        if interval is None:
            return None
        if (median := row["measured_speedup"]["median"]) is not None:
            inside.append(interval[0] <= median <= interval[1])
    return float(np.mean(inside)) if inside else None


def _picked(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What each predictor picks among the ways and no speculation, and the share of the fastest known speed that it has.

    The share of a way without a known speed is None, and so is whether it was right.
    """
    measured = [1.0, *(row["measured_speedup"]["median"] for row in rows)]
    names = ["no speculation", *(row["id"] for row in rows)]
    fastest = max(speedup for speedup in measured if speedup is not None)
    picked: dict[str, Any] = {"fastest": names[measured.index(fastest)], "fastest_speedup": fastest}
    for name, rule in PREDICTORS.items():
        place = int(np.argmax([1.0, *map(rule, rows)]))
        speedup = measured[place]
        share = None if speedup is None else speedup / fastest
        right = None if share is None else share >= 1.0 - CLOSE
        picked[name] = {"way": names[place], "share_of_fastest": share, "right": right}
    return picked


_EPILOG = """\
  python -m experiments.host_speedups --device host.toml --json out.json --plot out.png
  python -m experiments.host_speedups --device host.toml --quick       chains of 1, 4 and 8, alone, few repeats
"""


def main() -> None:
    """Predict, time, compare, show, write; exit code 2 where something cannot be used."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m experiments.host_speedups", description=__doc__, epilog=_EPILOG, formatter_class=form
    )
    option = parser.add_argument
    option("--device", required=True, metavar="FILE", help="device file of this machine")
    option(
        "--out", dest="folder", type=Path, default=Path("runs/host_speedups"), help="folder of predictions and times"
    )
    option("--json", type=Path, metavar="FILE", help="write every row and the summary there")
    option("--plot", dest="out", type=Path, metavar="FILE", help="draw predicted against measured (png, svg, pdf)")
    option("--repeats", type=int, help=f"rounds of the clock (default: {REPEATS}; quick: 3)")
    option("--output-tokens", type=int, default=64, help="tokens decoded per prompt (default: 64)")
    option("--quick", action="store_true", help="chains of 1, 4 and 8, one prompt at a time, no trees")
    args = parser.parse_args()
    numbers = {
        "repeats": args.repeats or (3 if args.quick else REPEATS),
        "output_tokens": args.output_tokens,
        "quick": args.quick,
    }
    run_and_write(
        parser,
        args,
        lambda: run(args.device, args.folder, **numbers),
        show,
        lambda result, path: draw(result["rows"]).savefig(path, dpi=150),
    )


def run(device: str, folder: Path, *, repeats: int, output_tokens: int, quick: bool = False) -> dict[str, Any]:
    """Rows and summary as they are written. Raises InputError."""
    if repeats < 3 or output_tokens < 32:
        raise InputError(f"repeats is {repeats} and output tokens {output_tokens}; allowed are 3 and 32 at least")
    host = Host(device, resolve_device(device), loop_terms(device))
    every = groups((1,), (1, 4, 8), trees=False) if quick else groups(BATCHES, LENGTHS)
    rows = [
        row | {"status": "predicted"}
        for row in measure(host, every, folder, repeats=repeats, output_tokens=output_tokens, reporter=Reporter())
    ]
    return {
        "machine": machine_name(),
        "device": device,
        "engine_terms": dataclasses.asdict(host.terms),
        "rows": rows,
        "summary": summarise(rows),
    }


def show(result: dict[str, Any]) -> None:
    """Tables of all ways and of the errors."""

    def way(row: dict[str, Any]) -> tuple[str, ...]:
        clock, told, cycle = row["measured_speedup"], row["predicted_speedup"], row["measured_cycle_s"]["median"]
        return (
            row["id"],
            fixed(row["tokens_per_cycle"], 2),
            fixed(told, 2),
            _clocked(clock),
            _percent(None if clock["median"] is None else told / clock["median"] - 1, "+.0f"),
            fixed(1e3 * row["predicted_cycle_s"], 2),
            fixed(None if cycle is None else 1e3 * cycle, 2),
            row["status"],
        )

    def error(title: str, entry: dict[str, Any]) -> tuple[str, ...]:
        sizes = [_percent(entry[key], ".1f") for key in ("median", "p90", "largest")]
        return title, str(entry["rows"]), *sizes, _percent(entry["bias"], "+.1f"), fixed(entry.get("spearman"), 3)

    print_table(
        f"Speedup over no speculation on {result['machine']}",
        (
            "way",
            "tokens\nper cycle",
            "predicted",
            "measured",
            "error",
            "cycle ms\npredicted",
            "cycle ms\nmeasured",
            "status",
        ),
        map(way, result["rows"]),
        caption="measured: median and what holds 90 % of the repeats",
    )
    for name, part in result["summary"]["parts"].items():
        covered = part["covered"]
        said = (
            f"{100 * COVERAGE:.0f} % intervals of speedups cover {100 * covered:.0f} %" if covered is not None else ""
        )
        headings = ("predictor", "rows", "median", "90 %", "largest", "with its sign", "Spearman")
        rows = (error(title, entry) for title, entry in {**part["speedup"], **part["times"]}.items())
        print_table(f"Errors, {name}", headings, rows, caption=said)
    for name, choice in result["summary"]["picked"].items():
        own = choice["this model"]
        say(
            f"{name}: fastest is {choice['fastest']} ({choice['fastest_speedup']:.2f}x); picked is {own['way']}, "
            f"{_percent(own['share_of_fastest'], '.0f')} of its speed"
        )
    noise, lost = result["summary"]["largest_noise"], result["summary"]["lost"]
    remark = (
        "" if noise is not None and noise <= BELIEVABLE else ": TOO NOISY to be believed, run it on a quiet machine"
    )
    sure = "not sure at all" if noise is None else f"sure to {100 * noise:.1f} % at worst"
    say(f"median speedups are {sure}{remark}")
    if lost:
        say(f"{NOT_KNOWN}: {LOST_IN_NOISE}; {lost} of {len(result['rows'])} speedups are not known")


def _clocked(spread: dict[str, float | None]) -> str:
    """A median with its interval."""
    middle, low, high = (fixed(spread[name], 2) for name in ("median", "low", "high"))
    return middle if middle == NOT_KNOWN else f"{middle} ({low} to {high})"


def _percent(share: float | None, form: str) -> str:
    return NOT_KNOWN if share is None else f"{100 * share:{form}} %"


if __name__ == "__main__":
    main()
