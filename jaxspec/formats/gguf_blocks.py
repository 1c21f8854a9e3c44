"""Blocks of GGUF files as `Codes`: the same bits in another order, whose values are those of the library `gguf`.

A block is the codes of 32 or 256 consecutive elements with its scale, and in types called K also codes of the scales of its
parts. Types whose codes stand for several elements at once (IQ1, IQ2, IQ3, TQ1) are not among them.

Source: ggml, `ggml-common.h` (layouts); the library `gguf`, `quants.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from jaxspec.formats.codes import E2M1_VALUES, E8M0_VALUES, Codes, packed_bits

__all__ = ["BLOCK_TYPES", "block_codes"]

#: Values of the codes of IQ4_NL and IQ4_XS.
_IQ4 = tuple(map(float, (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)))

#: Scales of NVFP4: E4M3 without a sign, of which 127 stands for 0.
_UE4M3 = tuple(
    0.0
    if code in (0, 127)
    else (code & 7) / 512
    if not code >> 3 & 15
    else (1 + (code & 7) / 8) * 2.0 ** ((code >> 3 & 15) - 7)
    for code in range(256)
)


class _Scale(NamedTuple):
    """Of the parts of blocks: numbers of blocks, "block 1", times the codes of their parts, "block part", less `zero`."""

    whole: np.ndarray | None
    codes: np.ndarray | None = None
    bits: int = 8
    zero: int = 0
    table: tuple[float, ...] | None = None

    def of_rows(self, rows: int) -> Any:
        """The same of matrices' rows."""
        whole = None if self.whole is None else self.whole.reshape(rows, -1)
        if self.codes is None:
            return whole
        packed = self.codes.dtype == np.uint8
        codes, parts = self.codes.reshape(rows, -1), self.codes.shape[1]
        zero = np.full((1, 1), self.zero, np.uint8) if self.zero else None
        return Codes(
            packed_bits(codes, self.bits) if packed else codes,
            whole,
            zero,
            columns=codes.shape[1],
            bits=self.bits,
            share=(1, parts),
            table=self.table,
        )


class _Blocks(NamedTuple):
    """Blocks of one type: codes of elements, "block element", their scales, and minima that are added."""

    codes: np.ndarray
    bits: int
    scale: _Scale
    zero: int = 0
    minimum: _Scale | None = None
    table: tuple[float, ...] | None = None


