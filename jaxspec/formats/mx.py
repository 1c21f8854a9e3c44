"""Microscaling (MX) block formats: a power of two shared by a block of low-precision elements.

A block of `block_size` values along the last axis stores one E8M0 scale 2^(code - 127) and one element code for each value.
The scale is the largest power of two not above the block's largest magnitude, over the largest power of two of the element
format; elements are rounded to nearest, ties to even, and saturate. All is integer arithmetic on patterns, since arithmetic
on a CPU takes subnormal float32 values for zero.

Choices where the specification leaves one:

* A NaN or an infinity in a block makes its scale NaN (0xFF) and its elements 0: the whole block decodes to NaN. The
  specification says that a NaN scale makes the block NaN, and leaves the conversion of such values open. gfloat gives a NaN the
  NaN scale too (and refuses it where the elements have no NaN), but lets an infinity saturate under the scale 2^127.
* A block of zeros has the scale 2^-127 (code 0), as in gfloat; below it scales are clamped. Signed zeros stay, but in MXINT8.
* MXINT8 uses its code -128 (-2.0), which the specification allows to leave out; it is the nearest one to what lies below
  -1.9921875.
* A short last block is filled with zeros, which are stored: `num_bits` counts them.

Source: OCP Microscaling Formats (MX) Specification v1.0, 5 (formats) and 6.3 (conversion).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Float32, Int, UInt, UInt8

from jaxspec.formats.patterns import FLOAT32, NumberFormat, format_of, from_bits, to_bits

__all__ = [
    "E2M1",
    "E2M3",
    "E3M2",
    "E4M3",
    "E5M2",
    "ELEMENTS",
    "INT8",
    "ElementFormat",
    "MXTensor",
    "decode",
    "encode",
    "expected_bits",
    "num_bits",
]

#: Values that share a scale in the six formats of the specification.
BLOCK_SIZE = 32

#: Bits of a scale: E8M0, an exponent without sign and mantissa.
SCALE_BITS = 8

_SCALE_BIAS = 127
_NAN_SCALE = 0xFF

#: Below any exponent over any scale.
_ZERO_EXPONENT = -1000

#: Significant bits after the leading one while a value is converted: those of float32, the widest input.
_WORK_BITS = FLOAT32.mantissa_bits


@dataclass(frozen=True)
class ElementFormat:
    """What an element code means: (-1)^sign 2^(max(exponent, 1) - bias) (mantissa / 2^mantissa_bits + [exponent > 0]).

    INT8 is the case without an exponent field: two's complement in steps of 2^-6, whose codes are magnitudes here.

    Attributes:
        name: as the specification spells it.
        total_bits: bits of an element.
        exponent_bits: 0 for INT8.
        mantissa_bits: bits below the leading one.
        bias: of the exponent.
        max_exponent: floor of the logarithm of the largest finite value.
        max_code: code of the largest finite value.
        has_infinity: whether `max_code` + 1 is an infinity; a floating-point code above is NaN.
    """

    name: str
    total_bits: int
    exponent_bits: int
    mantissa_bits: int
    bias: int
    max_exponent: int
    max_code: int
    has_infinity: bool = False


#: MXFP8, largest value 448.
E4M3 = ElementFormat("E4M3", 8, 4, 3, bias=7, max_exponent=8, max_code=0x7E)

#: MXFP8, largest value 57344.
E5M2 = ElementFormat("E5M2", 8, 5, 2, bias=15, max_exponent=15, max_code=0x7B, has_infinity=True)

#: MXFP6, largest value 28.
E3M2 = ElementFormat("E3M2", 6, 3, 2, bias=3, max_exponent=4, max_code=0x1F)

#: MXFP6, largest value 7.5.
E2M3 = ElementFormat("E2M3", 6, 2, 3, bias=1, max_exponent=2, max_code=0x1F)

#: MXFP4, largest value 6.
E2M1 = ElementFormat("E2M1", 4, 2, 1, bias=1, max_exponent=2, max_code=0x7)

#: MXINT8, largest value 127/64, smallest -2.
INT8 = ElementFormat("INT8", 8, 0, 6, bias=1, max_exponent=0, max_code=0x7F)

#: The element formats of the specification by name.
ELEMENTS = {element.name: element for element in (E4M3, E5M2, E3M2, E2M3, E2M1, INT8)}


@struct.dataclass
class MXTensor:
    """Values in an MX format.

    Attributes:
        scale: E8M0 codes.
        elements: element codes in the low bits of a byte; INT8 in two's complement. Zeros fill the last block.
        element: static; the element format.
        columns: static; values of a row, of which the last block may hold less than its size.
    """

    scale: UInt8[Array, "*b block"]
    elements: UInt8[Array, "*b block place"]
    element: ElementFormat = struct.field(pytree_node=False)
    columns: int = struct.field(pytree_node=False)


class _Magnitude(NamedTuple):
    """Magnitudes significand * 2^(exponent - _WORK_BITS), the significand in [2^_WORK_BITS, 2^(_WORK_BITS + 1)).

    Zero has the significand 0 and an exponent below all others.
    """

    significand: UInt[Array, "*b"]
    exponent: Int[Array, "*b"]


def encode(x: Float[Array, "*b column"], element: ElementFormat, *, block_size: int = BLOCK_SIZE) -> MXTensor:
    """Round values to an MX format along the last axis; a step function of them, through which no gradient passes.

    Args:
        x: float32, bfloat16 or float16.
        element: static; one of `ELEMENTS`.
        block_size: static int >= 1; 32 in the specification.
    Raises:
        ValueError: no axis to block, a block size below 1, or values of another dtype.
    Source: OCP MX v1.0, 6.3.
    """
    _check(x.shape, block_size)
    number_format = format_of(x.dtype)
    if not number_format.exponent_bits:
        raise ValueError("int8 has no exponents to share; MX formats are made of bfloat16, float16 or float32 values")
    bits = _blocks(to_bits(x), block_size).astype(jnp.uint32)
    below_sign = number_format.total_bits - 1
    negative, pattern = (bits >> below_sign) > 0, bits & ((1 << below_sign) - 1)
    # Patterns without sign are ordered like magnitudes, infinities and NaNs above all.
    largest = jnp.max(pattern, axis=-1, initial=0)
    broken = largest >> number_format.mantissa_bits == (1 << number_format.exponent_bits) - 1
    scale = _magnitude(largest, number_format).exponent - element.max_exponent
    scale = jnp.clip(scale, -_SCALE_BIAS, _SCALE_BIAS)
    codes = _round(_magnitude(pattern, number_format), scale[..., None], negative, element)
    return MXTensor(
        scale=jnp.where(broken, _NAN_SCALE, scale + _SCALE_BIAS).astype(jnp.uint8),
        elements=jnp.where(broken[..., None], 0, codes).astype(jnp.uint8),
        element=element,
        columns=x.shape[-1],
    )


def decode(tensor: MXTensor) -> Float32[Array, "*b column"]:
    """The float32 values of an MX tensor, exact in the whole range of float32, subnormal values included.

    A product of scale and element beyond the range becomes an infinity, as in a conversion to float32: of what `encode` makes
    that is -2 times 2^127 alone.
    """
    element = tensor.element
    codes = tensor.elements.astype(jnp.uint32)
    scale = tensor.scale.astype(jnp.int32)[..., None]
    sign_bit = 1 << (element.total_bits - 1)
    negative = (codes & sign_bit) != 0
    if element.exponent_bits:
        code = codes & (sign_bit - 1)
        field = code >> element.mantissa_bits
        step = code & ((1 << element.mantissa_bits) - 1) | ((field > 0).astype(jnp.uint32) << element.mantissa_bits)
        infinite = (code == element.max_code + 1) & element.has_infinity
        nan = (code > element.max_code) & ~infinite
    else:
        step = jnp.where(negative, (1 << element.total_bits) - codes, codes)
        field, infinite, nan = jnp.zeros_like(codes), jnp.zeros_like(negative), jnp.zeros_like(negative)
    weight = jnp.maximum(field.astype(jnp.int32), 1) - element.bias - element.mantissa_bits + scale - _SCALE_BIAS
    magnitude = jnp.where(infinite, _INFINITY, _float32_magnitude(step, weight))
    magnitude = jnp.where(nan | (scale == _NAN_SCALE), _NAN, magnitude)
    bits = magnitude | (negative.astype(jnp.uint32) << 31)
    rows = bits.reshape(*bits.shape[:-2], bits.shape[-2] * bits.shape[-1])
    return from_bits(rows[..., : tensor.columns], FLOAT32)


def num_bits(shape: Sequence[int], element: ElementFormat, *, block_size: int = BLOCK_SIZE) -> int:
    """Bits of an array of this shape, with scales and the zeros that fill the last block of each row; exact on the host.

    Raises:
        ValueError: no axis to block, or a block size below 1.
    """
    _check(shape, block_size)
    blocks = math.prod(shape[:-1]) * -(-shape[-1] // block_size)
    return blocks * (SCALE_BITS + block_size * element.total_bits)


def expected_bits(
    element_bits: Float[Array, "*b"] | float, block_size: Float[Array, "*b"] | float = BLOCK_SIZE
) -> Float[Array, "*b"] | float:
    """Bits per value of long rows: element_bits + 8 / block_size.

    Differentiable in both, no kinks: the filling of a row's last block, which is piecewise constant, is left out.

    Args:
        element_bits: mean bits of an element; fractional where formats are mixed.
        block_size: > 0.
    """
    return element_bits + SCALE_BITS / block_size


_INFINITY = 0x7F80_0000
_NAN = 0x7FC0_0000


def _check(shape: Sequence[int], block_size: int) -> None:
    if not shape:
        raise ValueError("a scalar has no axis to block; give it one with reshape(1)")
    if block_size < 1:
        raise ValueError(f"block_size is {block_size}; a block holds at least one value (32 in the specification)")


def _blocks(bits: UInt[Array, "*b column"], block_size: int) -> UInt[Array, "*b block place"]:
    missing = -bits.shape[-1] % block_size
    filled = jnp.pad(bits, [(0, 0)] * (bits.ndim - 1) + [(0, missing)])
    return filled.reshape(*bits.shape[:-1], (bits.shape[-1] + missing) // block_size, block_size)


def _magnitude(pattern: UInt[Array, "*b"], number_format: NumberFormat) -> _Magnitude:
    """Finite magnitudes from patterns without sign, subnormal ones normalised."""
    field = pattern >> number_format.mantissa_bits
    stored = pattern & ((1 << number_format.mantissa_bits) - 1)
    whole = stored | ((field > 0).astype(jnp.uint32) << number_format.mantissa_bits)
    shift = jax.lax.clz(whole) - (31 - _WORK_BITS)
    exponent = jnp.maximum(field, 1).astype(jnp.int32) - number_format.bias
    exponent += _WORK_BITS - number_format.mantissa_bits - shift.astype(jnp.int32)
    return _Magnitude(whole << shift, jnp.where(whole == 0, _ZERO_EXPONENT, exponent))


def _round(
    magnitude: _Magnitude, scale: Int[Array, "*#b"], negative: Bool[Array, "*b"], element: ElementFormat
) -> UInt[Array, "*b"]:
    """Element codes of magnitudes over 2^scale, to nearest, ties to even."""
    field = jnp.maximum(magnitude.exponent - scale + element.bias, 1)
    # How many bits of the significand lie below the element's last one; beyond its width all rounds to zero.
    below = _WORK_BITS - element.mantissa_bits + field - (magnitude.exponent - scale + element.bias)
    below = jnp.minimum(below, _WORK_BITS + 2).astype(jnp.uint32)
    odd = (magnitude.significand >> below) & 1
    steps = (magnitude.significand + (jnp.uint32(1) << (below - 1)) - 1 + odd) >> below
    # A step count that rounds up to the next power of two carries into the exponent field, as it should.
    code = ((field - 1).astype(jnp.uint32) << element.mantissa_bits) + steps
    sign = negative.astype(jnp.uint32)
    if element.exponent_bits:
        return jnp.minimum(code, element.max_code) | (sign << (element.total_bits - 1))
    code = jnp.minimum(code, element.max_code + sign)
    return jnp.where(negative, -code, code) & 0xFF


def _float32_magnitude(step: UInt[Array, "*b"], weight: Int[Array, "*b"]) -> UInt[Array, "*b"]:
    """Patterns of step * 2^weight, for steps below 2^24 and weights at least -149: always exact, or infinite."""
    shift = jax.lax.clz(step) - (31 - _WORK_BITS)
    field = weight + FLOAT32.bias + _WORK_BITS - shift.astype(jnp.int32)
    normal = (field.astype(jnp.uint32) << _WORK_BITS) | ((step << shift) & ((1 << _WORK_BITS) - 1))
    subnormal = step << jnp.maximum(weight - (1 - FLOAT32.bias - _WORK_BITS), 0).astype(jnp.uint32)
    magnitude = jnp.where(field > 0, normal, subnormal)
    magnitude = jnp.where(field >= (1 << FLOAT32.exponent_bits) - 1, _INFINITY, magnitude)
    return jnp.where(step == 0, 0, magnitude)
