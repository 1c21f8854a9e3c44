"""Exponents, or Huff-LLM's bit fields, by Huffman codes; the draft is the target."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt16

from hwmodels import Footprint
from jaxspec.compress.footprint import uniform
from jaxspec.compress.schemes.scheme import Scheme
from jaxspec.formats import huffman
from jaxspec.formats.fields import split
from jaxspec.formats.patterns import BFLOAT16, FLOAT16, NumberFormat
from jaxspec.settings.knobs import StoredDtype
from jaxspec.settings.schemes import SCHEME_FACTS

__all__ = [
    "GAUSSIAN_SHAPE",
    "HUFFLLM",
    "HUFFMAN",
    "gaussian_patterns",
]

# The statistical model of values on which widths are counted where there is no network.

#: Rows and columns of the model: enough for a hundredth of a bit, few enough for a blink.
GAUSSIAN_SHAPE = 64, 2048
#: Spread of the logarithm of a row's scale. 0.25 gives the exponent entropy of 2.6 bits that trained networks show.
_ROW_SPREAD = 0.25
_SCALE = 0.02


def gaussian_patterns(number_format: NumberFormat = BFLOAT16) -> UInt16[np.ndarray, "row column"]:
    """Patterns of the model's values in bfloat16 or float16, always the same."""
    rng = np.random.default_rng(0)
    scale = _SCALE * np.exp(_ROW_SPREAD * rng.standard_normal((GAUSSIAN_SHAPE[0], 1)))
    values = (scale * rng.standard_normal(GAUSSIAN_SHAPE)).astype(np.float32).astype(number_format.value_dtype)
    return values.view(np.uint16)


def _footprint(**fields: tuple[tuple[int, ...], tuple[int, ...]]):
    """Expected footprint of values with some fields Huffman-coded.

    Args:
        fields: by type of the values, widths of all fields and places of those that are coded.
    """

    def count(knobs: Mapping[str, float], dtype: StoredDtype) -> Footprint:
        del knobs
        (widths, coded), total = fields[dtype], 0.0
        number_format = {"bfloat16": BFLOAT16, "float16": FLOAT16}[dtype]
        for i, field in enumerate(split(jnp.asarray(gaussian_patterns(number_format)), widths)):
            if i in coded:
                counts = np.bincount(np.asarray(field).ravel(), minlength=1 << widths[i])
                total += huffman.num_bits(counts, huffman.code_lengths(counts)) / field.size
            else:
                total += widths[i]
        return uniform(total, total)

    return count


#: Exponents as one field.
HUFFMAN = Scheme(SCHEME_FACTS["huffman"], _footprint(bfloat16=((1, 8, 7), (1,)), float16=((1, 5, 10), (1,))))
#: Exponents in halves; of float16 whole, and the mantissa in halves.
HUFFLLM = Scheme(
    SCHEME_FACTS["huffllm"], _footprint(bfloat16=((1, 4, 4, 7), (1, 2)), float16=((1, 5, 5, 5), (1, 2, 3)))
)
