"""`python -m experiments.fuzz_container --cases 100000 [--seed N] [--json FILE]`; `--replay CASE` shows one of them."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from experiments.fuzz_container.checking import (
    MOST_SECONDS,
    case_runner,
    change,
    compile_quickly,
    examine,
    listed,
    refusal,
)
from experiments.fuzz_container.samples import build_samples
from experiments.fuzz_container.workers import Result, run_cases
from jaxspec.files import to_json, write_text
from jaxspec.report.terminal import Table, new_console
from jaxspec.runs.progress import Reporter

#: Failures that are listed in full.
_SHOWN = 50

#: A line after so many cases, for logs; a terminal has the bar.
_TOLD = 10_000


def fuzz(cases: int, seed: int, *, workers: int, reporter: Reporter | None = None) -> dict[str, Any]:
    """Run cases 0 to `cases` - 1 of a seed.

    Returns:
        counts by kind of case and outcome, the failures, and what the worst case took.
    """
    reporter = reporter or Reporter()
    samples, started = build_samples(), time.perf_counter()
    counts: Counter[tuple[str, str]] = Counter()
    failures: list[Result] = []
    slowest = largest = Result(0, "", "", "", 0.0, 0)
    with reporter.bar("damaged containers", cases) as bar:
        # Twice the seconds, because a machine at work elsewhere must not look like a case that hangs.
        setup = partial(case_runner, samples, seed)
        for result in run_cases(setup, range(cases), workers=workers, seconds_per_case=2 * MOST_SECONDS):
            counts[result.label, result.outcome] += 1
            slowest = max(slowest, result, key=lambda r: r.seconds)
            largest = max(largest, result, key=lambda r: r.peak_bytes)
            if result.failed:
                failures.append(result)
                reporter.line(f"case {result.case} of seed {seed}: {result.outcome}: {result.detail}")
            bar.advance(f"{len(failures)} failures")
            done = counts.total()
            if done % _TOLD == 0:
                reporter.line(f"{done} cases, {len(failures)} failures, {time.perf_counter() - started:.0f} s")
    seconds = time.perf_counter() - started
    return {
        "schema_version": 1,
        "cases": cases,
        "seed": seed,
        "outcomes": [{"kind": k, "outcome": o, "cases": n} for (k, o), n in sorted(counts.items())],
        "failed": len(failures),
        "failures": [failure._asdict() for failure in failures[:_SHOWN]],
        "slowest": {"case": slowest.case, "seconds": slowest.seconds},
        "largest": {"case": largest.case, "bytes": largest.peak_bytes},
        "workers": workers,
        "cases_per_s": cases / seconds,
        "timing_s": seconds,
        "versions": {name: version(name) for name in ("jaxspec", "jax", "numpy")},
    }


def show(result: dict[str, Any]) -> None:
    """A table on standard output."""
    table = Table(title=f"{result['cases']} damaged containers, seed {result['seed']}: {result['failed']} failures")
    outcomes = sorted({row["outcome"] for row in result["outcomes"]})
    for column in ("container", *outcomes):
        table.add_column(column, justify="left" if column == "container" else "right")
    for kind in sorted({row["kind"] for row in result["outcomes"]}):
        found = {row["outcome"]: row["cases"] for row in result["outcomes"] if row["kind"] == kind}
        table.add_row(kind, *(str(found.get(outcome, 0)) for outcome in outcomes))
    console = new_console()
    console.print(table)
    slowest, largest = result["slowest"], result["largest"]
    console.print(
        f"{result['cases_per_s']:.0f} cases/s; slowest {slowest['seconds']:.2f} s (case {slowest['case']}), most memory "
        f"{largest['bytes'] / 1e6:.0f} MB (case {largest['case']})"
    )


def replay(case: int, seed: int) -> None:
    """Run one case here: its directory, what was done to it, and what came of it; a defect with its traceback."""
    samples = build_samples()
    sample, content, done, signed = change(samples, seed, case)
    print(listed(content))
    print(f"{sample.name}, {'signed' if signed else 'as it was signed'}, {len(content)} bytes; {done}")
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "a.jspk"
        path.write_bytes(content)
        print(examine(path, sample, signed=signed, unpacked=Path(scratch) / "out"), refusal(path))


def main() -> None:
    """Run, show, write; exit code 1 if any case failed."""
    parser = argparse.ArgumentParser(prog="python -m experiments.fuzz_container", description=__doc__)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--replay", type=int, metavar="CASE", help="run this case alone, in this process")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    compile_quickly()
    if args.replay is not None:
        replay(args.replay, args.seed)
        return
    result = fuzz(args.cases, args.seed, workers=args.workers)
    show(result)
    if args.json:
        write_text(args.json, to_json(result))
    sys.exit(1 if result["failed"] else 0)


if __name__ == "__main__":
    main()
