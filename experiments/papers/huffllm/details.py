"""Numbers beside Huff-LLM's tables: where bits go, errors of savings in points, roofline and CAMs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from experiments.papers.huffllm import compression, hardware, savings, savings_errors
from experiments.papers.huffllm.gap import explain_gap
from experiments.papers.huffllm.savings_model import FITTED_BOUNDS
from experiments.papers.huffllm.solved import Solved
from experiments.reproduce.paper import Detail, Outcome

__all__ = ["DETAILS", "compare_savings"]


def compare_savings(solved: Solved) -> dict[str, Any]:
    """Errors of the savings in points, with bits per weight from this project's compression and from the printed ratios."""
    printed_bits = compression.printed_bits()
    cells = savings.cells(printed_bits)
    fitted = savings.calibrate(cells, printed_bits)
    return {
        "own": savings_errors.compare(cells, solved.own_bits, solved.fitted),
        "printed": savings_errors.compare(cells, printed_bits, fitted),
        "rows_printed_ratio": [
            {
                "table": cell.table,
                "metric": cell.metric,
                "benchmark": cell.benchmark,
                **cell.case._asdict(),
                "paper_value": cell.saving,
                "model_value": savings.predict(cell, printed_bits, fitted),
                "doubt": cell.doubt,
            }
            for cell in cells
        ],
    }


def _errors(errors: Mapping[str, Any]) -> str:
    return f"{errors['mean']:.2f} ({errors['max']:.2f}), {errors['cells']} cells" if errors["cells"] else "none"


def _compared(value: Mapping[str, Any]) -> Iterable[dict[str, str]]:
    for source in ("own", "printed"):
        sets = dict(value[source]["by_table"])
        for metric, found in value[source]["by_metric"].items():
            sets |= {f"{metric}: {name}": compared for name, compared in found.items()}
        for name, compared in sets.items():
            yield {
                "bits": source,
                "name": name,
                "model": _errors(compared["model"]),
                "constants": _errors(compared["constants"]),
                "order": "/".join(map(str, compared["order"].values())),
                "in_doubt": _errors(compared["in_doubt"]) if "in_doubt" in compared else "",
            }
        for metric, found in value[source]["transferred"].items():
            yield _left_out(source, f"{metric}: predicted on fitted architectures, constants fitted there", found)
        for metric, benchmarks in value[source]["leave_one_benchmark_out"].items():
            for benchmark, found in benchmarks.items():
                yield _left_out(source, f"{metric}: {benchmark}, fitted to the other benchmarks", found)


def _left_out(source: str, name: str, found: Mapping[str, Any]) -> dict[str, str]:
    ours, constants = _errors(found["model"]), _errors(found["constants"])
    return {"bits": source, "name": name, "model": ours, "constants": constants, "order": "", "in_doubt": ""}


def _bounds(value: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    for source in ("own", "printed"):
        for name, number in value[source].items():
            low, high = FITTED_BOUNDS[name]
            yield {"bits": source, "name": name, "value": number, "low": low, "high": high}


def _roofline(value: Mapping[str, Any]) -> list[dict[str, float]]:
    points = value["roofline"]
    return [dict(zip(points, entry, strict=True)) for entry in zip(*points.values(), strict=True)]


def _hardware(outcome: Outcome) -> dict[str, Any]:
    return hardware.curves(outcome.solved.own_bits, outcome.solved.fitted)


DETAILS = (
    Detail(
        "explanation",
        "Llama in FP16: from the entropies' sum (paper: 10.61) to Huffman bits (paper: 10.96)",
        lambda outcome: explain_gap(outcome.solved.sample.counts["Llama", "float16"]),
        {"item": "{item}", "bits per weight": "{bits_per_weight:.4f}"},
    ),
    Detail(
        "savings",
        "Savings: mean (largest) absolute error in percentage points; bits per weight from own or printed compression",
        lambda outcome: compare_savings(outcome.solved),
        {
            "bits": "{bits}",
            "cells of": "{name}",
            "model": "{model}",
            "constants": "{constants}",
            "order right/tied/wrong": "{order}",
            "cells in doubt": "{in_doubt}",
        },
        _compared,
    ),
    Detail(
        "fitted",
        "The savings' fitted numbers, and what physics allows",
        lambda outcome: {source: outcome.details["savings"][source]["fitted"] for source in ("own", "printed")},
        {"bits": "{bits}", "number": "{name}", "fitted": "{value:.4g}", "from": "{low:.2g}", "to": "{high:.2g}"},
        _bounds,
    ),
    Detail(
        "hardware",
        "Weight-stationary array, Llama-3.2-3B, MMLU, over the bandwidth",
        _hardware,
        {"GB/s": "{bandwidth_gbps}", "time saved": "{latency_saving:.2f} %", "energy saved": "{energy_saving:.2f} %"},
        _roofline,
    ),
    Detail(
        "cams",
        "Decoders of 15 bits over 128 elements, by bits per symbol",
        lambda outcome: outcome.details["hardware"]["cam_percent"],
        {"bits per symbol": "{bits}", "area": "{percent:.1f} %"},
        lambda value: [{"bits": bits, "percent": percent} for bits, percent in value.items()],
    ),
)
