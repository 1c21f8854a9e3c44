"""Predict speedups that others measured and published: `python -m experiments.field [--rows FILE.csv] [--json FILE]`.

Each row says device, engine, target, draft, precisions, draft length, sequences and acceptance; the prediction is made of
shapes, the calibrated device with the kernels of the row's engine and formats, and the engine's few terms. Rows say what of
that is not measured, and why they cannot be predicted.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import tomli_w
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.command_line import print_table, run_and_write
from experiments.field.engines import Engine, engine_of
from experiments.field.fit import (
    FAMILIES,
    FITTED_TERMS,
    PROFILED,
    TITLES,
    Numbers,
    fit_numbers,
    kinds_of,
    left_out,
    likes,
    scatter_of,
)
from experiments.field.predict import Parts, predict, price_rows
from experiments.field.rows import PUBLISHED, FieldRow, read_rows
from experiments.field.summary import summarise
from hwmodels import catalog
from hwmodels.analysis.uncertainty.cycle_errors import LogNormal
from hwmodels.catalog.loader import SCATTER_FIELDS
from hwmodels.speculation.engine_logs import EngineTerms
from jaxspec.errors import InputError
from jaxspec.partial_files import to_json, write_text
from jaxspec.report.terminal import say

__all__ = ["LEFT_OUT", "Fitted", "all_fitted", "answers", "draw", "fitted", "unseen_numbers"]

# A prediction for each row, in the form that is written: times, speedup, 90 % interval, status, or why there is none.

#: The family with most groups of rows that take instructions for each row of a product.
USUAL = "llama.cpp"

#: What `--fit` writes: for each family of engines and each group of rows the numbers that were fitted to the other groups.
LEFT_OUT = Path(__file__).with_name("left_out.json")


class Fitted(NamedTuple):
    """What a fit gives for a family of engines: its numbers, and those of each group by all others."""

    numbers: Numbers
    left_out: dict[str, dict[str, Any]]


def all_fitted(rows: Sequence[FieldRow], parts: Sequence[Parts | str]) -> dict[str, Fitted]:
    """Each family's fit; groups have the scatters of the others."""
    usual = fitted(rows, parts, USUAL, 0.0).numbers.instructions
    fits = {family: fitted(rows, parts, family, usual) for family in FAMILIES}
    by_family = {family: found.left_out for family, found in fits.items()}
    for family, groups in by_family.items():
        for name, one in groups.items():
            others = [other["errors"] for group, other in groups.items() if group != name]
            one["scatter"] = scatter_of(others, likes(family, by_family))
    return fits


def fitted(rows: Sequence[FieldRow], parts: Sequence[Parts | str], family: str, usual: float) -> Fitted:
    """Numbers of a family's engines, and how far measurements lie from them. Arguments: `left_out`."""
    cells = [
        (row, part)
        for row, part in zip(rows, parts, strict=True)
        if isinstance(part, Parts) and engine_of(row.engine).name in FAMILIES[family] and not row.excluded
    ]
    return Fitted(fit_numbers(cells, family), left_out(cells, family, usual))


@functools.cache
def unseen_numbers() -> dict[str, dict[str, Any]]:
    """Id of a row that was fitted to -> what its group was predicted by."""
    families = json.loads(LEFT_OUT.read_text(encoding="utf-8")) if LEFT_OUT.exists() else {}
    return {name: group for groups in families.values() for group in groups.values() for name in group["rows"]}


def answers(
    rows: Sequence[FieldRow], parts: Sequence[Parts | str], engines: Callable[[str], Engine] = engine_of
) -> list[dict[str, Any]]:
    """One record per row, keys of the contract: id, predicted times and speedup, interval, `why_not`; and what was measured.

    Rows that engines' numbers were fitted to are predicted by numbers that were fitted to the other groups.

    Args:
        engines: what is known of an engine, by its name in a row.
    """
    return [_answer(row, part, engines(row.engine)) for row, part in zip(rows, parts, strict=True)]


#: What only a row with a prediction says.
_OF_PREDICTIONS = (
    *("predicted_speedup", "predicted_cycle_s", "predicted_ar_s", "low", "high", "device", "bandwidth_scale"),
    *("step_rest_s", "kernels", "weight_format", "draft_weight_format"),
)


