"""Stored patterns of numbers: which bits a value is, as unsigned integers, and the layout of each number format.

Every other format of this package works on patterns, so that subnormal values, signed zeros and NaN payloads survive:
arithmetic on a CPU takes subnormal float32 values for zero.

Source: IEEE 754-2019, 3.4 (binary16, binary32); bfloat16 is the upper half of binary32. Huff-LLM, Eq. (1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, Num, UInt

from jaxspec.settings.knobs import MANTISSA_BITS

__all__ = [
    "BFLOAT16",
    "FLOAT16",
    "FLOAT32",
    "INT8",
    "BitsRead",
    "NumberFormat",
    "expected_bits",
    "format_of",
    "from_bits",
    "high_part",
    "low_part",
    "midpoint",
    "num_bits",
    "target_format",
    "to_bits",
    "truncate",
]


class BitsRead(NamedTuple):
    """Bits that a draft step reads, and that a verification reads in all: per stored value, or of a whole tensor."""

    draft: Num[Array, "*b"] | float
    target: Num[Array, "*b"] | float


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


# Truncation of mantissas: the high bits that a draft reads, and the low bits that only the target reads.


def high_part(
    bits: UInt[Array, "*#b"], cut_bits: Int[Array, "*#b"] | int, *, number_format: NumberFormat | None = None
) -> UInt[Array, "*b"]:
    """The patterns with their lowest `cut_bits` bits zeroed: what the draft reads.

    Args:
        bits: patterns of bfloat16, float16 or float32.
        cut_bits: 0 to the number of mantissa bits, an integer or an integer array that broadcasts against `bits`; it may be
            traced. Beyond the mantissa it would cut exponents.
        number_format: of the patterns, if a cut that is known before tracing is to be checked against its mantissa.
    Raises:
        ValueError: patterns of 8 bits, which are integers, or of another width than the format's; a cut out of range, or
            fractional.
    """
    _check(bits.dtype, cut_bits, number_format)
    cut = jnp.asarray(cut_bits)
    if not jnp.issubdtype(cut.dtype, jnp.integer):
        raise ValueError(f"cut_bits of dtype {cut.dtype} came; whole bits are cut: round them, or blend two whole cuts")
    everything = jnp.asarray(jnp.iinfo(bits.dtype).max, bits.dtype)
    mask = (everything << cut.astype(bits.dtype)).astype(bits.dtype)
    return jnp.bitwise_and(*jnp.broadcast_arrays(bits, mask))


def low_part(
    bits: UInt[Array, "*#b"], cut_bits: Int[Array, "*#b"] | int, *, number_format: NumberFormat | None = None
) -> UInt[Array, "*b"]:
    """The cut bits: what only the target reads. `high_part | low_part` is the pattern; see `high_part`."""
    return bits ^ high_part(bits, cut_bits, number_format=number_format)


def truncate(x: Float[Array, "*b"], cut_bits: Int[Array, "*#b"] | int) -> Float[Array, "*b"]:
    """The values with their lowest mantissa bits zeroed: rounded toward zero; a NaN with low payload becomes an infinity.

    A step function of the values; the gradient given is zero everywhere.

    Args:
        x: bfloat16, float16 or float32.
        cut_bits: 0 to the number of mantissa bits, broadcast against x; it may be traced.
    Raises:
        ValueError: int8 or another dtype, or a cut that is known and out of range.
    """
    number_format = format_of(x.dtype)
    return from_bits(high_part(to_bits(x), cut_bits, number_format=number_format), number_format)


def midpoint(high: Any, cut_bits: UInt[Array, ""] | int, number_format: NumberFormat) -> Any:
    """Truncated patterns at the middle of the values that they can stand for: the highest cut bit is set, and none is stored.

    Values that are truncated toward zero are all too small; from the middle they err to both sides, with a quarter of the
    squared error. Zeros, subnormal values, infinities and NaNs stay as they are.

    Args:
        high: "*b", as `high_part` returns them, of JAX or NumPy; what is returned is alike.
        cut_bits: as there, for all of them; an array has their dtype.
    """
    largest = ((1 << number_format.exponent_bits) - 1) << number_format.mantissa_bits
    exponents = high & largest
    normal = (exponents != 0) & (exponents != largest)
    return high | normal.astype(high.dtype) * ((1 << cut_bits) >> 1)


def num_bits(number_format: NumberFormat, cut_bits: Int[Array, "*#b"] | int) -> Int[Array, "*b"] | int:
    """Bits of a truncated value: what is left of sign, exponent and mantissa.

    Raises:
        ValueError: an integer format, or a cut that is known and out of range.
    """
    _check(number_format.bits_dtype, cut_bits, number_format)
    return number_format.total_bits - cut_bits


def expected_bits(number_format: NumberFormat, cut_bits: Float[Array, "*b"] | float) -> Float[Array, "*b"] | float:
    """Mean bits of a value at a fractional cut, which is the mean over values: linear, with slope -1 and no kinks."""
    _check(number_format.bits_dtype, cut_bits, number_format)
    return number_format.total_bits - cut_bits


def _check(dtype: np.dtype, cut_bits: Array | float, number_format: NumberFormat | None) -> None:
    if dtype not in (np.uint16, np.uint32):
        raise ValueError(
            f"patterns of dtype {dtype} hold no mantissa (int8 has none); allowed are those of bfloat16, float16 and "
            "float32. Cut the bits of integers with fields.split"
        )
    if number_format is None:
        return
    if dtype != number_format.bits_dtype:
        raise ValueError(f"patterns of dtype {dtype} are not {number_format.name}, which is {number_format.bits_dtype}")
    # Arrays of JAX may be traced, and reading concrete ones would wait for the device.
    known = isinstance(cut_bits, (int, float, np.number, np.ndarray))
    if known and not np.all((np.asarray(cut_bits) >= 0) & (np.asarray(cut_bits) <= number_format.mantissa_bits)):
        raise ValueError(
            f"cut_bits is {cut_bits}; {number_format.name} has {number_format.mantissa_bits} mantissa bits, so that "
            f"0 to {number_format.mantissa_bits} may be cut"
        )
