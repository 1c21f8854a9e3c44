"""Integer codes with one float16 scale per group: llama.cpp's Q4_0 (to the byte) and Q8_0, symmetric INT4/INT8, code tables.

Source: "Scaling LLM Test-Time Compute with Mobile NPU on Smartphones", 5.1.2 and 7.1; the arithmetic and the bytes are
those of llama.cpp, ggml-quants.c (`quantize_row_q4_0_ref`, `quantize_row_q8_0_ref`) and ggml-common.h (`block_q4_0`).

A group's scale d is stored in float16, but its codes come from x · (1/d) with d in float32, as there. What float16 does to d:
from 65,520 up it is infinite and the group decodes to infinities and NaN; below 2⁻¹⁴ it loses bits, and from 2⁻²⁵ down it
is zero and so is the decoded group. A d that is subnormal in float32 counts as zero (llama.cpp's result is then undefined).
"""

from __future__ import annotations

from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float, Float16, Int8, UInt8

from jaxspec.formats import code_tables
from jaxspec.formats.code_tables import INT4, CodeTable

__all__ = [
    "GroupQuantized",
    "Scheme",
    "decode",
    "encode",
    "expected_bits",
    "num_bits",
    "pack_q4_0",
    "to_float16",
]

#: "q8_0" is "int8" in groups of 32; "q4_0" uses the range −8 to 7 where "int4" uses −7 to 7.
Scheme = Literal["q4_0", "q8_0", "int4", "int8"]

BLOCK = 32  # elements of a Q4_0 or Q8_0 block

SCALE_BITS = 16

SMALLEST_NORMAL = np.finfo(np.float32).smallest_normal


def _reached_by_sum(level: int) -> np.float32:
    """The smallest float32 y for which y + 8.5, rounded to float32, is at least `level`."""
    y = np.float32(level - 8.5)
    while (below := np.nextafter(y, np.float32(-np.inf))) + np.float32(8.5) >= level:
        y = below
    return y


# llama.cpp truncates y + 8.5 in float32, which lifts some y just below a tie. Comparing with the y where that sum reaches
# 1, 2, ... 15 says the same without a sum, which a compiler may fuse with the product before it and so round otherwise:
# where llama.cpp itself is built that way, such a y keeps the lower code.
_Q4_0_THRESHOLDS = np.array([_reached_by_sum(level) for level in range(1, 16)])


@struct.dataclass
class GroupQuantized:
    """Codes and scales; groups are consecutive along the last axis.

    Attributes:
        codes: "*b n"; with a table uint8 in 0 to 15, without one int8 multiples of the scale.
        scales: "*b groups".
        table: what the codes stand for (Q4_0: INT4); None if they are integers.
        code_bits: bits of a stored code.
        group_size: elements that share a scale.
    """

    codes: UInt8[Array, "*b n"] | Int8[Array, "*b n"]
    scales: Float16[Array, "*b groups"]
    table: CodeTable | None = struct.field(pytree_node=False)
    code_bits: int = struct.field(pytree_node=False)
    group_size: int = struct.field(pytree_node=False)


def to_float16(x: Float[Array, "*b"]) -> Float16[Array, "*b"]:
    """Rounded to the nearest float16, ties to even; the rounding also holds where a compiler sees it undone right after."""
    # XLA may drop a conversion to float16 and back ("excess precision"), and a scale would stay unrounded.
    return jax.lax.optimization_barrier(x.astype(jnp.float16))


