"""A statistical model of trained weights: Gaussian rows of log-normal scale, rounded to the format that they were trained in.

    w = base_scale · exp(row_spread · z_row) · z,   z_row, z ~ N(0, 1)

Why these: rows (output channels) of trained matrices are close to Gaussian, and their scales differ by tens of percent. The
spread widens the distribution of exponents: entropy 2.54 bits without it, 2.60 with 0.25, 2.75 with 0.5.

What the number formats make of it:

* Born in bfloat16 (Llama 2 and 3, Qwen 2.5), stored in float16: seven of ten mantissa bits carry something, the last three are
  zero, so that the low five of the split 1-5-5-5 take four values: 2 bits. The *absolute* scale matters here: below 2^-14
  float16 is subnormal, and a bfloat16 mantissa is shifted down into the last three bits. The share of such weights,
  0.80 · 2^-14 / base_scale, makes 2.04 out of 2.00.
* Born in float16 (OPT, Vicuna): the low mantissa bits are uniform, subnormals included: 5 bits at any scale.
* Stored in bfloat16: a float16 original is rounded; exponents keep their distribution, and the scale matters only in where the
  powers of two lie within it (0.02 bits).

Other effects of the scale (overflow beyond 65,504, values below 2^-24) do not occur. What is not modelled: differences
between kinds of matrices, between sizes of one family, and tails heavier than those of mixed Gaussians.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

__all__ = ["ORIGINS", "Normals", "ScaleModel", "draw_normals", "family_of", "stored_patterns", "weights"]

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
