"""Stored patterns of numbers: which bits a value is, as unsigned integers, and the layout of each number format.

Every other format of this package works on patterns, so that subnormal values, signed zeros and NaN payloads survive:
arithmetic on a CPU takes subnormal float32 values for zero.

Source: IEEE 754-2019, 3.4 (binary16, binary32); bfloat16 is the upper half of binary32. Huff-LLM, Eq. (1).
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import ml_dtypes
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Num, UInt

from jaxspec.settings.knobs import MANTISSA_BITS

__all__ = [
    "BFLOAT16",
    "FLOAT16",
    "FLOAT32",
    "INT8",
    "NumberFormat",
    "format_of",
    "from_bits",
    "target_format",
    "to_bits",
]


@dataclass(frozen=True)
class NumberFormat:
    """Layout of a number: sign, exponent and mantissa, most significant bit first.

    Attributes:
        name: as in "bfloat16".
        total_bits: bits of a stored value.
        exponent_bits: 0 for an integer.
        mantissa_bits: stored ones: without the leading one of a normal floating-point value.
        bias: what is subtracted from the exponent field.
        bits_dtype: unsigned integers of `total_bits` bits.
        value_dtype: what JAX and NumPy compute with.
    """

    name: str
    total_bits: int
    exponent_bits: int
    mantissa_bits: int
    bias: int
    bits_dtype: np.dtype
    value_dtype: np.dtype


#: 1-8-7: the upper half of float32.
BFLOAT16 = NumberFormat(
    "bfloat16", 16, 8, MANTISSA_BITS["bfloat16"], 127, np.dtype(np.uint16), np.dtype(ml_dtypes.bfloat16)
)

#: 1-5-10: IEEE 754 binary16.
FLOAT16 = NumberFormat("float16", 16, 5, MANTISSA_BITS["float16"], 15, np.dtype(np.uint16), np.dtype(np.float16))

#: 1-8-23: IEEE 754 binary32.
FLOAT32 = NumberFormat("float32", 32, 8, 23, 127, np.dtype(np.uint32), np.dtype(np.float32))

#: A two's-complement integer: no exponent, and the first bit weighs -128; it is a sign bit only in that it tells the sign.
INT8 = NumberFormat("int8", 8, 0, 7, 0, np.dtype(np.uint8), np.dtype(np.int8))

_FORMATS = {number_format.value_dtype: number_format for number_format in (BFLOAT16, FLOAT16, FLOAT32, INT8)}


def format_of(dtype: DTypeLike) -> NumberFormat:
    """The number format of a dtype.

    Raises:
        ValueError: the dtype is none of bfloat16, float16, float32 and int8.
    """
    number_format = _FORMATS.get(np.dtype(dtype))
    if number_format is None:
        allowed = ", ".join(known.name for known in _FORMATS.values())
        raise ValueError(f"no number format for dtype {np.dtype(dtype).name}; allowed: {allowed}. Convert with astype.")
    return number_format


def target_format(dtype: DTypeLike) -> NumberFormat:
    """The 16 bits in which a network is a target: its own of float16, bfloat16 for everything else."""
    return FLOAT16 if np.dtype(dtype) == FLOAT16.value_dtype else BFLOAT16


def to_bits(x: Num[Array, "*b"]) -> UInt[Array, "*b"]:
    """The stored patterns of bfloat16, float16, float32 or int8 values.

    Raises:
        ValueError: values of another dtype.
    """
    return jax.lax.bitcast_convert_type(x, format_of(x.dtype).bits_dtype)


def from_bits(bits: UInt[Array, "*b"], number_format: NumberFormat) -> Num[Array, "*b"]:
    """The values of stored patterns; the inverse of `to_bits`.

    Raises:
        ValueError: patterns of another width than the number format's.
    """
    if bits.dtype != number_format.bits_dtype:
        raise ValueError(
            f"patterns of dtype {bits.dtype} are not {number_format.name}, which is {number_format.bits_dtype}; "
            "name the format that they were stored in"
        )
    return jax.lax.bitcast_convert_type(bits, number_format.value_dtype)
