"""The two compression tables from a model of weights with two fitted numbers.

Fitted are two numbers, the base scale and the spread of the rows, to two cells of the entropy table (exponent and lower
mantissa of Llama-3-8B in the split 1-5-5-5). They then hold for all families; whatever else is in the tables is predicted.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import ml_dtypes
import numpy as np

from experiments.papers.huffllm.savings_model import MODELS
from experiments.reproduce.paper import Modelled, PrintedCell, printed_cells, printed_value
from jaxspec.formats import fields, huffman
from jaxspec.formats.fields import entropy_bits
from jaxspec.formats.huffman_columns import SPLITS
from jaxspec.formats.unary import NUM_SYMBOLS, mean_code_length

__all__ = [
    "CODED_SPLIT",
    "ORIGINS",
    "Normals",
    "Sample",
    "ScaleModel",
    "calibrate",
    "coded_bits",
    "draw_normals",
    "entropies",
    "family_of",
    "field_counts",
    "field_entropies",
    "fitted_cells",
    "huffman_bits",
    "mean_unary_length",
    "own_bits",
    "pattern_counts",
    "printed_bits",
    "ratios",
    "sample",
    "stored_patterns",
    "weights",
]


# What weights cost in a split: entropies, Huffman bits and ratios, all from the occurrences of the 65,536 patterns.

NUM_PATTERNS = 1 << 16


def pattern_counts(patterns: np.ndarray) -> np.ndarray:
    """Occurrences of every pattern in each matrix, [matrix, pattern]."""
    return np.stack([np.bincount(matrix.reshape(-1), minlength=NUM_PATTERNS) for matrix in patterns])


@cache
def _fields_of_patterns(widths: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    return tuple(np.asarray(field) for field in fields.split(jnp.arange(NUM_PATTERNS, dtype=jnp.uint16), widths))


def field_counts(counts: np.ndarray, widths: tuple[int, ...]) -> list[np.ndarray]:
    """Occurrences of every value of each field, from those of one matrix's patterns."""
    groups = zip(_fields_of_patterns(widths), widths)
    # Weights of bincount are float64, which counts exactly.
    return [np.bincount(field, counts, minlength=1 << width).astype(np.int64) for field, width in groups]


def field_entropies(counts: np.ndarray, widths: tuple[int, ...]) -> np.ndarray:
    """Entropy of each field in bits, as the mean over the matrices."""
    entropies = [[float(entropy_bits(jnp.asarray(c, jnp.float32))) for c in field_counts(m, widths)] for m in counts]
    return np.mean(entropies, axis=0)


def coded_bits(counts: np.ndarray, stored: str) -> np.ndarray:
    """Bits per weight of each field of the paper's split of a format, [matrix, field]; fields that are not coded are raw."""
    split = SPLITS[stored]

    def bits(occurrences: np.ndarray, width: int, coded: bool) -> float:
        return huffman.mean_length(occurrences, huffman.code_lengths(occurrences)) if coded else float(width)

    rows = (zip(field_counts(matrix, split.widths), split.widths, split.coded) for matrix in counts)
    return np.array([[bits(*field) for field in row] for row in rows])


def huffman_bits(counts: np.ndarray, stored: str) -> float:
    """Bits per weight as the paper defines them: 16 over the ratio, averaged over the matrices."""
    return float(16 / np.mean(16 / coded_bits(counts, stored).sum(axis=1)))


def mean_unary_length(counts: np.ndarray) -> float:
    """Bits per unary-coded exponent of bfloat16 patterns, codebooks included; mean over the matrices."""
    exponents = np.stack([field_counts(matrix, (1, NUM_SYMBOLS.bit_length() - 1, 7))[1] for matrix in counts])
    return float(jnp.mean(mean_code_length(jnp.asarray(exponents, jnp.float32))))


#: Format in which a family's weights were trained and released. Vicuna was finetuned from Llama 2 and saved in float16; Llama 2
#: itself is bfloat16, although its usual conversion is stored in float16.
ORIGINS = {"Llama": "bfloat16", "Qwen": "bfloat16", "OPT": "float16", "Vicuna": "float16"}

_DTYPES = {"bfloat16": np.dtype(ml_dtypes.bfloat16), "float16": np.dtype(np.float16)}


@dataclass(frozen=True)
class ScaleModel:
    """The two numbers of the model.

    Attributes:
        base_scale: median standard deviation of a row.
        row_spread: standard deviation of the logarithm of a row's.
    """

    base_scale: float
    row_spread: float