def _answer(row: FieldRow, parts: Parts | str, engine: Engine) -> dict[str, Any]:
    measured = {"measured_speedup": row.speedup, "measured_cycle_s": row.cycle_s, "measured_ar_s": row.ar_s}
    about = {
        "id": row.id,
        "source": row.source,
        "draft_kind": row.draft_kind,
        "engine": row.engine,
        "excluded": row.excluded,
        "tokens_per_cycle": row.tokens_per_cycle,
    } | measured
    if isinstance(parts, str):
        return (
            about
            | dict.fromkeys(_OF_PREDICTIONS)
            | {"why_not": parts, "status": None, "ar_status": None, "engine_terms": None, "notes": []}
        )
    terms, most, scatter = engine.terms, engine.most, engine.scatter
    instructions = 0.0 if engine.rows is None else engine.rows.value
    if (unseen := unseen_numbers().get(row.id)) is not None and engine.name in unseen["terms"]:
        terms = most = EngineTerms(**unseen["terms"][engine.name])
        instructions, scatter = unseen["instructions"], unseen["scatter"]
    found = predict(row, parts, terms, instructions)
    widest = max(scatter.get(kind, scatter["other drafts"]) for kind in kinds_of(row, parts))
    deviation = jnp.asarray(widest)
    _, high = LogNormal(jnp.asarray(found.speedup), deviation).ends()
    low, _ = LogNormal(jnp.asarray(predict(row, parts, most, instructions).speedup), deviation).ends()
    return about | {
        "predicted_speedup": found.speedup,
        "predicted_cycle_s": found.cycle_s,
        "predicted_ar_s": found.ar_s,
        "low": float(low),
        "high": float(high),
        "device": parts.device,
        "bandwidth_scale": parts.bandwidth_scale,
        "step_rest_s": parts.step_rest_s,
        "kernels": parts.kernels,
        "weight_format": parts.weight_format,
        "draft_weight_format": parts.draft_weight_format,
        "engine_terms": engine.name if engine.terms is engine.most else None,
        "notes": [*engine.notes, *parts.notes],
        "why_not": None,
        "status": "predicted",
        "ar_status": "input" if parts.step_given else "predicted",
    }


#: Of sources, in turn: more sources than colors differ by their markers.
_MARKERS = ("o", "s", "^", "D", "v")


def draw(rows: Sequence[dict[str, Any]]) -> Figure:
    """One figure of all rows with a prediction and a measurement, a color and marker for each source.

    Args:
        rows: of `answers`, as they are written.
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
    axes.set_ylabel("decode speedup, predicted by numbers of other groups")
    return figure


def _draw_source(axes: Axes, rows: Sequence[dict[str, Any]], source: str, number: int) -> None:
    color, marker = f"C{number % 10}", _MARKERS[number % len(_MARKERS)]
    measured, predicted = ([row[name] for row in rows] for name in ("measured_speedup", "predicted_speedup"))
    spread = [
        [row["predicted_speedup"] - row["low"] for row in rows],
        [row["high"] - row["predicted_speedup"] for row in rows],
    ]
    axes.errorbar(measured, predicted, spread, fmt="none", ecolor=color, elinewidth=0.5, alpha=0.4)
    label = f"{source.removeprefix('github.com/')} ({len(rows)})"
    axes.plot(measured, predicted, marker, color=color, markersize=4, label=label)


_EPILOG = """\
  python -m experiments.field                        the published rows that this project ships
  python -m experiments.field --rows mine.csv        rows of your own, in the columns of experiments/field/published.csv;
                                                     a device may be a TOML file
  python -m experiments.field --fit                  fit the engines' numbers to the rows again, and write them
