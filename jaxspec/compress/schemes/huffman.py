"""Exponents, or Huff-LLM's bit fields, by Huffman codes; the draft is the target."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from hwmodels import Footprint
from jaxspec.compress.footprint import uniform
from jaxspec.compress.schemes.gaussian import gaussian_patterns
from jaxspec.compress.schemes.scheme import Scheme
from jaxspec.formats import huffman
from jaxspec.formats.fields import split
from jaxspec.formats.patterns import BFLOAT16, FLOAT16
from jaxspec.settings.knobs import StoredDtype
from jaxspec.settings.schemes import SCHEME_FACTS

__all__ = ["HUFFLLM", "HUFFMAN"]


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
