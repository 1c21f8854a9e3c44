"""Is the gradient worth it? `python -m experiments.tuning_search [--quick] [--json FILE] [--out FOLDER]`.

Every search begins at the best point of the uniform grid and may spend as many hard evaluations as the gradient's steps take
time for, or three times as many. Its best draft, by its own scores, is then measured on held-out prompts. Rows that FILE has
already are kept, so that a run that was stopped goes on. CMA-ES needs `pip install jaxspec[searches]`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

from experiments.command_line import add_outputs, carry_out
from experiments.tuning_search.contest import contest, entries, summary
from experiments.tuning_search.scoring import Scores
from jaxspec.errors import InputError
from jaxspec.files import to_json, write_text
from jaxspec.report.terminal import Table, new_console
from jaxspec.runs.progress import Reporter
from jaxspec.settings import build_config, quick_settings
from jaxspec.studies.tune.config import TuneConfig

#: What a row belongs to, beside its search.
_RUN = ("temperature", "seed")


def kept_rows(file: Path | None, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of an earlier run with these settings; none where there is no file.

    Raises:
        InputError: the file is of other settings, or of something else.
    """
    if file is None or not file.exists():
        return []
    try:
        found = json.loads(file.read_text())
        theirs, rows = found["settings"], found["rows"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file} holds no rows of this experiment; give another --json") from error
    if theirs != settings:
        raise InputError(f"{file} has rows of other settings; give another --json, or the settings that it has")
    return rows


def run(
    base: TuneConfig, *, seeds: int, temperatures: list[float], budgets: tuple[int, ...], file: Path | None
) -> dict[str, Any]:
    """All temperatures and seeds; what is done is written to `file` after every row."""
    given = {name: value for name, value in dataclasses.asdict(base).items() if name not in _RUN}
    settings = json.loads(to_json(given))
    rows = kept_rows(file, settings)
    reporter = Reporter()
    result = lambda: {"settings": settings, "rows": rows, "summary": summary(rows)}
    for temperature in temperatures:
        for seed in range(seeds):
            own = [row for row in rows if (row["temperature"], row["seed"]) == (temperature, seed)]
            done = {(row["search"], row["budget"]) for row in own}
            if done >= set(entries(budgets)):
                continue
            config = dataclasses.replace(base, seed=seed, temperature=temperature)
            with tempfile.TemporaryDirectory() as scratch:
                scores = Scores(config, f"{scratch}/run", reporter)
                step_cost = own[0]["step_cost"] if own else None
                found = contest(scores, steps=config.steps, seed=seed, budgets=budgets, done=done, step_cost=step_cost)
                for row in found:
                    rows.append({"temperature": temperature, "seed": seed, **row})
                    reporter.line(_said(rows[-1]))
                    if file:
                        write_text(file, to_json({"schema_version": 1, **result()}))
    return result()


def _said(row: dict[str, Any]) -> str:
    where = f"seed {row['seed']}, temperature {row['temperature']:g}, {row['evaluations']} evaluations"
    return f"{row['search']}, {where}: {row['over_grid_held_out']:.3f} of the best grid point's speedup, held out"


def show(result: dict[str, Any]) -> None:
    """A table on standard output."""
    table = Table("Speedup over the best grid point, predicted", "held out: mean over seeds ± 95 % interval")
    for heading in ("search", "temperature", "seeds", "evaluations", "held out", "on calibration text", "optimism"):
        table.add_column(heading, justify="left" if heading == "search" else "right")
    for row in result["summary"]:
        half = "" if row["half_interval"] is None else f" ± {row['half_interval']:.3f}"
        table.add_row(
            row["search"],
            f"{row['temperature']:g}",
            str(row["seeds"]),
            f"{row['evaluations']:.0f}",
            f"{row['over_grid_held_out']:.3f}{half}",
            f"{row['over_grid_calibration']:.3f}",
            f"{100 * row['optimism']:.1f} %",
        )
    new_console().print(table)


def plot(result: dict[str, Any], folder: Path) -> None:
    """One figure, as PNG."""
    from experiments.tuning_search.figure import contest_figure
    from jaxspec.report.figures.style import save_figure

    folder.mkdir(parents=True, exist_ok=True)
    save_figure(contest_figure(result["summary"], result["rows"]), folder / "tuning_search.png")


def _at_least(least: float):
    def read(text: str) -> float:
        number = float(text)
        if not number >= least:
            raise argparse.ArgumentTypeError(f"{text!r} came; give a number from {least:g}")
        return number

    return read


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} came; give a whole number from 1")
    return int(text)


def main(arguments: list[str] | None = None) -> None:
    """Run, show, write."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.tuning_search",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--scheme", default="cassandra1", help="default %(default)s")
    parser.add_argument("--seeds", type=_count, default=3, help="default %(default)s")
    parser.add_argument("--prompts", type=_count, help="held out; default 480, with --quick 96")
    parser.add_argument(
        "--temperature", type=_at_least(0), nargs="+", help="of decoding, several; default 0 and 1, with --quick 0"
    )
    parser.add_argument(
        "--budget", type=_count, nargs="+", help="multiples of the gradient's cost; default 1 and 3, with --quick 1"
    )
    parser.add_argument("--quick", action="store_true", help="settings of jaxspec tune --quick, and less of all")
    add_outputs(parser)
    args = parser.parse_args(arguments)
    layers = quick_settings(TuneConfig) if args.quick else {}
    chosen = {"scheme": args.scheme, "prompts": args.prompts or (96 if args.quick else 480)}

    def work() -> dict[str, Any]:
        return run(
            build_config(TuneConfig, layers, chosen),
            seeds=args.seeds,
            temperatures=args.temperature or ([0.0] if args.quick else [0.0, 1.0]),
            budgets=tuple(args.budget or ([1] if args.quick else [1, 3])),
            file=args.json,
        )

    carry_out(parser, args, work, show, plot)


if __name__ == "__main__":
    main()
