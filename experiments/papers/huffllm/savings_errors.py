"""Errors of savings in percentage points, beside constants fitted to the same cells; order of cells; benchmarks left out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.papers.huffllm.savings import PrintedSaving, calibrate, is_fitted, predict
from experiments.papers.huffllm.savings_model import BENCHMARK_TOKENS, Case, Fitted

__all__ = [
    "BARS",
    "CAPTION_BITS",
    "compare",
    "constant_predictor",
    "energy_terms",
    "errors_of",
    "leave_one_benchmark_out",
    "missed_bars",
    "ordering",
]

#: Mean absolute errors, in percentage points, that a reproduction must not exceed.
BARS = {"latency_saving": 0.45, "energy_saving": 2.0}

#: Bits per weight after compression by the captions of A.2, and of its commented-out tables.
CAPTION_BITS = {"Llama": 11.0, "OPT": 14.0}

#: Printed differences below this, in points, are no order: rounding and a mapper's chance.
_ORDER_POINTS = 0.1


def constant_predictor(some: Sequence[PrintedSaving], bits: Mapping[str, float]) -> Callable[[PrintedSaving], float]:
    """The simplest predictor: a constant per metric, architecture and bandwidth, times 1 - bits / 16; fitted to the cells."""
    group = lambda cell: (cell.metric, cell.case.architecture, cell.case.bandwidth_gbps)
    bound = lambda cell: 100 * (1 - bits[cell.case.model] / 16)
    constants = {}
    for key in {group(cell) for cell in some}:
        x, y = np.array([(bound(cell), cell.saving) for cell in some if group(cell) == key]).T
        constants[key] = (x @ y) / (x @ x)
    return lambda cell: constants[group(cell)] * bound(cell)


def errors_of(some: Sequence[PrintedSaving], predictor: Callable[[PrintedSaving], float]) -> dict[str, float]:
    """Number of cells, mean and largest absolute error in percentage points."""
    errors = [abs(predictor(cell) - cell.saving) for cell in some]
    if not errors:
        return {"cells": 0, "mean": 0.0, "max": 0.0}
    return {"cells": len(errors), "mean": float(np.mean(errors)), "max": float(np.max(errors))}


def ordering(some: Sequence[PrintedSaving], predictor: Callable[[PrintedSaving], float]) -> dict[str, int]:
    """Pairs of cells that differ in the benchmark or in the bandwidth alone: how often the model orders them as printed."""
    counts = {"right": 0, "tied": 0, "wrong": 0}
    for one, other in itertools.combinations(some, 2):
        same = [getattr(one.case, field) == getattr(other.case, field) for field in Case._fields]
        if one.metric != other.metric or same.count(False) != 1 or (same[1] and same[2]):
            continue
        printed, ours = one.saving - other.saving, predictor(one) - predictor(other)
        if abs(printed) >= _ORDER_POINTS:
            counts["tied" if abs(ours) < 0.005 else "right" if printed * ours > 0 else "wrong"] += 1
    return counts


def leave_one_benchmark_out(all_cells: Sequence[PrintedSaving], bits: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """Errors of each benchmark's cells when all numbers are fitted to the other two: the model's and the constants'."""
    result: dict[str, dict[str, Any]] = {}
    for benchmark in BENCHMARK_TOKENS:
        kept = [cell for cell in all_cells if cell.benchmark != benchmark]
        fitted = calibrate(kept, bits)
        for metric in BARS:
            counted = [cell for cell in kept if cell.metric == metric and not cell.doubt]
            left = [
                cell for cell in all_cells if (cell.benchmark, cell.metric) == (benchmark, metric) and not cell.doubt
            ]
            result.setdefault(metric, {})[benchmark] = {
                "model": errors_of(left, lambda cell, fitted=fitted: predict(cell, bits, fitted)),
                "constants": errors_of(left, constant_predictor(counted, bits)),
            }
    return result


def compare(all_cells: Sequence[PrintedSaving], bits: Mapping[str, float], fitted: Fitted) -> dict[str, Any]:
    """The fitted numbers, errors by table and by set of cells with those of the constants, order, and benchmarks left out.

    Args:
        bits: bits per FP16 weight by model.
    """
    distinct = [cell for cell in all_cells if not cell.repeated]
    model = lambda cell: predict(cell, bits, fitted)
    return {
        "fitted": fitted._asdict(),
        "bits_per_weight": dict(bits),
        "by_table": {
            table: _compared([cell for cell in all_cells if cell.table == table and not cell.doubt], model, bits)
            | {"in_doubt": errors_of([cell for cell in all_cells if cell.table == table and cell.doubt], model)}
            for table in dict.fromkeys(cell.table for cell in all_cells)
        },
        "by_metric": {
            metric: {
                name: _compared([cell for cell in distinct if cell.metric == metric and keep(cell)], model, bits)
                for name, keep in _SETS.items()
                if metric == "latency_saving" or "OPT" not in name
            }
            for metric in BARS
        },
        "transferred": {
            metric: _transferred([cell for cell in distinct if cell.metric == metric], model, bits) for metric in BARS
        },
        "leave_one_benchmark_out": leave_one_benchmark_out(distinct, bits),
    }


