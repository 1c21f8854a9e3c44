"""Five tables on one screen, as they were recorded: published speedups, a host's clock, a GPU's steps, kernels and steps of
engines, papers.

`docs/write_evidence.py` puts them at the top of the page "Does it come true?", negative results included.
"""

from __future__ import annotations

import csv
import json
import statistics
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from generated.calibrations import FOLDER as CALIBRATED
from generated.calibrations import held_out, kernels
from generated.page import ROOT, percent, table
from generated.papers import FOLDER, papers

__all__ = ["BEFORE", "BEGIN", "END", "FIELD", "GPU", "HOST", "PAGE", "summary", "with_summary"]

PAGE = ROOT / "docs" / "pages" / "does-it-come-true.md"
FIELD, HOST, GPU = FOLDER / "field.json", FOLDER / "host.json", FOLDER / "gpu_steps.json"
STEPS = ROOT / "experiments" / "silicon" / "steps_priced.csv"

BEGIN = "<!-- written by docs/write_evidence.py from here -->"
END = "<!-- to here -->"

#: Median and largest error that the host's speedups should keep to, and the least rank correlation.
_HOST_BARS = (0.12, 0.25, 0.9)

#: Error that a step on a GPU should keep to.
_GPU_BAR = 0.08

#: When a run's predictions were made, as a rule.
BEFORE = "before the clock"

_ERRORS = ("median", "90 %", "largest")
_YES, _NO = "yes", "**no**"


def summary() -> str:
    """The five tables in Markdown."""
    return "\n\n".join([_field(_read(FIELD)), _host(_read(HOST)), _gpu(_read(GPU)), _silicon(), _of_papers()])


def with_summary(page: str) -> str:
    """A page with its summary written anew. Raises ValueError: it has no place for one."""
    start, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    return f"{page[:start]}\n{summary()}\n{page[end:]}"


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def _field(field: Mapping[str, Any]) -> str:
    said = [*field["without_prediction"].items(), *field["notes"].items()]
    missing = [f"{count} {'row' if count == 1 else 'rows'}: {text}" for text, count in said]
    worst_first = sorted(field["classes"].items(), key=lambda one: -one[1]["speedup"]["median"])
    return "\n\n".join(
        [
            f"**The field**: decode speedups that others published, {field['predicted']} of {field['rows']} rows predicted, "
            f"{field['stated']} of which say acceptance, draft length and device. Each row is predicted by numbers that were "
            "fitted to groups of rows other than its own. The worst comes first. *Best length*: groups in which the best draft "
            "length is picked, or one within 2 % of it. *Signs*: wrong ones, of rows whose gain is above 5 %.",
            _speedups("devices", [(name, one) for name, one in worst_first]),
            _speedups("measured by; target, draft", list(field["sources"].items())),
            f"Not predicted, or with a remark: {'; '.join(missing)}." if missing else "Every row is predicted.",
        ]
    )