@dataclass(frozen=True)
class Normals:
    """Standard normal numbers for some matrices: weights [matrix, row, column], and one per row [matrix, row, 1]."""

    weights: np.ndarray
    rows: np.ndarray

    def first(self) -> Normals:
        """Those of the first matrix."""
        return Normals(self.weights[:1], self.rows[:1])


def family_of(model: str) -> str:
    """The family of a model such as "Llama-3.2-3B".

    Raises:
        ValueError: a family whose format of origin is not known.
    """
    family = model.split("-")[0]
    if family not in ORIGINS:
        raise ValueError(f"model {model!r} came; known families are {', '.join(ORIGINS)}: add its format to ORIGINS")
    return family


def draw_normals(seed: int, *, matrices: int = 4, rows: int = 1024, columns: int = 1536) -> Normals:
    """Numbers to make matrices of; another seed for each family."""
    rng = np.random.default_rng(seed)
    return Normals(
        rng.standard_normal((matrices, rows, columns), np.float32), rng.standard_normal((matrices, rows, 1), np.float32)
    )


def weights(scales: ScaleModel, normals: Normals) -> np.ndarray:
    """Weights in float32, [matrix, row, column]."""
    row_scales = np.float32(scales.base_scale) * np.exp(np.float32(scales.row_spread) * normals.rows)
    return row_scales * normals.weights


def stored_patterns(values: np.ndarray, *, origin: str, stored: str) -> np.ndarray:
    """Patterns (uint16) of values that were rounded to the format of their origin and then to the stored one.

    Raises:
        ValueError: a format other than float16 and bfloat16.
    """
    unknown = {origin, stored} - set(_DTYPES)
    if unknown:
        raise ValueError(f"format {min(unknown)!r} came; allowed are {', '.join(_DTYPES)}")
    born = values.astype(_DTYPES[origin])
    # Through float32, which holds either exactly.
    kept = born if origin == stored else born.astype(np.float32).astype(_DTYPES[stored])
    return kept.view(np.uint16)


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
        return field_entropies(pattern_counts(patterns), fields.parse_widths(CODED_SPLIT))[field]

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
            counts[family, stored] = pattern_counts(patterns)
    return Sample(scales, counts)


def entropies(drawn: Sample) -> Callable[[PrintedCell], Modelled]:
    """The entropy table: Llama-3-8B in float16, split in four ways."""
    llama = drawn.counts["Llama", "float16"]

    def model(cell: PrintedCell) -> Modelled:
        entropies_by_field = field_entropies(llama, fields.parse_widths(cell["split"]))
        total = cell["field_index"] == "total"
        value = float(entropies_by_field.sum() if total else entropies_by_field[int(cell["field_index"]) - 1])
        # The total of the split contains the two fitted cells, so it counts as fitted too.
        fitted = cell["split"] == CODED_SPLIT and (total or cell["field_name"] in fitted_cells())
        contradicted = (cell["split"], cell["field_index"]) == ("4-4-4-4", "4")
        note = "the printed total of this split, 11.09, leaves 1.04 for this field" if contradicted else ""
        return Modelled(value, "calibrated" if fitted else "predicted", note)

    return model


def ratios(drawn: Sample) -> Callable[[PrintedCell], Modelled]:
    """The table of bits per weight and compression ratios."""
    bits = {key: huffman_bits(value, key[1]) for key, value in drawn.counts.items()}

    def model(cell: PrintedCell) -> Modelled:
        value = bits[family_of(cell["model"]), FORMATS[cell["number_format"]]]
        return Modelled(value if cell.metric == "bits_per_param" else 16 / value, "predicted")

    return model


def own_bits(drawn: Sample) -> dict[str, float]:
    """Bits per weight in float16 of `MODELS`, as this sample has them."""
    return {model: huffman_bits(drawn.counts[family_of(_hyphened(model)), "float16"], "float16") for model in MODELS}


@functools.cache
def printed_bits() -> dict[str, float]:
    """Bits per weight in float16 of `MODELS`, as printed."""
    bits = {
        cell["model"]: cell.value
        for cell in printed_cells(DATA / "huffllm_compression_ratios.csv")
        if (cell.metric, cell["number_format"]) == ("bits_per_param", "FP16")
    }
    return {model: bits[_hyphened(model)] for model in MODELS}


def _hyphened(model: str) -> str:
    """A model's name as the compression table spells it: "Llama 3-8B" is "Llama-3-8B" there."""
    return model.replace(" ", "-")
