"""Matrices of 8-bit integers with a scale for each group: what a draft reads (scales, upper bits) and the lower bits.

Integers times scales fit no 16-bit type, so that such a matrix is given back in float32: target and draft are the very values
that `jaxspec.formats.bit_slices` computes with. Its readings of the upper bits are codecs of their own, with the same sections
of a chunk of whole rows, in bits per value unless said:

    draft   scale (16 per group of a row, float16), high (the upper bits, two's complement)
    target  low (the other bits)

Source: Park et al. 2024, arXiv:2402.10517 (Any-Precision LLM: the upper bits are an integer of their own); ELMoE-3D,
    arXiv:2604.14626, 4.3 and Fig. 8 (the bit below them is taken as 1).
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.errors import InputError
from jaxspec.formats import bit_slices
from jaxspec.formats.bit_slices import GROUP_SIZE, WEIGHT_BITS, Int8Groups, Reading
from jaxspec.formats.container.cassandra_sections import FORMATS, packed, unpacked
from jaxspec.formats.container.codec import Chunk, CodecError, Decoded, Part, Selection, take
from jaxspec.formats.container.tensors import CHUNK_ELEMENTS, TensorForm, Whole, chunk_elements
from jaxspec.formats.group_quantization import SCALE_BITS
from jaxspec.formats.patterns import from_bits
from jaxspec.settings.knobs import SLICE_BITS

__all__ = ["SliceCodec", "gains"]

#: More than the directory and the gaps between sections take of a chunk.
_MOST_BESIDE_CHUNK = 512

#: Largest magnitude whose scale is finite in float16: 65,504 times the largest integer.
_MOST = 65504.0 * (2 ** (WEIGHT_BITS - 1) - 1)

_encode = jax.jit(bit_slices.of_rows)
_decode = jax.jit(bit_slices.decode)
_decode_draft = jax.jit(bit_slices.decode_draft, static_argnums=1)


class SliceCodec:
    """Divides the integers of two-dimensional tensors of 16-bit floating point into upper and lower bits."""

    lossless = False
    dtypes = tuple(FORMATS)
    gives = "F32"
    prunes = False
    version = 4

    def __init__(self, name: str, reading: Reading):
        """Args: name: as the directory has it. reading: what the draft takes the upper bits for."""
        self.name, self._reading = name, reading

    def unit(self, form: TensorForm) -> int:
        """A row."""
        return max(1, form.columns)

    def part(self, role: str) -> Part:
        """By role: see the module."""
        return "target" if role == "low" else "draft"

    def packed_form(self, coding: dict[str, Any], form: TensorForm) -> TensorForm:
        """In the 16-bit type that was packed."""
        return form.in_dtype(coding["packed_dtype"])

    def plan(
        self, form: TensorForm, chunks: Callable[[], Iterable[Chunk]], selection: Selection | None
    ) -> dict[str, Any] | Whole:
        """Upper bits and the type that was packed.

        Whether a matrix is coded depends on its form alone: networks stack matrices of one form, so that all of them must be
        given back in one type.

        Raises:
            ValueError: fewer or more upper bits than a draft may read.
        """
        del chunks
        if form.dtype not in self.dtypes or len(form.shape) != 2 or not form.elements:
            return Whole("form")
        if selection is None:
            return Whole("asked")
        if not gains(form):
            return Whole("gain")
        coding = {"slice_bits": WEIGHT_BITS - selection.cut_bits, "packed_dtype": form.dtype}
        try:
            self.check(coding, form.in_dtype(self.gives))
        except CodecError as error:
            raise ValueError(str(error)) from None
        return coding

    def check(self, coding: dict[str, Any], form: TensorForm) -> None:
        """A number of upper bits, and types that such a tensor has.

        Raises:
            CodecError: otherwise.
        """
        bits, was = coding.get("slice_bits"), coding.get("packed_dtype")
        if form.dtype != self.gives or len(form.shape) != 2 or not form.elements:
            raise CodecError(f"a tensor of {form.dtype} and shape {form.shape} cannot be coded so")
        if type(bits) is not int or not SLICE_BITS.low <= bits <= SLICE_BITS.high or was not in self.dtypes:
            raise CodecError(
                f"{reprlib.repr(bits)} upper bits of values packed as {reprlib.repr(was)} cannot be; "
                f"there are {SLICE_BITS.range_text} of {' or '.join(self.dtypes)}"
            )

    def code_tables(self, coding: dict[str, Any], form: TensorForm) -> dict[str, dict[int, int]]:
        """None: all codewords have one length."""
        del coding, form
        return {}

    def encode(self, coding: dict[str, Any], form: TensorForm, chunk: Chunk) -> dict[str, np.ndarray]:
        """Sections of some rows.

        Raises:
            InputError: a value that would make its group something else: no scale in float16 is finite.
        """
        rows = chunk.patterns.reshape(-1, form.columns)
        encoded = [_encode(from_bits(jnp.asarray(rows[part]), FORMATS[form.dtype])) for part in _parts(*rows.shape)]
        values = np.concatenate([np.asarray(groups.values)[:, : form.columns] for groups in encoded])
        scales = np.concatenate([np.asarray(groups.scales) for groups in encoded])
        if not np.isfinite(scales).all():
            raise InputError(
                f"tensor {form.name!r} holds NaN, an infinity or a value above {_MOST:.2g}, which would make all {GROUP_SIZE} "
                "values of its group infinite or NaN; correct the checkpoint, or pack it with a lossless scheme"
            )
        patterns, low_bits = values.reshape(-1).view(np.uint8).astype(np.uint16), WEIGHT_BITS - coding["slice_bits"]
        return {
            "scale": scales.reshape(-1).view(np.uint16),
            "high": packed(patterns >> low_bits, coding["slice_bits"]),
            "low": packed(patterns, low_bits),
        }

    def draft(self, coding: dict[str, Any], form: TensorForm, count: int, sections: dict[str, bytes]) -> np.ndarray:
        """What the upper bits are taken for, times scales, in float32.

        Raises:
            CodecError: the sections do not fit.
        """
        return self._drafted(_high(coding, count, sections), coding, form, sections)

    def decode(self, coding: dict[str, Any], form: TensorForm, count: int, sections: dict[str, bytes]) -> np.ndarray:
        """Integers times scales, in float32.

        Raises:
            CodecError: the sections do not fit.
        """
        return _scaled(_whole(_high(coding, count, sections), coding, sections), form, sections, _decode)

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
        high = _high(coding, count, drafted)
        target = _scaled(_whole(high, coding, sections), form, sections, _decode)
        return Decoded(target, self._drafted(high, coding, form, drafted))

    def _drafted(
        self, high: np.ndarray, coding: dict[str, Any], form: TensorForm, sections: dict[str, bytes]
    ) -> np.ndarray:
        bits = jnp.int32(coding["slice_bits"])  # an array, so that all of them share a compilation
        return _scaled(high, form, sections, lambda groups: _decode_draft(groups, self._reading, draft_bits=bits))


def gains(form: TensorForm) -> bool:
    """Whether a matrix gets smaller, whatever its values are."""
    rows, columns = form.shape
    bits = form.elements * WEIGHT_BITS + rows * math.ceil(columns / GROUP_SIZE) * SCALE_BITS
    chunks = math.ceil(form.elements / chunk_elements(columns))
    return bits / 8 + _MOST_BESIDE_CHUNK * chunks <= form.bytes


def _high(coding: dict[str, Any], count: int, sections: dict[str, bytes]) -> np.ndarray:
    """Integers without their lower bits, as 16-bit numbers."""
    bits = coding["slice_bits"]
    return unpacked(sections, "high", count, bits) << (WEIGHT_BITS - bits)


def _whole(high: np.ndarray, coding: dict[str, Any], sections: dict[str, bytes]) -> np.ndarray:
    return high | unpacked(sections, "low", high.size, WEIGHT_BITS - coding["slice_bits"])


def _scaled(
    integers: np.ndarray, form: TensorForm, sections: dict[str, bytes], decode: Callable[[Int8Groups], Any]
) -> np.ndarray:
    """Patterns of integers times scales.

    Args:
        decode: of the scheme's integers and scales.
    Raises:
        CodecError: another number of scales than of groups, or no whole rows.
    """
    columns = form.columns
    if integers.size % columns:
        raise CodecError(f"a chunk of {integers.size} values has no whole rows of {columns}")
    rows, groups = integers.size // columns, math.ceil(columns / GROUP_SIZE)
    scales = take(sections, "scale", "<f2", rows * groups).reshape(rows, groups)
    values, decoded = (
        integers.astype(np.uint8).view(np.int8).reshape(rows, columns),
        np.empty((rows, columns), np.float32),
    )
    for part in _parts(rows, columns):
        filled = np.pad(values[part], [(0, 0), (0, groups * GROUP_SIZE - columns)])
        decoded[part] = np.asarray(decode(Int8Groups(jnp.asarray(filled), jnp.asarray(scales[part]))))[:, :columns]
    return decoded.reshape(-1).view(np.uint32)


def _parts(rows: int, columns: int) -> list[slice]:
    """Rows that are worked on at once: all but where short ones, filled up to whole groups, are several times as long."""
    step = max(1, 2 * CHUNK_ELEMENTS // (math.ceil(columns / GROUP_SIZE) * GROUP_SIZE))
    return [slice(first, first + step) for first in range(0, rows, step)]
