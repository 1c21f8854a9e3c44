"""One form of all matrices in fewer than 16 bits: codes or narrow elements, scales of their parts, and minima of these.

Values are those of each format's own library: products and sums in float32, each rounded once.

Source: OCP Microscaling Formats v1.0 for E2M1 and E8M0; `jaxspec.formats.packed_integers` and `gguf_blocks` for files.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import ml_dtypes
import numpy as np
from flax import struct

__all__ = ["E2M1_VALUES", "E8M0_VALUES", "Codes", "packed_bits", "unsigned_codes"]

#: Values of E2M1 by their codes.
E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
#: Values of E8M0 by their codes; the last one is no number.
E8M0_VALUES = (*(2.0 ** (code - 127) for code in range(255)), math.inf)


@struct.dataclass
class Codes:
    """A matrix, or a stack of them, in fewer than 16 bits: codes or elements, and scales of its parts.

    A matrix is cut into parts of `share` rows and columns, the last of which may be smaller; where an axis of what parts have
    is of length 1, that one is of all parts along it. What one long row has is of the parts of all rows, row after row. Scales
    and minima may be `Codes` themselves.

    Attributes:
        codes: unsigned codes of `bits` bits, one after the other in the bytes of a row, the first one lowest, "*lead row byte";
            or integers in INT8, "*lead row column".
        scales: "*lead row_part column_part"; None: 1.
        zeros: likewise, in units of the codes; None: 0.
        groups: part of each column, "*lead column"; None: consecutive columns share one.
        minima: likewise, added to products; None: 0.
        columns: of the matrix. bits: of a code.
        share: see above.
        table: values of the codes; None: the codes themselves.
        elements: floating-point type whose patterns the codes are; None: they are integers.
        divides: codes are divided by their scales.
    """

    codes: Any
    scales: Any
    zeros: Any = None
    groups: Any = None
    minima: Any = None
    columns: int = struct.field(pytree_node=False, kw_only=True)
    bits: int = struct.field(pytree_node=False, default=8)
    share: tuple[int, int] = struct.field(pytree_node=False, default=(1, 1))
    table: tuple[float, ...] | None = struct.field(pytree_node=False, default=None)
    elements: Any = struct.field(pytree_node=False, default=None)
    divides: bool = struct.field(pytree_node=False, default=False)

    def values(self, xp: Any = np) -> Any:
        """(code - zero) scale + minimum in float32, "*lead row column". Args: xp: numpy, or jax.numpy for JAX arrays."""
        found = self._levels(xp)
        if self.zeros is not None:
            found = found - self._spread(self.zeros, xp)
        if self.scales is not None:
            scales = self._spread(self.scales, xp)
            found = found / scales if self.divides else found * scales
        if self.minima is None:
            return found
        if xp is not np and self.table is not None:
            # Products of two float32 numbers are rounded before the sum; those of integers and scales of 16 bits are exact.
            found = jax.lax.optimization_barrier(found)
        return found + self._spread(self.minima, xp)

    def _levels(self, xp: Any) -> Any:
        if self.elements is not None:
            as_elements = np.ndarray.view if xp is np else jax.lax.bitcast_convert_type
            return as_elements(self.codes, self.elements).astype(np.float32)
        packed = self.codes.dtype == np.uint8
        codes = unsigned_codes(self.codes, self.bits, self.columns, xp) if packed else self.codes
        return codes.astype(np.float32) if self.table is None else xp.asarray(self.table, np.float32)[codes]

    def _spread(self, parts: Any, xp: Any) -> Any:
        """What parts have, for each of their elements."""
        rows = self.codes.shape[-2]
        parts = parts.values(xp) if isinstance(parts, Codes) else parts.astype(np.float32)
        along = -(-self.columns // self.share[1])
        if parts.shape[-2] == 1 and parts.shape[-1] > along and self.groups is None:
            parts = parts.reshape(*parts.shape[:-2], -1, along)
        if parts.shape[-2] > 1 and self.share[0] > 1:
            parts = xp.repeat(parts, self.share[0], axis=-2)[..., :rows, :]
        if self.groups is not None and parts.shape[-1] > 1:
            return xp.take_along_axis(parts, self.groups[..., None, :], axis=-1)
        return xp.repeat(parts, self.share[1], axis=-1)[..., : self.columns] if parts.shape[-1] > 1 else parts

    def rows(self, index: Any) -> Codes | None:
        """Some rows of the matrix, by their numbers "*b", each matrix's own; None: rows share scales, part by part."""
        if not self.rows_apart:
            return None
        count, whole = self.codes.shape[-2], ("codes", "scales", "zeros", "minima")
        parts = {name: part for name in whole if (part := getattr(self, name)) is not None}
        own = {name: part.rows(index) for name, part in parts.items() if isinstance(part, Codes)}
        arrays = {name: part for name, part in parts.items() if name not in own}
        taken = {name: part if part.shape[-2] == 1 < count else part[..., index, :] for name, part in arrays.items()}
        return dataclasses.replace(self, **own, **taken)

    @property
    def rows_apart(self) -> bool:
        """Whether each row has scales of its own, or all have the same."""
        rows = self.codes.shape[-2]
        parts = [part for part in (self.scales, self.zeros, self.minima) if part is not None]
        nested = [part for part in parts if isinstance(part, Codes)]
        counts = {(part.codes if isinstance(part, Codes) else part).shape[-2] for part in parts}
        flat = any(part.codes.shape[-2] == 1 < part.columns and rows > 1 for part in nested)
        return counts <= {1, rows} and not flat and all(part.rows_apart for part in nested)

    def surely_within(self, dtype: np.dtype) -> bool:
        """Whether all values are numbers of a type, by the largest scale and the largest code; on the host."""
        # A NaN among what parts have fails the comparison.
        most = lambda part: float(np.abs(part.values() if isinstance(part, Codes) else part.astype(np.float64)).max())
        if self.elements is not None and np.any(self.codes.view(np.uint8) & 127 == 127):
            return False
        if self.elements is not None:
            largest = float(ml_dtypes.finfo(self.elements).max)
        elif self.table is not None:
            largest = max(map(abs, self.table))
        else:
            largest = 255 if self.codes.dtype == np.int8 else (1 << self.bits) - 1
        if self.divides or not largest <= float(np.finfo(np.float32).max):
            return False
        shift = 0.0 if self.minima is None else most(self.minima)
        scale = 1.0 if self.scales is None else most(self.scales)
        return scale * largest + shift <= float(ml_dtypes.finfo(dtype).max)


