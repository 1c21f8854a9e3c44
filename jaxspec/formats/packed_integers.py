"""Weights of quantized releases: packed integers and narrow floats with their scales, as the float32 values they stand for.

Every function takes arrays as files have them and is exact: an integer times a scale of 16 bits is a float32 number, a product
with a scale in float32 is rounded once. Rows are output channels, columns input channels, in all results.

Source: compressed-tensors (`pack_to_int32`, `dequantize`); AutoGPTQ and GPTQModel (`qlinear_torch`); AutoAWQ
    (`packing_utils.py`); NVFP4 as compressed-tensors stores it; OCP Microscaling Formats v1.0 for E2M1 and E8M0.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
from jaxtyping import Float, Integer, Shaped, UInt8

__all__ = [
    "awq_values",
    "codes_of_words",
    "fp4_values",
    "gptq_values",
    "grouped_values",
    "packed_values",
    "scaled_rows",
]

#: Values of E2M1 by their codes.
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
_E2M1 = np.concatenate([_E2M1, -_E2M1])

#: Column within eight whose code each nibble of a word of AWQ has, lowest first.
_AWQ_ORDER = np.array([0, 2, 4, 6, 1, 3, 5, 7])


def codes_of_words(words: Shaped[np.ndarray, "row word"], bits: int, count: int) -> UInt8[np.ndarray, "row count"]:
    """Unsigned codes that lie one after the other in the bits of words of 32 bits, the first one lowest; some span two words.

    Args:
        bits: of a code, 1 to 8.
        count: codes of a row; what follows them is padding.
    """
    raw = np.ascontiguousarray(words).astype("<i4", copy=False).view(np.uint8)
    if bits == 4:
        return np.stack([raw & 15, raw >> 4], axis=-1).reshape(len(raw), -1)[:, :count]
    single = np.unpackbits(raw, axis=1, count=bits * count, bitorder="little").reshape(len(raw), count, bits)
    return np.packbits(single, axis=-1, bitorder="little")[..., 0]


def grouped_values(
    codes: Integer[np.ndarray, "row column"],
    scales: Float[np.ndarray, "row group"],
    zeros: Integer[np.ndarray, "row group"] | int = 0,
    groups: Integer[np.ndarray, " column"] | None = None,
) -> Float[np.ndarray, "row column"]:
    """(code - zero) scale in float32.

    Args:
        zeros: in units of the codes.
        groups: of each column; None: consecutive ones of one size.
    """
    if groups is None:
        groups = np.arange(codes.shape[1]) // -(-codes.shape[1] // scales.shape[1])
    zero = zeros if isinstance(zeros, int) else zeros.astype(np.float32)[:, groups]
    return (codes.astype(np.float32) - zero) * scales.astype(np.float32)[:, groups]


def packed_values(
    words: Integer[np.ndarray, "row word"],
    scales: Float[np.ndarray, "row group"],
    columns: int,
    *,
    zeros: Integer[np.ndarray, "zeros group"] | None = None,
    groups: Integer[np.ndarray, " column"] | None = None,
) -> Float[np.ndarray, "row column"]:
    """compressed-tensors' `pack-quantized`: codes along a row, zero points packed along the rows; both offset to be unsigned.

    Args:
        columns: of the matrix, from which the width of a code follows.
        groups: of each column (`weight_g_idx`); None, or all -1: consecutive ones.
    Raises:
        ValueError: so many words hold no such row.
    """
    bits = next((bits for bits in range(1, 9) if -(-columns * bits // 32) == words.shape[1]), None)
    if bits is None:
        raise ValueError(f"{words.shape[1]} words for {columns} columns")
    codes = codes_of_words(words, bits, columns)
    zero = 1 << (bits - 1) if zeros is None else codes_of_words(zeros.T, bits, len(words)).T
    return grouped_values(codes, scales, zero, None if groups is None or (groups < 0).any() else groups)


def gptq_values(
    words: Integer[np.ndarray, "word row"],
    zeros: Integer[np.ndarray, "group zeros"],
    scales: Float[np.ndarray, "group row"],
    bits: int,
    *,
    groups: Integer[np.ndarray, " column"] | None = None,
    offset: int = 1,
) -> Float[np.ndarray, "row column"]:
    """GPTQ: codes packed along input channels, zero points along output channels.

    Args:
        groups: of each column (`g_idx`); None: consecutive ones.
        offset: of stored zero points, which `checkpoint_format` "gptq" has 1 too small and "gptq_v2" as they are.
    """
    rows, columns = words.shape[1], len(words) * 32 // bits
    zero = (codes_of_words(zeros, bits, rows).astype(np.int32) + offset) & ((1 << bits) - 1)
    return grouped_values(codes_of_words(words.T, bits, columns), scales.T, zero.T, groups)


def awq_values(
    words: Integer[np.ndarray, "column word"],
    zeros: Integer[np.ndarray, "group word"],
    scales: Float[np.ndarray, "group row"],
) -> Float[np.ndarray, "row column"]:
    """AWQ in 4 bits: codes packed along output channels, the eight of a word in an order of its own."""
    rows = scales.shape[1]
    place = np.argsort(_AWQ_ORDER)
    ordered = lambda packed: codes_of_words(packed, 4, rows).reshape(len(packed), -1, 8)[..., place].reshape(-1, rows)
    return grouped_values(ordered(words).T, scales.T, ordered(zeros).T)


def fp4_values(
    codes: Integer[np.ndarray, "row byte"],
    scales: Shaped[np.ndarray, "row group"],
    divisor: Float[np.ndarray, ...] | None = None,
) -> Float[np.ndarray, "row column"]:
    """MXFP4 and NVFP4: two elements in E2M1 in a byte, the first one in its low bits.

    Args:
        scales: E8M0 codes in bytes, or numbers.
        divisor: of all scales (`weight_global_scale`).
    """
    wide = np.exp2(scales.astype(np.float32) - 127) if scales.dtype == np.uint8 else scales.astype(np.float32)
    if divisor is not None:
        wide = wide / divisor.astype(np.float32).reshape(1, 1)
    values = _E2M1[np.stack([codes & 15, codes >> 4], axis=-1).reshape(len(codes), -1)]
    return values * np.repeat(wide, values.shape[1] // wide.shape[1], axis=1)


def scaled_rows(
    elements: Shaped[np.ndarray, "row column"],
    scales: Float[np.ndarray, ...],
    zeros: np.ndarray | None = None,
    *,
    block: tuple[int, int] | None = None,
) -> Float[np.ndarray, "row column"]:
    """Elements in FP8 or INT8 times a scale: of the whole matrix, of each row, of groups of a row, or of blocks.

    Args:
        block: rows and columns of a block, the last of which may be cut; None: as many as divide the matrix evenly.
    """
    sizes = elements.shape
    wide = scales.astype(np.float32).reshape(scales.shape if scales.ndim == 2 else (-1, 1))
    shares = block or tuple(-(-size // count) for size, count in zip(sizes, wide.shape, strict=True))

    def spread(value: np.ndarray) -> np.ndarray:
        for axis in (0, 1):
            if value.shape[axis] > 1:  # one alone is broadcast
                value = np.repeat(value, shares[axis], axis=axis).take(range(sizes[axis]), axis=axis)
        return value

    found = elements.astype(np.float32)
    return (found if zeros is None else found - spread(zeros.astype(np.float32).reshape(wide.shape))) * spread(wide)


def int4_groups(
    values: Float[np.ndarray, "row column"], size: int
) -> tuple[Integer[np.ndarray, "row word"], Float[np.ndarray, "row group"]]:
    """Words and scales of `packed_values`: symmetric INT4 in groups of consecutive columns, scales in bfloat16.

    Args:
        size: of a group; it divides the columns.
    Source: compressed-tensors, `calculate_qparams`: the largest magnitude of a group is 7.5 steps, and codes are cut at 7.
    """
    rows, columns = values.shape
    groups = values.astype(np.float32).reshape(rows, columns // size, size)
    scales = (np.abs(groups).max(axis=-1) / 7.5).astype(ml_dtypes.bfloat16)
    steps = np.where(scales == 0, 1, scales).astype(np.float32)[..., None]
    codes = (np.clip(np.round(groups / steps), -8, 7) + 8).astype(np.uint8).reshape(rows, columns)
    codes = np.pad(codes, ((0, 0), (0, -columns % 8)))
    return np.ascontiguousarray(codes[:, ::2] | codes[:, 1::2] << 4).view("<i4"), scales


def fp8_rows(
    values: Float[np.ndarray, "row column"],
) -> tuple[Shaped[np.ndarray, "row column"], Float[np.ndarray, "row 1"]]:
    """Elements in E4M3 and scales of `scaled_rows`, one for each row, in bfloat16: its largest magnitude is E4M3's."""
    most = float(ml_dtypes.finfo(ml_dtypes.float8_e4m3fn).max)
    wide = values.astype(np.float32)
    scales = (np.abs(wide).max(axis=1, keepdims=True) / most).astype(ml_dtypes.bfloat16)
    steps = np.where(scales == 0, 1, scales).astype(np.float32)
    return np.clip(wide / steps, -most, most).astype(ml_dtypes.float8_e4m3fn), scales