def _planes(packed: np.ndarray, bits: int, size: int) -> np.ndarray:
    """Codes of which `size` consecutive ones lie in as many bytes, in the lowest bits; the next ones above these, and so on."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    found = packed.reshape(len(packed), -1, 1, size) >> shifts & np.uint8((1 << bits) - 1)
    return found.reshape(len(packed), -1)


def _with_minima(codes: np.ndarray, bits: int, parts: np.ndarray, scale: Any, minimum: Any) -> _Blocks:
    """Q4_K and Q5_K: codes of eight scales and eight minima, of 6 bits, lie in twelve bytes."""
    low, high, rest = parts[:, :4], parts[:, 4:8], parts[:, 8:]
    scales = np.concatenate([low & 63, rest & 15 | low >> 6 << 4], axis=1)
    minima = np.concatenate([high & 63, rest >> 4 | high >> 6 << 4], axis=1)
    return _Blocks(codes, bits, _Scale(_half(scale), scales, 6), minimum=_Scale(-_half(minimum), minima, 6))


def _half(parts: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(parts).view(np.float16)


def _iq4_xs(scale: np.ndarray, high: np.ndarray, low: np.ndarray, codes: np.ndarray) -> _Blocks:
    parts = _planes(low, 4, 1) | _planes(high, 2, 1) << 4
    return _Blocks(_planes(codes, 4, 16), 4, _Scale(_half(scale), parts, 6, zero=32), table=_IQ4)


def _q3_k(high: np.ndarray, low: np.ndarray, parts: np.ndarray, scale: np.ndarray) -> _Blocks:
    scales = _planes(parts[:, :8], 4, 8) | _planes(parts[:, 8:], 2, 4) << 4
    codes = _planes(low, 2, 32) | _planes(high, 1, 32) << 2
    return _Blocks(codes, 3, _Scale(_half(scale), scales, 6, zero=32), zero=4)


def _q6_k(low: np.ndarray, high: np.ndarray, parts: np.ndarray, scale: np.ndarray) -> _Blocks:
    codes = _planes(low, 4, 64) | _planes(high, 2, 32) << 4
    return _Blocks(codes, 6, _Scale(_half(scale), parts.view(np.int8)), zero=32)


#: Type -> bytes of the fields of a block, and what makes codes of them.
_TYPES: dict[str, tuple[tuple[int, ...], Callable[..., _Blocks]]] = {
    "Q4_0": ((2, 16), lambda d, q: _Blocks(_planes(q, 4, 16), 4, _Scale(_half(d)), zero=8)),
    "Q4_1": ((2, 2, 16), lambda d, m, q: _Blocks(_planes(q, 4, 16), 4, _Scale(_half(d)), minimum=_Scale(_half(m)))),
    "Q5_0": (
        (2, 4, 16),
        lambda d, h, q: _Blocks(_planes(q, 4, 16) | _planes(h, 1, 1) << 4, 5, _Scale(_half(d)), zero=16),
    ),
    "Q5_1": (
        (2, 2, 4, 16),
        lambda d, m, h, q: _Blocks(
            _planes(q, 4, 16) | _planes(h, 1, 1) << 4, 5, _Scale(_half(d)), minimum=_Scale(_half(m))
        ),
    ),
    "Q8_0": ((2, 32), lambda d, q: _Blocks(q.view(np.int8), 8, _Scale(_half(d)))),
    "Q2_K": (
        (16, 64, 2, 2),
        lambda s, q, d, m: _Blocks(
            _planes(q, 2, 32), 2, _Scale(_half(d), s & 15, 4), minimum=_Scale(-_half(m), s >> 4, 4)
        ),
    ),
    "Q3_K": ((32, 64, 12, 2), _q3_k),
    "Q4_K": ((2, 2, 12, 128), lambda d, m, s, q: _with_minima(_planes(q, 4, 32), 4, s, d, m)),
    "Q5_K": (
        (2, 2, 12, 32, 128),
        lambda d, m, s, h, q: _with_minima(_planes(q, 4, 32) | _planes(h, 1, 32) << 4, 5, s, d, m),
    ),
    "Q6_K": ((128, 64, 16, 2), _q6_k),
    "TQ2_0": ((64, 2), lambda q, d: _Blocks(_planes(q, 2, 32), 2, _Scale(_half(d)), zero=1)),
    "IQ4_NL": ((2, 16), lambda d, q: _Blocks(_planes(q, 4, 16), 4, _Scale(_half(d)), table=_IQ4)),
    "IQ4_XS": ((2, 2, 4, 128), _iq4_xs),
    "MXFP4": (
        (1, 16),
        lambda e, q: _Blocks(_planes(q, 4, 16), 4, _Scale(None, e, table=E8M0_VALUES), table=E2M1_VALUES),
    ),
    "NVFP4": (
        (4, 32),
        lambda s, q: _Blocks(_planes(q, 4, 8), 4, _Scale(None, s, table=_UE4M3), table=E2M1_VALUES),
    ),
}

#: Types whose blocks are read as codes.
BLOCK_TYPES = frozenset(_TYPES)


def block_codes(rows: UInt8[np.ndarray, "row byte"], kind: str) -> Codes:
    """Rows of a matrix in blocks of one of `BLOCK_TYPES`."""
    sizes, made = _TYPES[kind]
    fields = np.split(rows.reshape(-1, sum(sizes)), np.cumsum(sizes)[:-1], axis=1)
    found, count = made(*map(np.ascontiguousarray, fields)), len(rows)
    codes = found.codes.reshape(count, -1)
    scales = found.scale.of_rows(count)
    minima = None if found.minimum is None else found.minimum.of_rows(count)
    parts = scales.columns if isinstance(scales, Codes) else scales.shape[1]
    return Codes(
        codes if codes.dtype == np.int8 else packed_bits(codes, found.bits),
        scales,
        np.full((1, 1), found.zero, np.uint8) if found.zero else None,
        minima=minima,
        columns=codes.shape[1],
        bits=found.bits,
        share=(1, codes.shape[1] // parts),
        table=found.table,
    )