def _speedups(heading: str, parts: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """A table of errors of parts of the rows, beside the nearest of the simplest predictors."""
    rows = []
    for name, one in parts:
        errors, best = one["speedup"], one["best_draft_length"]
        nearest = min((peer["median"], rule) for rule, peer in one["simplest"].items() if peer["median"] is not None)
        rows.append(
            [
                name.removeprefix("github.com/"),
                str(errors["rows"]),
                *(percent(errors[key]) for key in ("median", "p90", "largest")),
                f"{one['inside_interval']} of {errors['rows']}",
                f"{one['wrong_signs']} of {one['decided']}",
                f"{best['right']} of {best['groups']}" if best["groups"] else "",
                f"{percent(nearest[0])} ({nearest[1]})",
                _YES if errors["median"] < nearest[0] else _NO,
            ]
        )
    headings = (heading, "rows", *_ERRORS, "in 90 % interval", "signs", "best length", "simplest", "better?")
    return table(headings, rows, numbers=("rows", *_ERRORS))


def _host(summary: Mapping[str, Any]) -> str:
    median, largest, rank = _HOST_BARS
    rows = []
    for name, run in summary["runs"].items():
        for part, errors in run["speedup"].items():
            if part == "all":
                continue
            kept = errors["median"] <= median and errors["largest"] <= largest and errors["spearman"] >= rank
            rows.append(
                [
                    f"{name}, {run['machine']}{'' if run['predicted'] == BEFORE else ', ' + run['predicted']}",
                    part,
                    percent(errors["median"]),
                    *(percent(errors[key], 0) for key in ("p90", "largest")),
                    f"{errors['spearman']:.2f}",
                    percent(errors["constant"]),
                    percent(run["picked"][part], 0),
                    f"{run['fastest'][part]:.2f}x",
                    percent(run.get("covered", {}).get(part), 0),
                    _YES if kept and errors["median"] < errors["constant"] else _NO,
                ]
            )
    headings = ("run", "prompts", *_ERRORS, "rank", "a constant", "picked", "fastest", "covered", "good?")
    noises = [run["noise"] for run in summary["runs"].values()]
    return "\n\n".join(
        [
            f"**The host**: speedups of {summary['ways']} ways to decode on two CPU cores, by the clock; predictions were "
            "written before it unless a run says otherwise. *A constant* has seen the answers. *Picked*: speed of the way that "
            "the model chooses, over the fastest, whose speedup is *fastest* (1: no speculation). *Covered*: measured speedups "
            "within the 90 % interval of the predicted one, where the device's file had errors. *Good*: a median of at most "
            f"{percent(median, 0)}, none above {percent(largest, 0)}, a rank correlation of at least {rank:g}, and better than "
            "the constant.",
            table(headings, rows, numbers=(*_ERRORS, "rank", "a constant", "picked", "fastest", "covered")),
            f"All runs were too noisy by their own rule (median speedups uncertain by {percent(min(noises))} to "
            f"{percent(max(noises))}; the rule says 3 %).",
        ]
    )


def _gpu(summary: Mapping[str, Any]) -> str:
    rows = []
    for run in summary["runs"].values():
        measured = [one["measured_s"] for one in run["rows"]]
        middle = statistics.median(measured)
        errors = sorted(abs(one["predicted_s"] / one["measured_s"] - 1.0) for one in run["rows"])
        constant = statistics.fmean(abs(middle / one - 1.0) for one in measured)
        inside = sum(one["low_s"] <= one["measured_s"] <= one["high_s"] for one in run["rows"])
        within = sum(error <= _GPU_BAR for error in errors)
        rows.append(
            [
                f"{run['network']}, {run['machine']}, {run['predicted']}",
                str(len(errors)),
                percent(statistics.fmean(errors)),
                percent(statistics.median(errors)),
                percent(errors[-1]),
                f"{within} of {len(errors)}",
                f"{inside} of {len(errors)}",
                percent(constant),
                _YES if within == len(errors) else _NO,
            ]
        )
    within = f"within {percent(_GPU_BAR, 0)}"
    headings = (
        "network, machine, prediction",
        "steps",
        "mean",
        "median",
        "largest",
        within,
        "covered",
        "a constant",
        "good?",
    )
    return "\n\n".join(
        [
            "**The GPU**: steps of random weights in 16 bits by this package on a GPU that `jaxspec calibrate` measured; 1 and "
            "16 sequences, 1 to 17 new tokens of each. *A constant*, the median of the same times, has seen the answers; its "
            f"mean error. *Covered*: steps within the predicted 90 % interval. *Good*: all steps {within}.",
            table(headings, rows, numbers=("steps", "mean", "median", "largest", "a constant")),
        ]
    )


def _silicon() -> str:
    rows = []
    records = [(path, tomllib.loads(path.read_text(encoding="utf-8"))) for path in sorted(CALIBRATED.glob("*/*.toml"))]
    fits: dict[str, list[tuple[float, str, float | None]]] = {}
    for path, record in records:
        for name, entry in kernels(record):
            roofline = entry.get("baselines", {}).get("roofline", {}).get("mean")
            where = f"{path.parent.name}, {path.stem}"
            fits.setdefault(_kind_of_kernel(name), []).append((held_out(entry["errors"])["mean"], where, roofline))
    for kind, of_kind in sorted(fits.items()):
        rows.append(_spread_row(f"kernels: {kind}", f"{len(of_kind)} fits", of_kind))
    for phase, errors in _steps().items():
        mean = lambda column, errors=errors: statistics.fmean(abs(one[column]) for one in errors)
        worst = max(errors, key=lambda one: abs(one[0]))
        better = _YES if mean(0) < mean(1) else _NO
        rows.append(
            [
                phase,
                f"{len(errors)} cells",
                percent(mean(0)),
                percent(abs(worst[0])),
                worst[2],
                percent(mean(1)),
                better,
            ]
        )
    headings = ("GPUs and engines", "of", "mean error", "largest", "there", "roofline", "better?")
    return "\n\n".join(
        [
            "**The silicon**: six GPUs with three engines. Kernels: mean errors on shapes that a fit did not see, median and "
            "largest over the fits. Whole steps: the mean over cells composed from measured kernels, and the largest error.",
            table(headings, rows, numbers=("mean error", "largest", "roofline")),
        ]
    )


def _kind_of_kernel(name: str) -> str:
    """Products in 16 bits apart from narrower ones."""
    kind, _, detail = name.partition(", ")
    if kind == "attention":
        return f"attention, {detail.split(', ')[0]}"
    return f"{kind}, {'16 bits' if detail == 'bfloat16' else 'narrower'}"


def _spread_row(kind: str, of: str, errors: Sequence[tuple[float, str, float | None]]) -> list[str]:
    largest, where, _ = max(errors)
    middle = statistics.median(error for error, _, _ in errors)
    rooflines = [roofline for _, _, roofline in errors if roofline is not None]
    bare = statistics.median(rooflines) if rooflines else None
    return [
        kind,
        of,
        percent(middle),
        percent(largest),
        where,
        percent(bare),
        "" if bare is None else _YES if middle < bare else _NO,
    ]


def _steps() -> dict[str, list[tuple[float, float, str]]]:
    """Phase -> errors of the model and of the roofline, and where, of each cell."""
    by_phase: dict[str, list[tuple[float, float, str]]] = {}
    with STEPS.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            composed = float(row["composed_s"])
            errors = (float(row["model_s"]) / composed - 1.0, float(row["roofline_s"]) / composed - 1.0)
            phase = f"steps: {row['phase']}, KV of {row['kv_bits']} bits"
            by_phase.setdefault(phase, []).append((*errors, f"{row['gpu']}, {row['engine']}"))
    return by_phase


def _of_papers() -> str:
    rows = []
    for name in papers():
        result = _read(FOLDER / f"{name}.json")
        # Tables of inputs alone claim nothing; those in which nothing is predicted any more are not reproduced.
        tables = [one for one in result["summary"].values() if set(one["relative_error"]) - {"input"}]
        judged = [one for one in tables if one["judged"]]
        missed = [one["title"].split(": ")[0] for one in tables if not one["reproduced"]]
        rows.append(
            [
                f"[{result['title'].split(':')[0]}](../../experiments/papers/{name}/README.md)",
                str(sum(one["judged"]["cells"] for one in judged)),
                f"{len(tables) - len(missed)} of {len(tables)}",
                percent(statistics.median(one["judged"]["median"] for one in judged)),
                percent(max(one["judged"]["max"] for one in judged), 0),
                str(len({choice["name"] for one in tables for choice in one["choices_by_outcome"] if choice["cells"]})),
                ", ".join(missed),
            ]
        )
    by_outcome = "choices by outcome"
    headings = ("paper", "predicted cells", "tables reproduced", "median", "largest", by_outcome, "**not reproduced**")
    return "\n\n".join(
        [
            "**The papers**: tables with predicted or calibrated cells. A table is reproduced where it has predicted cells "
            "and the model errs less on them than each of the simplest predictors. Median over the tables' medians, largest "
            "error of a cell. *Choices by outcome*: readings that were chosen with cells of a table in view, which are then "
            "calibrated and no predictions.",
            table(headings, rows, numbers=("predicted cells", "tables reproduced", "median", "largest", by_outcome)),
        ]
    )
