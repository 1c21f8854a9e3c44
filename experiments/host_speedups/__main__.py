"""Predict speedups of the embedded network on this machine, write them down, then time them.

Usage: `python -m experiments.host_speedups --device host.toml [--json FILE]`. Acceptance is counted, times come from the device
file, which `jaxspec calibrate` makes: kernels, and what this package's own loop spends beside them.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

from experiments.host_speedups.configurations import BATCHES, LENGTHS, groups
from experiments.host_speedups.figure import draw
from experiments.host_speedups.run import Host, measure
from experiments.host_speedups.summary import summarise
from hwmodels.analysis.uncertainty.delta_method import COVERAGE
from jaxspec.errors import InputError
from jaxspec.files import to_json, write_text
from jaxspec.report.formatting import NOT_KNOWN, fixed
from jaxspec.report.terminal import Table, new_console, say
from jaxspec.results.stopwatch_results import LOST_IN_NOISE
from jaxspec.runs.machine import machine_name
from jaxspec.runs.progress import Reporter
from jaxspec.settings.stopwatch import REPEATS
from jaxspec.speculate.timing import BELIEVABLE
from jaxspec.studies.measured.clock_prediction import loop_terms
from jaxspec.studies.measured.pricing import resolve_device

_EPILOG = """\
  python -m experiments.host_speedups --device host.toml --json out.json --plot out.png
  python -m experiments.host_speedups --device host.toml --quick       chains of 1, 4 and 8, alone, few repeats
"""


def main() -> int:
    """Predict, time, compare, show, write; exit code 2 where something cannot be used."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m experiments.host_speedups", description=__doc__, epilog=_EPILOG, formatter_class=form
    )
    parser.add_argument("--device", required=True, metavar="FILE", help="device file of this machine")
    parser.add_argument("--out", type=Path, default=Path("runs/host_speedups"), help="folder of predictions and times")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every row and the summary there")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw predicted against measured (png, svg, pdf)")
    parser.add_argument("--repeats", type=int, help=f"rounds of the clock (default: {REPEATS}; quick: 3)")
    parser.add_argument("--output-tokens", type=int, default=64, help="tokens decoded per prompt (default: 64)")
    parser.add_argument("--quick", action="store_true", help="chains of 1, 4 and 8, one prompt at a time, no trees")
    arguments = parser.parse_args()
    try:
        result = run(
            arguments.device,
            arguments.out,
            repeats=arguments.repeats or (3 if arguments.quick else REPEATS),
            output_tokens=arguments.output_tokens,
            quick=arguments.quick,
        )
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    show(result)
    if arguments.plot:
        draw(result["rows"]).savefig(arguments.plot, dpi=150)
    if arguments.json:
        write_text(arguments.json, to_json(result))
    return 0


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
        "schema_version": 1,
        "machine": machine_name(),
        "device": device,
        "engine_terms": dataclasses.asdict(host.terms),
        "rows": rows,
        "summary": summarise(rows),
    }


def show(result: dict[str, Any]) -> None:
    """Tables of all ways and of the errors."""
    console = new_console()
    table = Table(
        f"Speedup over no speculation on {result['machine']}", "measured: median and what holds 90 % of the repeats"
    )
    table.add_column("way")
    for heading in (
        "tokens\nper cycle",
        "predicted",
        "measured",
        "error",
        "cycle ms\npredicted",
        "cycle ms\nmeasured",
        "status",
    ):
        table.add_column(heading, justify="right")
    for row in result["rows"]:
        clock, told, cycle = row["measured_speedup"], row["predicted_speedup"], row["measured_cycle_s"]["median"]
        table.add_row(
            row["id"],
            fixed(row["tokens_per_cycle"], 2),
            fixed(told, 2),
            _clocked(clock),
            _percent(None if clock["median"] is None else told / clock["median"] - 1, "+.0f"),
            fixed(1e3 * row["predicted_cycle_s"], 2),
            fixed(None if cycle is None else 1e3 * cycle, 2),
            row["status"],
        )
    console.print(table)
    for name, part in result["summary"]["parts"].items():
        covered = part["covered"]
        said = (
            f"{100 * COVERAGE:.0f} % intervals of speedups cover {100 * covered:.0f} %" if covered is not None else ""
        )
        errors = Table(f"Errors, {name}", said)
        errors.add_column("predictor")
        for heading in ("rows", "median", "90 %", "largest", "with its sign", "Spearman"):
            errors.add_column(heading, justify="right")
        for title, found in {**part["speedup"], **part["times"]}.items():
            sizes = [_percent(found[key], ".1f") for key in ("median", "p90", "largest")]
            errors.add_row(
                title, str(found["rows"]), *sizes, _percent(found["bias"], "+.1f"), fixed(found.get("spearman"), 3)
            )
        console.print(errors)
    for name, found in result["summary"]["picked"].items():
        own = found["this model"]
        say(
            f"{name}: fastest is {found['fastest']} ({found['fastest_speedup']:.2f}x); picked is {own['way']}, "
            f"{_percent(own['share_of_fastest'], '.0f')} of its speed",
            console=console,
        )
    noise, lost = result["summary"]["largest_noise"], result["summary"]["lost"]
    remark = (
        "" if noise is not None and noise <= BELIEVABLE else ": TOO NOISY to be believed, run it on a quiet machine"
    )
    sure = "not sure at all" if noise is None else f"sure to {100 * noise:.1f} % at worst"
    say(f"median speedups are {sure}{remark}", console=console)
    if lost:
        say(f"{NOT_KNOWN}: {LOST_IN_NOISE}; {lost} of {len(result['rows'])} speedups are not known", console=console)


def _clocked(spread: dict[str, float | None]) -> str:
    """A median with its interval."""
    middle, low, high = (fixed(spread[name], 2) for name in ("median", "low", "high"))
    return middle if middle == NOT_KNOWN else f"{middle} ({low} to {high})"


def _percent(share: float | None, form: str) -> str:
    return NOT_KNOWN if share is None else f"{100 * share:{form}} %"


if __name__ == "__main__":
    sys.exit(main())
