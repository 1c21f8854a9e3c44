"""`python -m experiments.codesign_search [PROBLEM ...] [--json FILE] [--figure FILE]`."""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from matplotlib.figure import Figure

from experiments.codesign_search.contest import METHODS, Allowance, gradient_cost, quickest_batch
from jaxspec.files import to_json, write_text
from jaxspec.report.figures.style import BLUE, GREEN, VERMILLION, legend_below, new_figure, save_figure, styled
from jaxspec.report.terminal import Table, new_console
from jaxspec.settings.base import Layer, build_config
from jaxspec.studies.codesign.config import EXAMPLES, CodesignConfig
from jaxspec.studies.codesign.run import checked_problem

_COLOURS = {"gradient": BLUE, "random": GREEN, "bayesian": VERMILLION}
_TITLES = {"evaluations": "evaluations", "seconds": "s of processor time"}


def contest(name: str, *, seeds: int, evaluations: list[int], seconds: list[float]) -> list[dict[str, Any]]:
    """A row for each method, seed and allowance."""
    problem = checked_problem(build_config(CodesignConfig, Layer(tomllib.loads(EXAMPLES[name]), name)))
    cost, batch = gradient_cost(problem), quickest_batch(problem)
    ways: list[tuple[str, float]] = [*(("evaluations", n) for n in evaluations), *(("seconds", s) for s in seconds)]
    rows = []
    for what, limit in ways:
        limits: dict[str, Any] = {"evaluations": None, "seconds": None} | {what: limit}
        allowed = Allowance(**limits, gradient_cost=cost, batch=batch)
        # All programs that any method calls are compiled before its clock starts.
        _ = [search(problem, allowed, 99) for search in METHODS.values()]
        for seed, (method, search) in itertools.product(range(seeds), METHODS.items()):
            found = search(problem, allowed, seed)
            about = {
                "problem": name,
                "equal": what,
                "limit": limit,
                "gradient_cost": cost,
                "batch": batch,
                "seed": seed,
            }
            rows.append(about | {"method": method} | vars(found))
            print(rows[-1], flush=True)
    return rows


def wins(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each problem and allowance: seeds in which the gradient is strictly the best, medians and ranges over seeds."""
    found = []
    for name, what, limit in sorted({(row["problem"], row["equal"], row["limit"]) for row in rows}):
        here = [row for row in rows if (row["problem"], row["equal"], row["limit"]) == (name, what, limit)]
        by = {method: {r["seed"]: r["objective"] for r in here if r["method"] == method} for method in METHODS}
        seeds = sorted(by["gradient"])
        ranges = {m: sorted(by[m].values()) for m in METHODS}
        found.append(
            {
                "problem": name,
                "equal": what,
                "limit": limit,
                "gradient_cost": here[0]["gradient_cost"],
                "seeds": len(seeds),
                **{f"beats_{m}": sum(by["gradient"][s] > by[m][s] for s in seeds) for m in METHODS if m != "gradient"},
                **{f"median_{m}": float(np.median(values)) for m, values in ranges.items()},
                **{f"range_{m}": [values[0], values[-1]] for m, values in ranges.items()},
            }
        )
    return found


def _with_range(row: dict[str, Any], method: str) -> str:
    low, high = row[f"range_{method}"]
    return f"{row[f'median_{method}']:.4g} ({low:.4g} to {high:.4g})"


@styled
def contest_figure(rows: list[dict[str, Any]]) -> Figure:
    """Each seed's best design, over the best of all, by problem and method."""
    names = sorted({row["problem"] for row in rows})
    ways = sorted({(row["equal"], row["limit"]) for row in rows})
    figure = new_figure(
        "Co-design by gradient, by random search and by a Bayesian optimiser",
        "best design that keeps every limit, over the best that any search found (predicted, exactly priced); a point per "
        "seed, 0: no such design found",
        height_inches=3.2,
    )
    panels = np.atleast_1d(figure.subplots(1, len(ways), sharey=True))
    for axes, (what, limit) in zip(panels, ways, strict=True):
        for place, name in enumerate(names):
            here = [row for row in rows if row["problem"] == name]
            top = max(row["objective"] for row in here)
            for shift, method in enumerate(METHODS):
                chosen = [r for r in here if (r["method"], r["equal"], r["limit"]) == (method, what, limit)]
                x = np.full(len(chosen), place + 0.22 * (shift - 1))
                values = [row["objective"] / top for row in chosen]
                axes.plot(x, values, "o", color=_COLOURS[method], alpha=0.7, label=method if place == 0 else None)
        axes.set_xticks(range(len(names)), names)
        axes.set(title=f"{limit:g} {_TITLES[what]}", ylim=(-0.03, 1.05))
        axes.grid(True, axis="y")
    panels[0].set_ylabel("objective over the best found")
    legend_below(figure, panels[0])
    return figure


def main() -> None:
    """Run the contests, print who wins how often, and keep all rows."""
    parser = argparse.ArgumentParser(prog="python -m experiments.codesign_search", description=__doc__)
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", help=f"out of {', '.join(EXAMPLES)}; default: all")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--evaluations", type=int, nargs="*", default=[200, 1000], help="equal allowances")
    parser.add_argument("--seconds", type=float, nargs="*", default=[2.0], help="equal allowances of processor time")
    parser.add_argument("--json", type=Path, help="all rows and their summary")
    parser.add_argument("--figure", type=Path, help="image to write")
    args = parser.parse_args()
    if unknown := set(args.problems) - set(EXAMPLES):
        parser.error(f"unknown problem {sorted(unknown)[0]!r}; allowed are {', '.join(EXAMPLES)}")
    began, rows = time.perf_counter(), []
    for name in args.problems or EXAMPLES:
        rows += contest(name, seeds=args.seeds, evaluations=args.evaluations, seconds=args.seconds)
        if args.json:
            machine = f"{platform.machine()}, {os.cpu_count()} processors"
            versions = {"numpy": np.__version__, "scipy": scipy.__version__}
            found = {"schema_version": 1, "rows": rows, "summary": wins(rows), "machine": machine, "versions": versions}
            write_text(args.json, to_json(found))
    table = Table("Seeds in which the gradient finds the better design", f"{time.perf_counter() - began:.0f} s in all")
    for heading in ("problem", "equal", "beats random", "beats bayesian", *METHODS):
        table.add_column(heading)
    for row in wins(rows):
        counts = (f"{row[f'beats_{m}']} of {row['seeds']}" for m in ("random", "bayesian"))
        limit = f"{row['limit']:g} {_TITLES[row['equal']]}"
        table.add_row(row["problem"], limit, *counts, *(_with_range(row, method) for method in METHODS))
    new_console().print(table)
    if args.figure:
        save_figure(contest_figure(rows), args.figure)


if __name__ == "__main__":
    main()
