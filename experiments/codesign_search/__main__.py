"""`python -m experiments.codesign_search [PROBLEM ...] [--json FILE] [--figure FILE]`."""

from __future__ import annotations

import argparse
import os
import platform
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from matplotlib.figure import Figure

from experiments.codesign_search.contest import METHODS
from jaxspec.files import to_json, write_text
from jaxspec.report.figures.style import BLUE, GREEN, VERMILLION, legend_below, new_figure, styled
from jaxspec.report.save import save_figure
from jaxspec.report.terminal import Table, new_console
from jaxspec.settings.base import Layer, build_config
from jaxspec.studies.codesign.config import CodesignConfig
from jaxspec.studies.codesign.examples import EXAMPLES
from jaxspec.studies.codesign.problem import Problem
from jaxspec.studies.codesign.run import checked_problem, start_places

_COLOURS = {"gradient": BLUE, "random": GREEN, "bayesian": VERMILLION}
_TITLES = {"evaluations": "equal evaluations", "seconds": "equal processor time"}


def contest(name: str, *, seeds: int, evaluations: int, seconds: float) -> list[dict[str, Any]]:
    """A row for each method, seed and way of being equal."""
    problem = checked_problem(build_config(CodesignConfig, Layer(tomllib.loads(EXAMPLES[name]), name)))
    _compile(problem)
    rows = []
    for what, limit in (("evaluations", evaluations), ("seconds", seconds)):
        for seed in range(seeds):
            for method, search in METHODS.items():
                limits: dict[str, Any] = {"evaluations": None, "seconds": None} | {what: limit}
                found = search(problem, seed=seed, **limits)
                rows.append(
                    {"problem": name, "equal": what, "limit": limit, "seed": seed, "method": method} | vars(found)
                )
                print(rows[-1], flush=True)
    return rows


def _compile(problem: Problem) -> None:
    """All programs that any method calls, before any clock starts."""
    for search in METHODS.values():
        search(problem, evaluations=80, seconds=None, seed=99)
    problem.smooth(start_places(problem)[: problem.batch])


def wins(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each problem and way of being equal: seeds in which the gradient is strictly the best, and medians."""
    found = []
    for name, what in sorted({(row["problem"], row["equal"]) for row in rows}):
        here = [row for row in rows if (row["problem"], row["equal"]) == (name, what)]
        by = {method: {r["seed"]: r["objective"] for r in here if r["method"] == method} for method in METHODS}
        seeds = sorted(by["gradient"])
        found.append(
            {
                "problem": name,
                "equal": what,
                "seeds": len(seeds),
                **{f"beats_{m}": sum(by["gradient"][s] > by[m][s] for s in seeds) for m in METHODS if m != "gradient"},
                **{f"median_{m}": float(np.median(list(by[m].values()))) for m in METHODS},
            }
        )
    return found


@styled
def contest_figure(rows: list[dict[str, Any]]) -> Figure:
    """Each seed's best design, over the best of all, by problem and method."""
    names, ways = sorted({row["problem"] for row in rows}), list(_TITLES)
    figure = new_figure(
        "Co-design by gradient, by random search and by a Bayesian optimiser",
        "best design that keeps every limit, over the best that any search found (predicted, exactly priced); a point per "
        "seed, 0: no such design found",
        height_inches=3.2,
    )
    panels = figure.subplots(1, len(ways), sharey=True)
    for axes, what in zip(panels, ways, strict=True):
        for place, name in enumerate(names):
            here = [row for row in rows if row["problem"] == name]
            top = max(row["objective"] for row in here)
            for shift, method in enumerate(METHODS):
                values = [r["objective"] / top for r in here if r["method"] == method and r["equal"] == what]
                x = np.full(len(values), place + 0.22 * (shift - 1))
                axes.plot(x, values, "o", color=_COLOURS[method], alpha=0.7, label=method if place == 0 else None)
        limit = next(row["limit"] for row in rows if row["equal"] == what)
        axes.set_xticks(range(len(names)), names)
        axes.set(title=f"{_TITLES[what]}: {limit:g}{' s' if what == 'seconds' else ''}", ylim=(-0.03, 1.05))
        axes.grid(True, axis="y")
    panels[0].set_ylabel("objective over the best found")
    legend_below(figure, panels[0])
    return figure


def main() -> None:
    """Run the contests, print who wins how often, and keep all rows."""
    parser = argparse.ArgumentParser(prog="python -m experiments.codesign_search", description=__doc__)
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", help=f"out of {', '.join(EXAMPLES)}; default: all")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=2.0, help="of processor time")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path)
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
    for heading in ("problem", "equal", "beats random", "beats bayesian", "gradient", "random", "bayesian"):
        table.add_column(heading)
    for row in wins(rows):
        counts = (f"{row[f'beats_{m}']} of {row['seeds']}" for m in ("random", "bayesian"))
        table.add_row(row["problem"], row["equal"], *counts, *(f"{row[f'median_{m}']:.5g}" for m in METHODS))
    new_console().print(table)
    if args.figure:
        save_figure(contest_figure(rows), args.figure)


if __name__ == "__main__":
    main()
