"""The two compression tables from a model of weights with two fitted numbers.

Fitted are two numbers, the base scale and the spread of the rows, to two cells of the entropy table (exponent and lower
mantissa of Llama-3-8B in the split 1-5-5-5). They then hold for all families; whatever else is in the tables is predicted.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.papers.huffllm import measure
from experiments.papers.huffllm.chips import MODELS
from experiments.papers.huffllm.weights_model import (
    ORIGINS,
    Normals,
    ScaleModel,
    draw_normals,
    family_of,
    stored_patterns,
    weights,
)
from experiments.reproduce.paper import Modelled
from experiments.reproduce.printed import PrintedCell, printed_cells, printed_value
from jaxspec.formats import fields

__all__ = [
    "CODED_SPLIT",
    "Sample",
    "calibrate",
    "entropies",
    "fitted_cells",
    "own_bits",
    "printed_bits",
    "ratios",
    "sample",
]

DATA = Path(__file__).parent / "data"
FORMATS = {"FP16": "float16", "BF16": "bfloat16"}
CODED_SPLIT = "1-5-5-5"


class Sample(NamedTuple):
    """Weights drawn from the fitted model.

    Attributes:
        counts: occurrences of every pattern by family and format, "matrix pattern".
    """

    scales: ScaleModel
    counts: Mapping[tuple[str, str], np.ndarray]

    def fitted(self) -> dict[str, float]:
        """The two fitted numbers by name."""
        return {"base_scale": self.scales.base_scale, "row_spread": self.scales.row_spread}


@functools.cache
def fitted_cells() -> dict[str, float]:
    """The printed cells that the two numbers are fitted to: bits by field of the split."""
    table = DATA / "huffllm_entropy_splits.csv"
    return {
        name: printed_value(table, "entropy", split=CODED_SPLIT, field_name=name)
        for name in ("exponent", "lower mantissa")
    }


def _bisect(function: Callable[[float], float], low: float, high: float, target: float, steps: int = 13) -> float:
    """Where a growing function reaches a target."""
    for _ in range(steps):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if function(middle) < target else (low, middle)
    return 0.5 * (low + high)


def calibrate(normals: Normals) -> ScaleModel:
    """The scale and the spread at which one matrix of Llama has the two entropies of `fitted_cells`.

    The spread hardly moves the lower mantissa, nor the scale the exponent: three rounds of one after the other are enough.
    """
    first, targets = normals.first(), fitted_cells()

    def entropy(field: int, scale: float, spread: float) -> float:
        values = weights(ScaleModel(scale, spread), first)
        patterns = stored_patterns(values, origin=ORIGINS["Llama"], stored="float16")
        return measure.field_entropies(measure.pattern_counts(patterns), fields.parse_widths(CODED_SPLIT))[field]

    def fit_spread(scale: float) -> float:
        return _bisect(lambda spread: entropy(1, scale, spread), 0.0, 0.6, targets["exponent"])

    def fit_scale(spread: float) -> float:
        # The smaller the scale, the more weights are subnormal, so that the entropy grows with minus its logarithm.
        of_minus_log = lambda minus_log: entropy(3, math.exp(-minus_log), spread)
        return math.exp(-_bisect(of_minus_log, -math.log(0.1), -math.log(0.001), targets["lower mantissa"]))

    scale, spread = 0.01, 0.25
    for _ in range(3):
        spread = fit_spread(scale)
        scale = fit_scale(spread)
    return ScaleModel(scale, spread)


@functools.lru_cache(maxsize=2)
def sample(seed: int = 0, *, matrices: int = 4, rows: int = 1024, columns: int = 1536) -> Sample:
    """Weights of all families in both formats; about five seconds.

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
    return Sample(scales, counts)


def entropies(drawn: Sample) -> Callable[[PrintedCell], Modelled]:
    """The entropy table: Llama-3-8B in float16, split in four ways."""
    llama = drawn.counts["Llama", "float16"]

    def model(cell: PrintedCell) -> Modelled:
        found = measure.field_entropies(llama, fields.parse_widths(cell["split"]))
        total = cell["field_index"] == "total"
        value = float(found.sum() if total else found[int(cell["field_index"]) - 1])
        # The total of the split contains the two fitted cells, so it counts as fitted too.
        fitted = cell["split"] == CODED_SPLIT and (total or cell["field_name"] in fitted_cells())
        contradicted = (cell["split"], cell["field_index"]) == ("4-4-4-4", "4")
        note = "the printed total of this split, 11.09, leaves 1.04 for this field" if contradicted else ""
        return Modelled(value, "calibrated" if fitted else "predicted", note)

    return model


def ratios(drawn: Sample) -> Callable[[PrintedCell], Modelled]:
    """The table of bits per weight and compression ratios."""
    bits = {key: measure.huffman_bits(value, key[1]) for key, value in drawn.counts.items()}

    def model(cell: PrintedCell) -> Modelled:
        found = bits[family_of(cell["model"]), FORMATS[cell["number_format"]]]
        return Modelled(found if cell.metric == "bits_per_param" else 16 / found, "predicted")

    return model


def own_bits(drawn: Sample) -> dict[str, float]:
    """Bits per weight in float16 of `MODELS`, as this sample has them."""
    return {
        model: measure.huffman_bits(drawn.counts[family_of(_hyphened(model)), "float16"], "float16") for model in MODELS
    }


@functools.cache
def printed_bits() -> dict[str, float]:
    """Bits per weight in float16 of `MODELS`, as printed."""
    found = {
        cell["model"]: cell.value
        for cell in printed_cells(DATA / "huffllm_compression_ratios.csv")
        if (cell.metric, cell["number_format"]) == ("bits_per_param", "FP16")
    }
    return {model: found[_hyphened(model)] for model in MODELS}


def _hyphened(model: str) -> str:
    """A model's name as the compression table spells it: "Llama 3-8B" is "Llama-3-8B" there."""
    return model.replace(" ", "-")