def unsigned_codes(packed: Any, bits: int, count: int, xp: Any = np) -> Any:
    """Unsigned codes that lie one after the other in the bits of bytes, the first one lowest; some span two bytes.

    Args:
        packed: uint8, "*b byte". bits: of a code, 1 to 8.
        count: codes of a row; what follows them is padding.
        xp: numpy, or jax.numpy for JAX arrays.
    Returns:
        uint8, "*b count".
    """
    turn = 8 // math.gcd(8, bits)  # codes that fill whole bytes together
    size = turn * bits // 8
    turns = -(-count // turn)
    whole = packed[..., : turns * size]
    whole = whole.reshape(*whole.shape[:-1], turns, size)

    def code(place: int) -> Any:
        byte, shift = divmod(place * bits, 8)
        found = whole[..., byte] >> shift
        if shift + bits > 8:
            found = found | whole[..., byte + 1] << (8 - shift)
        return found & ((1 << bits) - 1)

    found = xp.stack([code(place) for place in range(turn)], axis=-1)
    return found.reshape(*packed.shape[:-1], turns * turn)[..., :count]


def packed_bits(codes: np.ndarray, bits: int) -> np.ndarray:
    """What `unsigned_codes` reads, "*b byte", of uint8 codes below 2^bits, "*b count"; zeros fill the last bytes."""
    turn = 8 // math.gcd(8, bits)
    size, count = turn * bits // 8, codes.shape[-1]
    codes = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, -count % turn)])
    whole = codes.reshape(*codes.shape[:-1], -1, turn)
    found = np.zeros((*whole.shape[:-1], size), np.uint8)
    for place in range(turn):
        byte, shift = divmod(place * bits, 8)
        found[..., byte] |= whole[..., place] << shift
        if shift + bits > 8:
            found[..., byte + 1] |= whole[..., place] >> (8 - shift)
    return found.reshape(*codes.shape[:-1], -1)
