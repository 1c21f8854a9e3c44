"""Matrices in two parts: what a draft reads (bitmap, kept values, high mantissa bits) and what only the target reads.

Exponents of kept values are unary codewords (Cassandra-1), or 32 neighbours of a row share one, pruned values too
(Cassandra-2, which alters the target). Sections of a chunk of whole rows, in bits per kept value unless said:

    draft   bitmap (1 per value, absent if nothing is pruned), sign (1), exponent (unary) or scale (8 per block), high
    target  low (the cut bits), pruned (16 per pruned value), or pruned_exponent (unary) and pruned_rest (sign and mantissa)

Source: Cassandra, IV-A and IV-B; pruned values "without any further transformation" (V-A), or coded as a named option.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from jaxspec.formats import unary
from jaxspec.formats.container.cassandra_sections import (
    FORMATS,
    ChunkShape,
    exponents_of,
    from_shared,
    packed,
    ranking,
    read_unary,
    to_shared,
    unpacked,
    with_exponent,
    without_exponent,
    write_unary,
)
from jaxspec.formats.container.codec import MASK_ROLE, Chunk, Part, Selection, occurrences, take
from jaxspec.formats.container.tensors import TensorForm, Whole
from jaxspec.formats.patterns import BFLOAT16
from jaxspec.settings.shared_exponents import SharedExponents

__all__ = ["CassandraCodec"]

_TARGET_ROLES = {"low", "pruned", "pruned_exponent", "pruned_rest"}


class CassandraCodec:
    """Divides two-dimensional tensors of 16-bit floating point by a bitmap and a number of cut bits."""

    def __init__(self, name: str, *, pruned_coded: bool = False, shared: SharedExponents | None = None):
        """A codec.

        Args:
            name: as the directory has it.
            pruned_coded: whether exponents of pruned values are unary codewords too.
            shared: form of values whose blocks share exponents; None: every kept value has its own.
        """
        self.name = name
        self.lossless = shared is None
        self._pruned_coded = pruned_coded
        self._shared = shared

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
        if self._shared is not None:
            return coding | {"mantissa_bits": self._shared.mantissa_bits}
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
        shape = ChunkShape(coding, form, form.elements, self._shared)
        keys = ("codebook",) if self.lossless else ()
        keys += ("pruned_codebook",) if self._pruned_coded else ()
        return {key: {int(s): rank + 1 for rank, s in enumerate(shape.codebook(key))} for key in keys}

    def encode(self, coding: dict[str, Any], form: TensorForm, chunk: Chunk) -> dict[str, np.ndarray]:
        """Sections of some rows."""
        number_format, mask = FORMATS[form.dtype], _mask(chunk)
        sections: dict[str, np.ndarray] = {}
        if coding["kept_per_row"] < form.columns:
            sections[MASK_ROLE] = np.packbits(mask)
        if self._shared is not None:
            blocks = to_shared(chunk.patterns.reshape(-1, form.columns), self._shared)
            sections["scale"], width = blocks.scale, self._shared.mantissa_bits
            elements = blocks.elements[mask]
            sections["pruned_rest"] = packed(blocks.elements[~mask], width + 1)
        else:
            kept, pruned = chunk.patterns[mask], chunk.patterns[~mask]
            sections["exponent"] = write_unary(exponents_of(kept, number_format), coding["codebook"])
            elements, width = without_exponent(kept, number_format), number_format.mantissa_bits
            if self._pruned_coded:
                codebook = coding["pruned_codebook"]
                sections["pruned_exponent"] = write_unary(exponents_of(pruned, number_format), codebook)
                sections["pruned_rest"] = packed(without_exponent(pruned, number_format), width + 1)
            else:
                sections["pruned"] = pruned
        cut = coding["cut_bits"]
        sections["sign"] = packed(elements >> width, 1)
        sections["high"] = packed(elements >> cut, width - cut)
        sections["low"] = packed(elements, cut)
        return {role: content for role, content in sections.items() if content.size}

    def draft(self, coding: dict[str, Any], form: TensorForm, count: int, sections: dict[str, bytes]) -> np.ndarray:
        """Kept values with their high mantissa bits, zeros elsewhere.

        Raises:
            CodecError: the sections do not fit.
        """
        shape = ChunkShape(coding, form, count, self._shared)
        low = np.zeros(shape.kept, np.uint16)
        return self._patterns(shape, sections, low, np.zeros(shape.count - shape.kept, np.uint16))

    def decode(self, coding: dict[str, Any], form: TensorForm, count: int, sections: dict[str, bytes]) -> np.ndarray:
        """The target's patterns.

        Raises:
            CodecError: the sections do not fit.
        """
        shape = ChunkShape(coding, form, count, self._shared)
        low = unpacked(sections, "low", shape.kept, shape.cut)
        return self._patterns(shape, sections, low, self._pruned(shape, sections))

    def _patterns(
        self, shape: ChunkShape, sections: dict[str, bytes], low: np.ndarray, pruned: np.ndarray
    ) -> np.ndarray:
        """Of all values.

        Args:
            low: cut bits of kept values, or zeros.
            pruned: what stands at pruned places: patterns, or elements of blocks.
        """
        mask = shape.mask(sections)
        high = unpacked(sections, "high", shape.kept, shape.width - shape.cut)
        sign = unpacked(sections, "sign", shape.kept, 1)
        kept = (sign << shape.width) | (high << shape.cut) | low
        if self._shared is None:
            exponents = read_unary(sections, "exponent", shape.kept, shape.codebook("codebook"))
            kept = with_exponent(kept, exponents, shape.number_format)
        values = np.empty(shape.count, np.uint16)
        values[mask], values[~mask] = kept, pruned
        return values if self._shared is None else from_shared(values, sections, shape)

    def _pruned(self, shape: ChunkShape, sections: dict[str, bytes]) -> np.ndarray:
        number = shape.count - shape.kept
        if self._shared is not None:
            return unpacked(sections, "pruned_rest", number, shape.width + 1)
        if not self._pruned_coded:
            return take(sections, "pruned", "<u2", number) if number else np.zeros(0, np.uint16)
        rest = unpacked(sections, "pruned_rest", number, shape.width + 1)
        exponents = read_unary(sections, "pruned_exponent", number, shape.codebook("pruned_codebook"))
        return with_exponent(rest, exponents, shape.number_format)


def _mask(chunk: Chunk) -> np.ndarray:
    if chunk.kept is None:
        raise ValueError("a chunk came without the mask of kept values; this codec needs one: see pack's keep")
    return chunk.kept
