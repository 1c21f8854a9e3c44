"""Exponents, or Huff-LLM's bit fields, by Huffman codes; the draft is the target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from hwmodels import Footprint
from jaxspec.compress.footprint import uniform
from jaxspec.compress.schemes.gaussian import gaussian_patterns
from jaxspec.compress.schemes.stored_form import StoredForm
from jaxspec.formats import huffman
from jaxspec.formats.fields import split
from jaxspec.formats.patterns import target_format
from jaxspec.settings.knobs import StoredDtype
from jaxspec.settings.schemes import SCHEME_FACTS

__all__ = ["HUFFLLM", "HUFFMAN"]


class _Fields(NamedTuple):
    """Widths of the fields of a value, and which of them are Huffman-coded."""

    widths: tuple[int, ...]
    coded: tuple[int, ...]


def _footprint(fields: Mapping[StoredDtype, _Fields]):
    """Expected footprint of values with some fields Huffman-coded, by the type in which they are stored."""

    def count(knobs: Mapping[str, float], dtype: StoredDtype) -> Footprint:
        del knobs
        total, (widths, coded) = 0.0, fields[dtype]
        for i, field in enumerate(split(jnp.asarray(gaussian_patterns(target_format(jnp.dtype(dtype)))), widths)):
            if i in coded:
                counts = np.bincount(np.asarray(field).ravel(), minlength=1 << widths[i])
                total += huffman.num_bits(counts, huffman.code_lengths(counts)) / field.size
            else:
                total += widths[i]
        return uniform(total, total)

    return count


#: Exponents as one field.
HUFFMAN = StoredForm(
    SCHEME_FACTS["huffman"], _footprint({"bfloat16": _Fields((1, 8, 7), (1,)), "float16": _Fields((1, 5, 10), (1,))})
)
#: Exponents in halves; of float16 whole, and the mantissa in halves.
HUFFLLM = StoredForm(
    SCHEME_FACTS["huffllm"],
    _footprint({"bfloat16": _Fields((1, 4, 4, 7), (1, 2)), "float16": _Fields((1, 5, 5, 5), (1, 2, 3))}),
)