"""

_ENGINE = "vllm"

_ENGINES = Path(__file__).parents[2] / "hwmodels" / "catalog" / "engines"


_ROWS = "experiments/field/published.csv by python -m experiments.field --fit"


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
    run_and_write(
        parser,
        arguments,
        lambda: run(arguments.rows, fit=arguments.fit),
        lambda result: show(result["summary"]),
        lambda result, path: draw(result["rows"]).savefig(path, dpi=150),
    )


def run(path: Path = PUBLISHED, *, fit: bool = False) -> dict[str, Any]:
    """Rows and summary as they are written. Raises InputError."""
    rows = read_rows(path)
    parts = price_rows(rows)
    if fit:
        if path != PUBLISHED:
            raise InputError(f"--fit with --rows {path}: terms are fitted to the published rows; leave --rows out")
        write_fits(rows, parts)
    found, terms = answers(rows, parts), catalog.engine(_ENGINE)
    return {
        "rows": found,
        "summary": summarise(rows, found) | {"engine": _ENGINE, "engine_terms": dataclasses.asdict(terms)},
    }


def write_fits(rows: Sequence[FieldRow], parts: Sequence[Parts | str]) -> None:
    """Fit all engines, and write their files and what each group is predicted by.

    Args:
        rows, parts: of the published rows.
    """
    fits = all_fitted(rows, parts)
    by_family = {family: found.left_out for family, found in fits.items()}
    for family, found in fits.items():
        for engine in FAMILIES[family]:
            write_text(_ENGINES / f"{engine}.toml", _entry(engine, found, likes(family, by_family)))
    write_text(LEFT_OUT, to_json(by_family))
    engine_of.cache_clear()
    unseen_numbers.cache_clear()


def _entry(engine: str, found: Fitted, like: Sequence[dict[str, float]]) -> str:
    """An engine's file of the catalog. Arguments: `experiments.field.fit.likes`."""
    groups = found.left_out.values()
    source = f"calibrated: {sum(len(one['rows']) for one in groups)} rows in {len(groups)} groups of {_ROWS}"
    unseen, given = "0: not told apart from the fitted terms by the rows; not fitted", catalog.engine_sources(engine)
    values = {
        name: {"value": value, "source": source if name in FITTED_TERMS[engine] else given[name] if value else unseen}
        for name, value in dataclasses.asdict(found.numbers.terms[engine]).items()
    }
    said = (
        f"calibrated: groups of {_ROWS}, each predicted by numbers fitted to the others: root mean square of log speedup, as "
        "much wider as so few groups need"
    )
    for kind, value in scatter_of([one["errors"] for one in groups], like).items():
        values[SCATTER_FIELDS[kind]] = {"value": value, "source": said}
    if engine in PROFILED:
        own = tomllib.loads((_ENGINES / f"{engine}.toml").read_text(encoding="utf-8"))
        values |= {name: entry for name, entry in own.items() if name.startswith("row_")}
    elif (middle := found.numbers.instructions) > 0.0:
        others = [one["instructions"] for one in groups if one["instructions"] > 0.0]
        spread = max(_LEAST_SPREAD, max(others) / min(others)) if len(others) > 1 else _WIDE
        for name, value in {"": middle, "_low": middle / spread, "_high": middle * spread}.items():
            values[f"row_instructions{name}"] = {"value": float(f"{value:.3g}"), "source": source}
    return tomli_w.dumps({"title": TITLES[engine]} | values)


#: Instructions of an engine are uncertain by these factors at least, and where one group alone shows them.
_LEAST_SPREAD, _WIDE = 1.5, 3.0


def show(summary: dict[str, Any]) -> None:
    """The summary as tables, the worst class of devices first: this model, and the simplest predictors of the same rows."""
    by_error = sorted(summary["classes"].items(), key=lambda one: -(one[1]["speedup"]["median"] or 0.0))
    for name, found in by_error:
        print_table(
            f"{name}: decode speedup, predicted against measured",
            ("predictor", "rows", "median error", "90 %", "largest", "with its sign"),
            (
                [title, *_cells(errors)]
                for title, errors in ({"this model": found["speedup"]} | found["simplest"]).items()
            ),
            caption=_caption(found),
        )
    say(f"{summary['predicted']} of {summary['rows']} rows predicted; {summary['stated']} say all that is needed.")
    for note, count in summary["notes"].items():
        say(f"{count} {'row' if count == 1 else 'rows'}: {note}.")
    for reason, count in summary["without_prediction"].items():
        say(f"{count} not predicted: {reason}.")


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
    if found["ar_s"]["rows"]:
        lines.append(
            f"steps without speculation at other batches: median error {100.0 * found['ar_s']['median']:.1f} %"
        )
    if best["groups"]:
        lines.append(f"best draft length, or within 2 % of it: {best['right']} of {best['groups']} groups")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