def _is_counted(cell: PrintedSaving) -> bool:
    """Whether a bar counts a cell. None counts OPT's latencies: no number of bits meets them and the energies beside them."""
    return not cell.doubt and not (cell.metric == "latency_saving" and cell.case.model.startswith("OPT"))


#: Which cells are compared: those that count, and what the errors are if doubtful ones are let in.
_SETS: dict[str, Callable[[PrintedSaving], bool]] = {
    "counted": lambda cell: _is_counted(cell),
    "counted, predicted only": lambda cell: _is_counted(cell) and not is_fitted(cell),
    "with OPT latencies within their ratio": lambda cell: not cell.doubt,
    "all": lambda cell: True,
}


def energy_terms(some: Sequence[PrintedSaving], bits: Mapping[str, float]) -> list[dict[str, Any]]:
    """What the printed energies imply, by chip and bandwidth: saving = share (1 - bits / 16) - added, by least squares.

    Args:
        bits: per weight, by model.
    Returns:
        `share` of the energy that falls with the bits of weights, and `added` by compression, in percent of the energy; the
        mean absolute error in points, with both and with the share alone.
    """
    groups: dict[tuple[str, float], list[PrintedSaving]] = {}
    for cell in some:
        if cell.metric == "energy_saving" and not cell.repeated:
            groups.setdefault((cell.case.architecture, cell.case.bandwidth_gbps), []).append(cell)
    energies = []
    for (architecture, bandwidth), cells in sorted(groups.items()):
        bound = np.array([100 * (1 - bits[cell.case.model] / 16) for cell in cells])
        printed = np.array([cell.saving for cell in cells])
        both = np.stack([bound, -np.ones_like(bound)], axis=1)
        # Without networks of other bits the two cannot be told apart.
        terms = np.linalg.lstsq(both, printed, rcond=None)[0] if np.ptp(bound) > 2.0 else (np.nan, np.nan)
        share = (bound @ printed) / (bound @ bound)
        energies.append(
            {
                "architecture": architecture,
                "bandwidth_gbps": bandwidth,
                "share": float(terms[0]),
                "added": float(terms[1]),
                "error": float(np.mean(np.abs(both @ np.asarray(terms) - printed))),
                "share_alone": float(share),
                "error_alone": float(np.mean(np.abs(share * bound - printed))),
            }
        )
    return energies


def missed_bars(compared: Mapping[str, Any]) -> list[str]:
    """One line for each bar that the counted cells miss: of `BARS`, and of beating the constants."""
    lines = []
    for metric, bar in BARS.items():
        counted = compared["by_metric"][metric]["counted"]
        mean, constant = counted["model"]["mean"], counted["constants"]["mean"]
        if mean > bar:
            lines.append(f"{metric}: mean error {mean:.2f} points, bar {bar}")
        if mean >= constant:
            lines.append(f"{metric}: mean error {mean:.2f} points, simplest predictor {constant:.2f}")
    return lines


def _compared(
    some: Sequence[PrintedSaving], model: Callable[[PrintedSaving], float], bits: Mapping[str, float]
) -> dict[str, Any]:
    return {
        "model": errors_of(some, model),
        "constants": errors_of(some, constant_predictor(some, bits)),
        "order": ordering(some, model),
    }


def _transferred(
    some: Sequence[PrintedSaving], model: Callable[[PrintedSaving], float], bits: Mapping[str, float]
) -> dict[str, Any]:
    """Errors of predicted cells: the model's, and of constants that were fitted to the model's own fitted cells.

    Only where such constants exist: none for the output-stationary array, nor for the vector array's latencies.
    """
    fitted = [cell for cell in some if is_fitted(cell)]
    groups = {(cell.case.architecture, cell.case.bandwidth_gbps) for cell in fitted}
    left = [
        cell
        for cell in some
        if (cell.case.architecture, cell.case.bandwidth_gbps) in groups and not is_fitted(cell) and not cell.doubt
    ]
    return {"model": errors_of(left, model), "constants": errors_of(left, constant_predictor(fitted, bits))}
