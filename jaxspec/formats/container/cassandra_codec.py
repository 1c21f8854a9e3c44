"""Matrices in two parts: what a draft reads (bitmap, kept values, high mantissa bits) and what only the target reads.

Exponents of kept values are unary codewords (Cassandra-1), or 32 neighbours of a row share one, pruned values too
(Cassandra-2, which alters the target). Sections of a chunk of whole rows, in bits per kept value unless said:

    draft   bitmap (1 per value, absent if nothing is pruned), sign (1), exponent (unary) or scale (8 per block), high
    target  low (the cut bits), pruned (16 per pruned value), or pruned_exponent (unary) and pruned_rest (sign and mantissa)

Source: Cassandra, IV-A and IV-B; pruned values "without any further transformation" (V-A), or coded as a named option. Departs:
they are coded, too, where a matrix would otherwise take more than the container may grow by: its bitmap is longer than what the
few kept exponents save (in bfloat16 from about 81 % pruning on; see record 0009).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from jaxspec.formats import unary
from jaxspec.formats.container.cassandra_sections import (
    FORMATS,
    ChunkShape,
    Places,
    exponents_of,
    from_shared,
    packed,
    places_of,
    ranking,
    read_unary,
    to_shared,
    unary_bits,
    unpacked,
    with_exponent,
    without_exponent,
    write_unary,
)
from jaxspec.formats.container.codec import (
    ENTRY_BYTES,
    MASK_ROLE,
    Chunk,
    Decoded,
    Part,
    SameDtype,
    Selection,
    occurrences,
    take,
)
from jaxspec.formats.container.tensors import TensorForm, Whole
from jaxspec.formats.patterns import BFLOAT16, NumberFormat, midpoint
from jaxspec.settings.knobs import SharedExponents

__all__ = ["CassandraCodec"]

#: Where a plan has the exponents of pruned values by rank, if they are coded.
_PRUNED = "pruned_codebook"

_TARGET_ROLES = {"low", "pruned", "pruned_exponent", "pruned_rest"}


class _Kept(NamedTuple):
    """Kept values of a chunk without their cut bits: patterns, or elements of blocks.

    Attributes:
        places: theirs and those of pruned values.
    """

    places: Places
    values: np.ndarray


class CassandraCodec(SameDtype):
    """Divides two-dimensional tensors of 16-bit floating point by a bitmap and a number of cut bits."""

    prunes = True

    def __init__(
        self,
        name: str,
        *,
        pruned_coded: bool = False,
        at_midpoint: bool = False,
        shared: SharedExponents | None = None,
    ):
        """A codec.

        Args:
            name: as the directory has it.
            pruned_coded: whether exponents of pruned values are unary codewords in every matrix.
            at_midpoint: whether the draft takes truncated values for the middle of what they can stand for.
            shared: form of values whose blocks share exponents; None: every kept value has its own.
        """
        self.name = name
        self.lossless = shared is None
        self._pruned_coded = pruned_coded
        self._at_midpoint = at_midpoint
        self._shared = shared
        self.dtypes = tuple(dtype for dtype, known in FORMATS.items() if self.lossless or known == BFLOAT16)

    def _codes_pruned(self, coding: dict[str, Any]) -> bool:
        return self._pruned_coded or (self._shared is None and _PRUNED in coding)

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
        if form.dtype not in self.dtypes or len(form.shape) != 2 or not form.elements:
            return Whole("form")
        if selection is None:
            return Whole("asked")
        number_format = FORMATS[form.dtype]
        coding: dict[str, Any] = {"kept_per_row": selection.kept_per_row, "cut_bits": selection.cut_bits}
        if self._shared is not None:
            return coding | {"mantissa_bits": self._shared.mantissa_bits}
        counts = np.zeros((2, unary.NUM_SYMBOLS), np.int64)
        for chunk in chunks():
            both = exponents_of(chunk.patterns, number_format) | (_mask(chunk).astype(np.uint16) << 8)
            counts += occurrences(both, counts.size).reshape(counts.shape)
        coding["codebook"] = ranking(counts[1])
        if self._pruned_coded or _grows(
            counts, number_format, selection.kept_per_row < form.columns, selection.growth_bytes
        ):
            coding[_PRUNED] = ranking(counts[0])
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
        keys += (_PRUNED,) if self._codes_pruned(coding) else ()
        return {key: {int(s): rank + 1 for rank, s in enumerate(shape.codebook(key))} for key in keys}

    def encode(self, coding: dict[str, Any], form: TensorForm, chunk: Chunk) -> dict[str, np.ndarray]:
        """Sections of some rows."""
        number_format, mask = FORMATS[form.dtype], _mask(chunk)
        places = places_of(mask)
        sections: dict[str, np.ndarray] = {}
        if coding["kept_per_row"] < form.columns:
            sections[MASK_ROLE] = np.packbits(mask)
        if self._shared is not None:
            blocks = to_shared(chunk.patterns.reshape(-1, form.columns), self._shared)
            sections["scale"], width = blocks.scale, self._shared.mantissa_bits
            elements = blocks.elements[places.kept]
            sections["pruned_rest"] = packed(blocks.elements[places.pruned], width + 1)
        else:
            kept, pruned = chunk.patterns[places.kept], chunk.patterns[places.pruned]
            sections["exponent"] = write_unary(exponents_of(kept, number_format), coding["codebook"])
            elements, width = without_exponent(kept, number_format), number_format.mantissa_bits
            if self._codes_pruned(coding):
                codebook = coding[_PRUNED]
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
        """Kept values with their high mantissa bits, or at the middle of these; zeros elsewhere.

        Raises:
            CodecError: the sections do not fit.
        """
        shape = ChunkShape(coding, form, count, self._shared)
        return self._drafted(shape, self._kept(shape, sections), sections)

    def decode(self, coding: dict[str, Any], form: TensorForm, count: int, sections: dict[str, bytes]) -> np.ndarray:
        """The target's patterns.

        Raises:
            CodecError: the sections do not fit.
        """
        shape = ChunkShape(coding, form, count, self._shared)
        return self._whole(shape, self._kept(shape, sections), sections)

    def both(
        self,
        coding: dict[str, Any],
        form: TensorForm,
        count: int,
        drafted: dict[str, bytes],
        sections: dict[str, bytes],
    ) -> Decoded:
        """The target's patterns and the draft's.

        Raises:
            CodecError: the sections do not fit.
        """
        shape = ChunkShape(coding, form, count, self._shared)
        kept = self._kept(shape, drafted)
        return Decoded(self._whole(shape, kept, sections), self._drafted(shape, kept, drafted))

    def _kept(self, shape: ChunkShape, sections: dict[str, bytes]) -> _Kept:
        """What the draft's part says of kept values."""
        places = shape.places(sections)
        high = unpacked(sections, "high", shape.kept, shape.width - shape.cut)
        sign = unpacked(sections, "sign", shape.kept, 1)
        values = (sign << shape.width) | (high << shape.cut)
        if self._shared is None:
            exponents = read_unary(sections, "exponent", shape.kept, shape.codebook("codebook"))
            values = with_exponent(values, exponents, shape.number_format)
        return _Kept(places, values)

    def _drafted(self, shape: ChunkShape, kept: _Kept, sections: dict[str, bytes]) -> np.ndarray:
        values = np.zeros(shape.count, np.uint16)
        own = midpoint(kept.values, shape.cut, shape.number_format) if self._at_midpoint else kept.values
        values[kept.places.kept] = own
        return values if self._shared is None else from_shared(values, sections, shape)

    def _whole(self, shape: ChunkShape, kept: _Kept, sections: dict[str, bytes]) -> np.ndarray:
        values = np.empty(shape.count, np.uint16)
        # The cut bits lie lowest, of patterns and of elements of blocks.
        values[kept.places.kept] = kept.values | unpacked(sections, "low", shape.kept, shape.cut)
        values[kept.places.pruned] = self._pruned(shape, sections)
        return values if self._shared is None else from_shared(values, sections, shape)

    def _pruned(self, shape: ChunkShape, sections: dict[str, bytes]) -> np.ndarray:
        number = shape.count - shape.kept
        if self._shared is not None:
            return unpacked(sections, "pruned_rest", number, shape.width + 1)
        if not self._codes_pruned(shape.coding):
            return take(sections, "pruned", "<u2", number) if number else np.zeros(0, np.uint16)
        rest = unpacked(sections, "pruned_rest", number, shape.width + 1)
        exponents = read_unary(sections, "pruned_exponent", number, shape.codebook(_PRUNED))
        return with_exponent(rest, exponents, shape.number_format)


def _grows(counts: np.ndarray, number_format: NumberFormat, has_mask: bool, growth_bytes: int) -> bool:
    """Whether a division with pruned values as they are makes a matrix too long, and coding their exponents helps.

    Args:
        counts: "part symbol", of exponents of pruned and of kept values.
        growth_bytes: that it may take beyond its own.
    """
    saved = number_format.exponent_bits * counts.sum(axis=1) - unary_bits(counts)
    growth_bits = has_mask * counts.sum() - saved[1]
    return bool(growth_bits / 8 + ENTRY_BYTES > max(growth_bytes, 0) and growth_bits > 0 and saved[0] > 0)


def _mask(chunk: Chunk) -> np.ndarray:
    if chunk.kept is None:
        raise ValueError("a chunk came without the mask of kept values; this codec needs one: see pack's keep")
    return chunk.kept
