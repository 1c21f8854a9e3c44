"""Matrices in two parts: what a draft reads (bitmap, kept values, high mantissa bits) and what only the target reads.

Exponents of kept values are unary codewords (Cassandra-1) or shared by blocks (Cassandra-2, which alters the target). Sections
of a chunk of whole rows, in bits per kept value unless said:

    draft   bitmap (1 per value, absent if nothing is pruned), sign (1), exponent (unary) or scale (8 per block), high
    target  low (the cut bits), pruned (16 per pruned value), or pruned_exponent (unary) and pruned_rest

Source: Cassandra, IV-A and IV-B; pruned values "without any further transformation" (V-A), or coded as a named option.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxspec.formats import mx_truncated, unary
from jaxspec.formats.container.cassandra_sections import (
    FORMATS,
    ChunkShape,
    exponents_of,
    from_shared,
    no_low_bits,
    packed,
    ranking,
    read_unary,
    share,
    unpacked,
    with_exponent,
    without_exponent,
    write_unary,
)
from jaxspec.formats.container.codec import MASK_ROLE, Chunk, Part, Selection, occurrences, take
from jaxspec.formats.container.tensors import TensorForm, Whole
from jaxspec.formats.patterns import BFLOAT16, from_bits

__all__ = ["CassandraCodec"]

_TARGET_ROLES = {"low", "pruned", "pruned_exponent", "pruned_rest"}


class CassandraCodec:
    """Divides two-dimensional tensors of 16-bit floating point by a bitmap and a number of cut bits."""

    def __init__(self, name: str):
        """Args: name: cassandra1, cassandra1-coded or cassandra2."""
        self.name = name
        self.lossless = name != "cassandra2"
        self._pruned_coded = name == "cassandra1-coded"

    def unit(self, form: TensorForm) -> int:
        """A row."""
        return max(1, form.columns)

    def part(self, role: str) -> Part:
        """By role: see the module."""
        return "target" if role in _TARGET_ROLES else "draft"

    def plan(
        self, form: TensorForm, chunks: Callable[[], Iterable[Chunk]], selection: Selection | None
    ) -> dict[str, Any] | Whole:
        """Codebooks of the exponents; left as they are: tensors that are not selected or of another kind."""
        number_format = FORMATS.get(form.dtype)
        if number_format is None or len(form.shape) != 2 or not form.elements:
            return Whole("form")
        if not self.lossless and number_format != BFLOAT16:
            return Whole("form")
        if selection is None:
            return Whole("asked")
        coding: dict[str, Any] = {"kept_per_row": selection.kept_per_row, "cut_bits": selection.cut_bits}
        if not self.lossless:
            return coding
        counts = np.zeros((2, unary.NUM_SYMBOLS), np.int64)
        for chunk in chunks():
            both = exponents_of(chunk.patterns, number_format) | (_mask(chunk).astype(np.uint16) << 8)
            counts += occurrences(both, counts.size).reshape(counts.shape)
        coding["codebook"] = ranking(counts[1])
        if self._pruned_coded:
            coding["pruned_codebook"] = ranking(counts[0])
        return coding

    def check(self, coding: dict[str, Any], form: TensorForm) -> None:
        """Numbers in range, codebooks that can be read.

        Raises:
            CodecError: otherwise.
        """
        self.code_tables(coding, form)

    def code_tables(self, coding: dict[str, Any], form: TensorForm) -> dict[str, dict[int, int]]:
        """Unary codewords: a bit per rank and one more.

        Raises:
            CodecError: a plan that cannot be.
        """
        shape = ChunkShape(coding, form, form.elements, self.lossless)
        keys = ("codebook",) if self.lossless else ()
        keys += ("pruned_codebook",) if self._pruned_coded else ()
        return {key: {int(s): rank + 1 for rank, s in enumerate(shape.codebook(key))} for key in keys}

    def encode(self, coding: dict[str, Any], form: TensorForm, chunk: Chunk) -> dict[str, np.ndarray]:
        """Sections of some rows."""
        number_format, mask = FORMATS[form.dtype], _mask(chunk)
        kept, pruned = chunk.patterns[mask], chunk.patterns[~mask]
        sections: dict[str, np.ndarray] = {}
        if coding["kept_per_row"] < form.columns:
            sections[MASK_ROLE] = np.packbits(mask)
        if self.lossless:
            sections["exponent"] = write_unary(exponents_of(kept, number_format), coding["codebook"])
            elements, width = without_exponent(kept, number_format), number_format.mantissa_bits
        else:
            rows = kept.reshape(mask.size // form.columns, coding["kept_per_row"])
            shared = share(from_bits(jnp.asarray(rows), BFLOAT16))
            sections["scale"] = np.asarray(shared.exponent).reshape(-1)
            elements, width = np.asarray(shared.elements).reshape(-1), shared.mantissa_bits
        cut = coding["cut_bits"]
        sections["sign"] = packed(elements >> width, 1)
        sections["high"] = packed(elements >> cut, width - cut)
        sections["low"] = packed(elements, cut)
        if self._pruned_coded:
            codebook = coding["pruned_codebook"]
            sections["pruned_exponent"] = write_unary(exponents_of(pruned, number_format), codebook)
            sections["pruned_rest"] = packed(without_exponent(pruned, number_format), number_format.mantissa_bits + 1)
        else:
            sections["pruned"] = pruned
        return {role: content for role, content in sections.items() if content.size}

    def draft(self, coding: dict[str, Any], form: TensorForm, count: int, sections: dict[str, bytes]) -> np.ndarray:
        """Kept values with their high mantissa bits, zeros elsewhere.

        Raises:
            CodecError: the sections do not fit.
        """
        shape = ChunkShape(coding, form, count, self.lossless)
        mask = shape.mask(sections)
        patterns = np.zeros(count, np.uint16)
        patterns[mask] = self._kept(shape, sections, no_low_bits(shape))
        return patterns

    def decode(self, coding: dict[str, Any], form: TensorForm, count: int, sections: dict[str, bytes]) -> np.ndarray:
        """The stored patterns.

        Raises:
            CodecError: the sections do not fit.
        """
        shape = ChunkShape(coding, form, count, self.lossless)
        mask = shape.mask(sections)
        patterns = np.empty(count, np.uint16)
        patterns[mask] = self._kept(shape, sections, unpacked(sections, "low", shape.elements, shape.cut))
        patterns[~mask] = self._pruned(shape, sections)
        return patterns

    def _kept(self, shape: ChunkShape, sections: dict[str, bytes], low: np.ndarray) -> np.ndarray:
        """Patterns of the kept values; `low` are their cut bits, or zeros."""
        high = unpacked(sections, "high", shape.elements, shape.width - shape.cut)
        sign = unpacked(sections, "sign", shape.elements, 1)
        elements = (sign << shape.width) | (high << shape.cut) | low
        if self.lossless:
            exponents = read_unary(sections, "exponent", shape.kept, shape.codebook("codebook"))
            return with_exponent(elements, exponents, shape.number_format)
        # Like every empty section, the scales of a draft that keeps nothing are left out.
        blocks = shape.elements // mx_truncated.BLOCK_SIZE
        scale = take(sections, "scale", np.uint8, blocks) if blocks else np.zeros(0, np.uint8)
        return from_shared(elements, scale, shape)

    def _pruned(self, shape: ChunkShape, sections: dict[str, bytes]) -> np.ndarray:
        number = shape.count - shape.kept
        if not self._pruned_coded:
            return take(sections, "pruned", "<u2", number) if number else np.zeros(0, np.uint16)
        rest = unpacked(sections, "pruned_rest", number, shape.number_format.mantissa_bits + 1)
        exponents = read_unary(sections, "pruned_exponent", number, shape.codebook("pruned_codebook"))
        return with_exponent(rest, exponents, shape.number_format)


def _mask(chunk: Chunk) -> np.ndarray:
    if chunk.kept is None:
        raise ValueError("a chunk came without the mask of kept values; this codec needs one: see pack's keep")
    return chunk.kept
