"""The two compression tables, cell by cell: printed, modelled, and how far the simplest predictors come.

Fitted are two numbers, the base scale and the spread of the rows, to two cells of the entropy table (exponent and lower
mantissa of Llama-3-8B in the split 1-5-5-5). They then hold for all families; whatever else is in the tables is predicted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.papers.huffllm import measure
from experiments.papers.huffllm.weights_model import (
    ORIGINS,
    Normals,
    ScaleModel,
    draw_normals,
    family_of,
    stored_patterns,
    weights,
)
from experiments.papers.reproduction import (
    beats,
    constant_errors,
    predictor_errors,
    printed_cells,
    spread_by_status,
    spread_of,
    table_row,
)
from jaxspec.formats import fields
from jaxspec.formats.huffman import MAX_CODE_LENGTH

__all__ = ["BARS", "calibrate", "cell_label", "explain_gap", "missed_bars", "reproduce"]

DATA = Path(__file__).parent / "data"
FORMATS = {"FP16": "float16", "BF16": "bfloat16"}
CODED_SPLIT = "1-5-5-5"

#: Cells that the two numbers are fitted to: (field of the split, printed bits).
FITTED_CELLS = {"exponent": 2.60, "lower mantissa": 2.04}  # Huff-LLM, tab:entropy_splits

#: Mean length of a unary-coded exponent of Llama's weights: Cassandra, IV-B and Fig. 6(b).
UNARY_LENGTH = 2.85

#: What a reproduction must reach: entropies of the coded split and the unary length in bits, bits per weight relative.
BARS = {"entropy_bits": 0.1, "unary_bits": 0.06, "bits_per_weight": 0.015}


def _bisect(function: Callable[[float], float], low: float, high: float, target: float, steps: int = 13) -> float:
    """Where a growing function reaches a target."""
    for _ in range(steps):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if function(middle) < target else (low, middle)
    return 0.5 * (low + high)


def calibrate(normals: Normals) -> ScaleModel:
    """The scale and the spread at which one matrix of Llama has the two entropies of `FITTED_CELLS`.

    The spread hardly moves the lower mantissa, nor the scale the exponent: three rounds of one after the other are enough.
    """
    first = normals.first()

    def entropy(field: int, scale: float, spread: float) -> float:
        values = weights(ScaleModel(scale, spread), first)
        patterns = stored_patterns(values, origin=ORIGINS["Llama"], stored="float16")
        return measure.field_entropies(measure.pattern_counts(patterns), fields.parse_widths(CODED_SPLIT))[field]

    def fit_spread(scale: float) -> float:
        return _bisect(lambda spread: entropy(1, scale, spread), 0.0, 0.6, FITTED_CELLS["exponent"])

    def fit_scale(spread: float) -> float:
        # The smaller the scale, the more weights are subnormal, so that the entropy grows with minus its logarithm.
        of_minus_log = lambda minus_log: entropy(3, math.exp(-minus_log), spread)
        return math.exp(-_bisect(of_minus_log, -math.log(0.1), -math.log(0.001), FITTED_CELLS["lower mantissa"]))

    scale, spread = 0.01, 0.25
    for _ in range(3):
        spread = fit_spread(scale)
        scale = fit_scale(spread)
    return ScaleModel(scale, spread)


def _printed(name: str) -> list[dict[str, str]]:
    return printed_cells(DATA / f"huffllm_{name}.csv")


def _row(cell: dict[str, str], table: str, model_value: float, status: str, note: str) -> dict[str, Any]:
    conditions = {
        k: v for k, v in cell.items() if k not in ("status", "metric", "value", "unit", "note", "source_label")
    }
    return table_row(
        "huffllm",
        table,
        conditions,
        metric=cell["metric"],
        unit=cell["unit"],
        paper_value=float(cell["value"]),
        model_value=model_value,
        status=status,
        note=note,
    )


def _entropy_rows(llama: np.ndarray) -> list[dict[str, Any]]:
    rows = []
    for cell in _printed("entropy_splits"):
        entropies = measure.field_entropies(llama, fields.parse_widths(cell["split"]))
        total = cell["field_index"] == "total"
        value = float(entropies.sum() if total else entropies[int(cell["field_index"]) - 1])
        # The total of the split contains the two fitted cells, so it counts as fitted too.
        fitted = cell["split"] == CODED_SPLIT and (total or cell["field_name"] in FITTED_CELLS)
        note = cell["note"]
        if (cell["split"], cell["field_index"]) == ("4-4-4-4", "4"):
            note = "the printed total of this split, 11.09, leaves 1.04 for this field"
        rows.append(_row(cell, "entropy_splits", value, "calibrated" if fitted else "predicted", note))
    return rows


def _ratio_rows(counts: dict[tuple[str, str], np.ndarray]) -> list[dict[str, Any]]:
    bits = {key: measure.huffman_bits(value, key[1]) for key, value in counts.items()}
    rows = []
    for cell in _printed("compression_ratios"):
        found = bits[family_of(cell["model"]), FORMATS[cell["number_format"]]]
        value = found if cell["metric"] == "bits_per_param" else 16 / found
        rows.append(_row(cell, "compression_ratios", value, "predicted", ""))
    return rows


def _unary_row(llama_bfloat16: np.ndarray) -> dict[str, Any]:
    length = measure.mean_unary_length(llama_bfloat16)
    cell = {"model": "Llama", "metric": "unary-coded exponent length", "value": str(UNARY_LENGTH), "unit": "bits"}
    return {**_row(cell, "fig6", length, "predicted", "fitted to another paper's entropies"), "paper": "cassandra"}


def _summary(rows: list[dict[str, Any]], table: str, cells: int, fitted: dict[str, float]) -> dict[str, Any]:
    rows = [row for row in rows if row["table"] == table]
    simplest = {}
    if table == "entropy_splits":
        simplest["one constant"] = constant_errors(rows)
        width = lambda row: float(row["conditions"]["field_bits"])
        simplest["no compression: the field's width"] = predictor_errors(rows, width)
    elif table == "compression_ratios":
        simplest["one constant per metric"] = constant_errors(rows)
        simplest["one constant per metric and number format"] = constant_errors(rows, "number_format")
    else:
        # Another paper's entropy is the lower bound of this length.
        simplest["the exponent's entropy"] = predictor_errors(rows, lambda row: FITTED_CELLS["exponent"])
    ours = spread_of([row["relative_error"] for row in rows])
    peers = {name: spread_of(errors) for name, errors in simplest.items()}
    return {
        "cells": cells,
        "covered": len(rows),
        "relative_error": spread_by_status(rows),
        "relative_error_all": ours,
        "fitted": fitted,
        "simplest_predictors": peers,
        # The first of them is a constant, wherever there is more than one cell.
        "beats_simplest": beats(ours, next(iter(peers.values()))),
    }


def cell_label(row: Mapping[str, Any]) -> str:
    """A row of the compression tables in a few words."""
    conditions = row["conditions"]
    if row["table"] == "entropy_splits":
        return f"{conditions['split']}, {conditions['field_name']}"
    return " ".join(conditions[key] for key in ("model", "number_format") if key in conditions)


def explain_gap(llama: np.ndarray, *, column_weights: int = 4096) -> list[dict[str, Any]]:
    """Why Llama in float16 takes 10.96 bits where the paper's own entropies sum to 10.61: bits per weight, item by item.

    The lower mantissa takes four values almost equally often, and rarely one of 28 others. Entropy hardly sees these, but a
    Huffman code must give one of the four a third bit to make room for them: 0.25 bits times nearly one.

    Args:
        column_weights: weights of a column, whose banks are padded to words of 32 bits.
    """
    widths = fields.parse_widths(CODED_SPLIT)
    entropies, bits = measure.field_entropies(llama, widths), measure.coded_bits(llama, "float16")
    excess = bits.mean(axis=0) - entropies
    weights_of_matrix = float(llama.sum(axis=1).mean())
    # Symbol, length and codeword of 32 entries in three fields; a bank ends within a word at any of 32 places.
    codebook = 3 * 32 * (5 + 4 + MAX_CODE_LENGTH) / weights_of_matrix
    items = [
        ("sum of the fields' entropies", float(entropies.sum())),
        ("sign stored raw", float(excess[0])),
        ("Huffman redundancy of the exponent", float(excess[1])),
        ("Huffman redundancy of the upper mantissa", float(excess[2])),
        ("Huffman redundancy of the lower mantissa", float(excess[3])),
        (
            "mean of ratios instead of ratio of means",
            measure.huffman_bits(llama, "float16") - float(bits.sum(axis=1).mean()),
        ),
    ]
    total = sum(value for _, value in items)
    extras = [
        ("Huffman bits per weight (in the table)", total),
        ("not counted: codebooks of a matrix", codebook),
        (f"not counted: padding of three banks of {column_weights} weights", 3 * 15.5 / column_weights),
        (
            "not counted: a buffer of three equally large banks (3.2), in all",
            1 + 3 * float(bits.mean(axis=0)[1:].max()),
        ),
        ("printed: 16 over a ratio that rounds to 1.46, least", 16 / 1.465),
        ("printed: 16 over a ratio that rounds to 1.46, most", 16 / 1.455),
    ]
    return [{"item": name, "bits_per_weight": value} for name, value in items + extras]


def missed_bars(rows: list[dict[str, Any]]) -> list[str]:
    """The cells that miss their bar, in words."""
    missed = []
    for row in rows:
        error = abs(row["model_value"] - row["paper_value"])
        name, bar = None, 0.0
        if row["conditions"].get("split") == CODED_SPLIT and row["metric"] == "entropy":
            name, bar = "entropy_bits", BARS["entropy_bits"]
        elif row["metric"] == "bits_per_param":
            name, bar = "bits_per_weight", BARS["bits_per_weight"] * row["paper_value"]
        elif row["table"] == "fig6":
            name, bar = "unary_bits", BARS["unary_bits"]
        if name and error > bar:
            missed.append(f"{name}: {row['conditions']} off by {error:.3f}, allowed {bar:.3f}")
    return missed


def reproduce(*, seed: int = 0, matrices: int = 4, rows: int = 1024, columns: int = 1536) -> dict[str, Any]:
    """All rows, a summary per table and the explanation of the gap; about five seconds.

    Args:
        matrices, rows, columns: size of the sample of each family.
    """
    normals = {
        family: draw_normals(seed + i, matrices=matrices, rows=rows, columns=columns)
        for i, family in enumerate(ORIGINS)
    }
    scales = calibrate(normals["Llama"])
    counts = {}
    for family, numbers in normals.items():
        values = weights(scales, numbers)
        for stored in FORMATS.values():
            patterns = stored_patterns(values, origin=ORIGINS[family], stored=stored)
            counts[family, stored] = measure.pattern_counts(patterns)
    llama = counts["Llama", "float16"]
    all_rows = [*_entropy_rows(llama), *_ratio_rows(counts), _unary_row(counts["Llama", "bfloat16"])]
    fitted = {"base_scale": scales.base_scale, "row_spread": scales.row_spread}
    cells = {name: len(_printed(name)) for name in ("entropy_splits", "compression_ratios")} | {"fig6": 1}
    return {
        "rows": all_rows,
        "summary": {
            f"{'cassandra' if table == 'fig6' else 'huffllm'}/{table}": _summary(all_rows, table, number, fitted)
            for table, number in cells.items()
        },
        "explanation": explain_gap(llama),
        "missed_bars": missed_bars(all_rows),
    }
