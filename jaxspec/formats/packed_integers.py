"""Weights of quantized releases: packed integers and narrow floats with their scales, as `Codes`.

Every function takes arrays as files have them. Values are exact: an integer times a scale of 16 bits is a float32 number, a
product with a scale in float32 is rounded once. Rows are output channels, columns input channels, in all results.

Source: compressed-tensors (`pack_to_int32`, `dequantize`); AutoGPTQ and GPTQModel (`qlinear_torch`); AutoAWQ
    (`packing_utils.py`); NVFP4 as compressed-tensors and ModelOpt store it; bitsandbytes (`functional.py`) for its 4 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
from jaxtyping import Float, Integer, Shaped, UInt8

from jaxspec.formats.codes import E2M1_VALUES, E8M0_VALUES, Codes, packed_bits, unsigned_codes

__all__ = [
    "awq_codes",
    "fp4_codes",
    "fp8_rows",
    "gptq_codes",
    "int4_groups",
    "nf4_codes",
    "packed_codes",
    "scaled_rows",
]

#: Column within eight whose code each nibble of a word of AWQ has, lowest first.
_AWQ_ORDER = np.array([0, 2, 4, 6, 1, 3, 5, 7])


def _bytes_of(words: Shaped[np.ndarray, "row word"], bits: int, count: int) -> UInt8[np.ndarray, "row byte"]:
    """Bytes of words of 32 bits, as many as eight codes at a time take."""
    raw = np.ascontiguousarray(words).astype("<i4", copy=False).view(np.uint8)
    needed = -(-count // 8) * bits
    return np.pad(raw, ((0, 0), (0, max(0, needed - raw.shape[1]))))[:, :needed]


def packed_codes(
    words: Integer[np.ndarray, "row word"],
    scales: Float[np.ndarray, "row group"],
    columns: int,
    *,
    bits: int = 0,
    zeros: Integer[np.ndarray, "zeros group"] | None = None,
    groups: Integer[np.ndarray, " column"] | None = None,
) -> Codes:
    """compressed-tensors' `pack-quantized`: codes along a row, zero points packed along the rows; both offset to be unsigned.

    Args:
        columns: of the matrix.
        bits: of a code; 0: the fewest that take so many words.
        groups: of each column (`weight_g_idx`); None, or all -1: consecutive ones.
    Raises:
        ValueError: so many words hold no such row.
    """
    fitting = [each for each in range(1, 9) if -(-columns * each // 32) == words.shape[1] and bits in (0, each)]
    if not fitting:
        raise ValueError(f"{words.shape[1]} words for {columns} columns")
    bits = fitting[0]
    if zeros is None:
        zero = np.full((1, 1), 1 << (bits - 1), np.uint8)
    else:
        zero = unsigned_codes(_bytes_of(zeros.T, bits, len(words)), bits, len(words)).T
    packed = _bytes_of(words, bits, columns)
    return _grouped(packed, scales, zero, columns, bits, None if groups is None or (groups < 0).any() else groups)


def gptq_codes(
    words: Integer[np.ndarray, "word row"],
    zeros: Integer[np.ndarray, "group zeros"],
    scales: Float[np.ndarray, "group row"],
    bits: int,
    *,
    groups: Integer[np.ndarray, " column"] | None = None,
    offset: int = 1,
) -> Codes:
    """GPTQ: codes packed along input channels, zero points along output channels.

    Args:
        groups: of each column (`g_idx`); None: consecutive ones.
        offset: of stored zero points, which `checkpoint_format` "gptq" has 1 too small and "gptq_v2" as they are.
    """
    rows, columns = words.shape[1], len(words) * 32 // bits
    zero = unsigned_codes(_bytes_of(zeros, bits, rows), bits, rows) + np.uint8(offset) & np.uint8((1 << bits) - 1)
    return _grouped(_bytes_of(words.T, bits, columns), scales.T, zero.T, columns, bits, groups)


def awq_codes(
    words: Integer[np.ndarray, "column word"],
    zeros: Integer[np.ndarray, "group word"],
    scales: Float[np.ndarray, "group row"],
) -> Codes:
    """AWQ in 4 bits: codes packed along output channels, the eight of a word in an order of its own."""
    rows, columns = scales.shape[1], len(words)
    place = np.argsort(_AWQ_ORDER)

    def ordered(packed: np.ndarray) -> np.ndarray:
        found = unsigned_codes(_bytes_of(packed, 4, rows), 4, rows)
        return found.reshape(len(packed), -1, 8)[..., place].reshape(-1, rows)

    return _grouped(packed_bits(ordered(words).T, 4), scales.T, ordered(zeros).T, columns, 4)


def _grouped(
    packed: np.ndarray,
    scales: np.ndarray,
    zeros: np.ndarray,
    columns: int,
    bits: int,
    groups: np.ndarray | None = None,
) -> Codes:
    """Raises ValueError: parts that do not fit together."""
    size = -(-columns // scales.shape[1])
    if len(scales) not in (1, len(packed)) or zeros.shape not in ((1, 1), scales.shape):
        raise ValueError(f"scales {scales.shape} and zero points {zeros.shape} of {len(packed)} rows")
    if groups is not None and (groups.shape != (columns,) or not 0 <= groups.min() <= groups.max() < scales.shape[1]):
        raise ValueError(f"{groups.shape} numbers of {scales.shape[1]} groups for {columns} columns")
    if groups is not None and np.array_equal(groups, np.arange(columns) // size):
        groups = None
    if groups is None and columns % scales.shape[1]:
        raise ValueError(f"{scales.shape[1]} groups of {columns} columns")
    return Codes(packed, scales, zeros, groups, columns=columns, bits=bits, share=(1, size))


def fp4_codes(
    codes: Integer[np.ndarray, "*lead row byte"],
    scales: Shaped[np.ndarray, "*lead row group"],
    whole: Float[np.ndarray, ...] | None = None,
    *,
    divides: bool = False,
) -> Codes:
    """MXFP4 and NVFP4: two elements in E2M1 in a byte, the first one in its low bits.

    Args:
        scales: E8M0 codes in bytes, or E4M3.
        whole: scale of all scales; where it `divides` (compressed-tensors' `weight_global_scale`), its reciprocal.
    Raises:
        ValueError: groups that do not divide the columns.
    """
    columns, groups = 2 * codes.shape[-1], scales.shape[-1]
    if columns % groups:
        raise ValueError(f"{groups} groups of {columns} columns")
    whole = None if whole is None else whole.astype(np.float32).reshape(1, 1)
    if scales.dtype == np.uint8:
        held = Codes(scales, whole, columns=groups, table=E8M0_VALUES)
    else:
        held = Codes(scales.view(np.uint8), whole, columns=groups, elements=scales.dtype, divides=divides)
    return Codes(codes, held, columns=columns, bits=4, share=(1, columns // groups), table=E2M1_VALUES)


def nf4_codes(read: Callable[[str], Any], state: Mapping[str, Any]) -> Codes:
    """NF4 and FP4 of bitsandbytes, of which blocks share a scale, or with double quantization a code of a scale.

    Blocks go on from row to row; where they end within rows, they are cut into parts that do not, which have the same scale.

    Args:
        read: name of a matrix's part, as "absmax" -> its tensor; None: there is none.
        state: its `quant_state`.
    Raises:
        ValueError: parts of another matrix.
    """
    (rows, columns), whole = state["shape"], state["blocksize"]
    size = math.gcd(columns, whole)
    times = whole // size
    # Codes may be stored in any type (`bnb_4bit_quant_storage`).
    packed = np.ascontiguousarray(read("weight")).view(np.uint8).reshape(rows, -1)
    scales = np.repeat(read("absmax").reshape(1, -1), times, axis=1)[:, : rows * columns // size]
    if (inner := read("nested_absmax")) is None:
        scales = scales.reshape(rows, -1)
    else:  # blocks of scales go on from row to row
        shift = np.full((1, 1), state["nested_offset"], np.float32)
        scales = Codes(
            scales,
            inner.reshape(1, -1),
            columns=scales.size,
            share=(1, state["nested_blocksize"] * times),
            minima=shift,
            table=tuple(read("nested_quant_map").tolist()),
        )
    # Here the first element of a byte is in its high bits.
    return Codes(
        packed >> 4 | packed << 4,
        scales,
        columns=columns,
        bits=4,
        share=(1, size),
        table=tuple(read("quant_map").tolist()),
    )


def scaled_rows(
    elements: Shaped[np.ndarray, "row column"],
    scales: Shaped[np.ndarray, ...],
    zeros: np.ndarray | None = None,
    *,
    block: tuple[int, int] | None = None,
) -> Codes:
    """Elements in FP8 or INT8 with a scale of the whole matrix, of each row, of groups of a row, or of blocks.

    Args:
        scales: numbers, or E8M0 codes in bytes.
        block: rows and columns of a block, the last of which may be cut; None: as many as divide the matrix evenly.
    Raises:
        ValueError: scales of other parts.
    """
    rows, columns = elements.shape
    scales = scales if scales.ndim == 2 else scales.reshape(-1, 1)
    share = block or (-(-rows // scales.shape[0]), -(-columns // scales.shape[1]))
    wanted = (-(-rows // share[0]), -(-columns // share[1]))
    if any(count not in (1, most) for count, most in zip(scales.shape, wanted, strict=True)):
        raise ValueError(f"scales {scales.shape} for {wanted} parts of {share}")
    zeros = None if zeros is None else zeros.reshape(scales.shape)
    held: Any = scales
    if scales.dtype == np.uint8:
        held = Codes(scales, None, columns=scales.shape[1], table=E8M0_VALUES)
    if elements.dtype == np.int8:
        return Codes(elements, held, zeros, columns=columns, share=share)
    return Codes(elements.view(np.uint8), held, zeros, columns=columns, share=share, elements=elements.dtype)


def int4_groups(
    values: Float[np.ndarray, "row column"], size: int
) -> tuple[Integer[np.ndarray, "row word"], Float[np.ndarray, "row group"]]:
    """Words and scales of `packed_codes`: symmetric INT4 in groups of consecutive columns, scales in bfloat16.

    Args:
        size: of a group; it divides the columns.
    Source: compressed-tensors, `calculate_qparams`: the largest magnitude of a group is 7.5 steps, and codes are cut at 7.
    """
    rows, columns = values.shape
    groups = values.astype(np.float32).reshape(rows, columns // size, size)
    scales = (np.abs(groups).max(axis=-1) / 7.5).astype(ml_dtypes.bfloat16)
    steps = np.where(scales == 0, 1, scales).astype(np.float32)[..., None]
    codes = (np.clip(np.round(groups / steps), -8, 7) + 8).astype(np.uint8).reshape(rows, columns)
    return packed_bits(np.pad(codes, ((0, 0), (0, -columns % 8))), 4).view("<i4"), scales


def fp8_rows(
    values: Float[np.ndarray, "row column"],
) -> tuple[Shaped[np.ndarray, "row column"], Float[np.ndarray, "row 1"]]:
    """Elements in E4M3 and scales of `scaled_rows`, one for each row, in bfloat16: its largest magnitude is E4M3's."""
    most = float(ml_dtypes.finfo(ml_dtypes.float8_e4m3fn).max)
    wide = values.astype(np.float32)
    scales = (np.abs(wide).max(axis=1, keepdims=True) / most).astype(ml_dtypes.bfloat16)
    steps = np.where(scales == 0, 1, scales).astype(np.float32)
    return np.clip(wide / steps, -most, most).astype(ml_dtypes.float8_e4m3fn), scales
