"""Exponents, or Huff-LLM's bit fields, by Huffman codes; the draft is the target."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from hwmodels import Footprint
from jaxspec.compress.footprint import uniform
from jaxspec.compress.schemes.gaussian import gaussian_patterns
from jaxspec.compress.schemes.stored_form import StoredForm
from jaxspec.formats import huffman
from jaxspec.formats.fields import split
from jaxspec.formats.patterns import BFLOAT16, FLOAT16, NumberFormat
from jaxspec.settings.schemes import SCHEME_FACTS

__all__ = ["HUFFLLM", "HUFFMAN"]


def _footprint(widths: tuple[int, ...], coded: tuple[int, ...], number_format: NumberFormat = BFLOAT16):
    """Expected footprint of values with some fields Huffman-coded."""

    def count(knobs: Mapping[str, float]) -> Footprint:
        del knobs
        total = 0.0
        for i, field in enumerate(split(jnp.asarray(gaussian_patterns(number_format)), widths)):
            if i in coded:
                counts = np.bincount(np.asarray(field).ravel(), minlength=1 << widths[i])
                total += huffman.num_bits(counts, huffman.code_lengths(counts)) / field.size
            else:
                total += widths[i]
        return uniform(total, total)

    return count


#: Exponents as one field.
HUFFMAN = StoredForm(
    SCHEME_FACTS["huffman"],
    _footprint((1, 8, 7), coded=(1,)),
    of_float16=_footprint((1, 5, 10), coded=(1,), number_format=FLOAT16),
)
#: Exponents in halves; of float16 whole, and the mantissa in halves.
HUFFLLM = StoredForm(
    SCHEME_FACTS["huffllm"],
    _footprint((1, 4, 4, 7), coded=(1, 2)),
    of_float16=_footprint((1, 5, 5, 5), coded=(1, 2, 3), number_format=FLOAT16),
)