def encode(
    x: Float[Array, "*b n"], scheme: Scheme | CodeTable = "q4_0", *, group_size: int | None = BLOCK
) -> GroupQuantized:
    """Quantize groups of consecutive elements, each with its own scale.

    The scale is, with m the group's largest magnitude and v its first value of that magnitude:
    "q4_0": v / −8, code ⌊x/d + 8.5⌋ at most 15 (ties up); "q8_0", "int8": m / 127 and "int4": m / 7, code x/d rounded, ties
    away from zero; a table: v over its outermost level, or m if ±that level are both in it, code of the nearest level.

    Args:
        x: finite; computed in float32. Infinities and NaN are not modelled.
        scheme: static.
        group_size: static; "q4_0" and "q8_0" have 32. None: the whole last axis, one scale per channel.
    Returns:
        Codes are piecewise constant in x (no gradient); scales have the gradient of the group's largest magnitude, with
        the rounding to float16 passed straight through.
    Raises:
        ValueError: unknown scheme, group size out of range or not that of the block, n no multiple of it.
    Departs: for IQ4_NL llama.cpp goes on to search scales near this one and to fit by least squares.
    """
    if not isinstance(scheme, CodeTable) and scheme not in get_args(Scheme):
        raise ValueError(f"scheme {scheme!r}; allowed are {get_args(Scheme)} and a CodeTable")
    size = x.shape[-1] if group_size is None else group_size
    if scheme in ("q4_0", "q8_0") and size != BLOCK:
        raise ValueError(f"{scheme} in groups of {size}; it has {BLOCK}: use 'int8' or code_tables.INT4 for others")
    if size < 1 or x.shape[-1] % size:
        raise ValueError(f"{x.shape[-1]} elements in groups of {size}; pad the last axis to a multiple of a size >= 1")
    groups = x.astype(jnp.float32).reshape(*x.shape[:-1], x.shape[-1] // size, size)
    # Where the sign counts, it is that of the first of equal magnitudes.
    first = lambda: jnp.take_along_axis(groups, jnp.argmax(jnp.abs(groups), axis=-1, keepdims=True), axis=-1)
    table, bits = None, 8
    if scheme == "q4_0":
        extreme = first()
        # A group of zeros has the scale −0.0, as in llama.cpp.
        scale = jnp.where(extreme != 0, extreme, 0.0) / -8
        thresholds = jax.lax.broadcast_to_rank(jnp.asarray(_Q4_0_THRESHOLDS), groups.ndim + 1)
        reached = _times_inverse(groups, scale)[..., None] >= thresholds
        codes, table, bits = jnp.sum(reached, axis=-1, dtype=jnp.uint8), INT4, code_tables.CODE_BITS
    elif isinstance(scheme, CodeTable):
        highest, lowest, extreme = max(scheme.levels), min(scheme.levels), first()
        if highest == -lowest:
            scale = _quotient(jnp.abs(extreme), highest)
        else:
            scale = _quotient(extreme, max(highest, lowest, key=abs))
        codes, table = code_tables.encode(_times_inverse(groups, scale), scheme), scheme
        bits = code_tables.CODE_BITS
    else:
        bits = 4 if scheme == "int4" else 8
        scale = _quotient(jnp.max(jnp.abs(groups), axis=-1, keepdims=True), 2 ** (bits - 1) - 1)
        codes = _rounded(_times_inverse(groups, scale)).astype(jnp.int8)
    return GroupQuantized(codes.reshape(x.shape), to_float16(scale[..., 0]), table, bits, size)


def _quotient(x: Float[Array, "*b"], divisor: float) -> Float[Array, "*b"]:
    """x / divisor, zero where x is."""
    # By a plain constant XLA multiplies with its reciprocal, which is off by one unit in 4 % of the quotients by 127.
    return x / jnp.where(x != 0, jnp.float32(divisor), jnp.float32(1))


def _times_inverse(groups: Float[Array, "*b g n"], scale: Float[Array, "*b g 1"]) -> Float[Array, "*b g n"]:
    """Values times 1 / scale, both rounded to float32; zero where the scale is."""
    usable = jnp.abs(scale) >= SMALLEST_NORMAL
    return groups * jnp.where(usable, 1 / jnp.where(usable, scale, 1.0), 0.0)


def _rounded(y: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """To the nearest integer, ties away from zero; compared and not added to y, for the reason given at the thresholds."""
    magnitude = jnp.abs(y)
    whole = jnp.floor(magnitude)
    nearest = whole + (magnitude >= whole + 0.5).astype(jnp.float32)
    return jnp.where(y < 0, -nearest, nearest)


def decode(quantized: GroupQuantized) -> Float[Array, "*b n"]:
    """Level times scale in float32; linear in the scales."""
    codes, scales, table = quantized.codes, quantized.scales, quantized.table
    integer = codes.astype(jnp.float32) if table is None else code_tables.decode(codes, table)
    groups = integer.reshape(*scales.shape, quantized.group_size)
    return (groups * scales.astype(jnp.float32)[..., None]).reshape(codes.shape)


def num_bits(quantized: GroupQuantized) -> int:
    """Bits of codes and scales; for Q4_0 4.5, for Q8_0 8.5 per element. A table is the decoder's and not counted."""
    return quantized.codes.size * quantized.code_bits + quantized.scales.size * SCALE_BITS


def expected_bits(
    num_values: Float[Array, "*#b"] | float,
    code_bits: Float[Array, "*#b"] | float,
    *,
    group_size: Float[Array, "*#b"] | float = BLOCK,
) -> Float[Array, "*b"] | float:
    """Bits of so many elements at a fractional code width: smooth in all three, without kinks for positive group sizes.

    Args:
        num_values: elements, padding included.
        code_bits: between two whole widths the linear interpolation of their sizes.
        group_size: elements per scale; may be fractional.
    """
    return num_values * (code_bits + SCALE_BITS / group_size)


def pack_q4_0(quantized: GroupQuantized) -> UInt8[Array, "*b groups 18"]:
    """Blocks of 18 bytes: the scale, low byte first; then byte i holds element i low and element i + 16 high.

    Raises:
        ValueError: not Q4_0.
    """
    if quantized.table != INT4 or quantized.group_size != BLOCK:
        raise ValueError(f"{_describe(quantized)}; Q4_0 blocks hold 32 codes of table 'int4': encode with 'q4_0'")
    low, high = jnp.split(quantized.codes.reshape(*quantized.scales.shape, BLOCK), 2, axis=-1)
    return jnp.concatenate([jax.lax.bitcast_convert_type(quantized.scales, jnp.uint8), low | (high << 4)], axis=-1)


def _describe(quantized: GroupQuantized) -> str:
    name = quantized.table.name if quantized.table else "integers"
    return f"groups of {quantized.group_size} codes of {quantized.code_bits} bits ({name})"
