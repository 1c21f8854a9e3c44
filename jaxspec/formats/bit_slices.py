"""INT8 weights in an MSB and an LSB slice: the draft reads the first, with its missing low bits augmented, the target both.

Source: ELMoE-3D (arXiv:2604.14626), 4.3 and Fig. 8, where both slices have 4 bits; here the MSB slice may have 2 to 6.

With b draft bits and L = 2^(8−b), an INT8 weight w is L·m + l: m signed in b bits, l in 0 to L − 1. The draft may take m for:

    truncation     L·m                                error w − L·m       =  l        in 0 to L − 1
    rounding       L·m', m' = ⌊(w + L/2) / L⌋         error w − L·m'                  in −L/2 to L/2 − 1
    augmentation   field m‖1, L/2·(2m + 1) = L·m + L/2    error w − L·m − L/2 =  l − L/2  in −L/2 to L/2 − 1

Augmentation costs nothing: the exact weight is the field m‖0, worth L·m, plus the slice 0‖l, and m is the same in both.
Rounding changes m: its residual is negative for about half of the weights and then does not fit the unsigned LSB slice, and
from w = 128 − L/2 up m' would be 2^(b−1), which b bits do not hold.
"""

from __future__ import annotations

from typing import Literal, get_args

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Float16, Int, Int8, Int16, UInt8

from jaxspec.checks import known_value
from jaxspec.formats import group_quantization
from jaxspec.formats.patterns import BitsRead

__all__ = [
    "GROUP_SIZE",
    "WEIGHT_BITS",
    "Int8Groups",
    "Reading",
    "Slices",
    "decode",
    "decode_draft",
    "encode",
    "expected_bits",
    "join",
    "mean_squared_error",
    "num_bits",
    "of_rows",
    "read_draft",
    "split",
]

#: Of a whole weight: both slices together.
WEIGHT_BITS = 8

#: Weights of a row that share a scale.
GROUP_SIZE = 32

#: How a draft reads the most significant slice alone.
Reading = Literal["truncation", "rounding", "augmentation"]


@struct.dataclass
class Int8Groups:
    """Symmetric INT8 weights with one float16 scale per group of consecutive elements."""

    values: Int8[Array, "*b n"]
    scales: Float16[Array, "*b groups"]
    group_size: int = struct.field(pytree_node=False, default=GROUP_SIZE)


@struct.dataclass
class Slices:
    """The two slices of INT8 weights: m in −2^(b−1) to 2^(b−1) − 1, l in 0 to 2^(8−b) − 1."""

    msb: Int8[Array, "*b"]
    lsb: UInt8[Array, "*b"]
    draft_bits: int = struct.field(pytree_node=False)


def encode(x: Float[Array, "*b n"], *, group_size: int = GROUP_SIZE) -> Int8Groups:
    """Symmetric INT8 in groups along the last axis: scale = largest magnitude / 127, values in −127 to 127.

    Raises:
        ValueError: n is no multiple of the group size.
    Source: ELMoE-3D, 4.3 (group size 32, symmetric INT8, FP16 scales). The rounding is not printed: that of Q8_0, see
        `jaxspec.formats.group_quantization`, which also says what happens to tiny and huge scales and to gradients.
    """
    quantized = group_quantization.encode(x, "int8", group_size=group_size)
    return Int8Groups(quantized.codes, quantized.scales, group_size)


def of_rows(rows: Float[Array, "*b column"], *, group_size: int = GROUP_SIZE) -> Int8Groups:
    """`encode` of rows of any length, each filled up with zeros to whole groups: no scale feels them."""
    pad = [(0, 0)] * (rows.ndim - 1) + [(0, -rows.shape[-1] % group_size)]
    return encode(jnp.pad(rows, pad), group_size=group_size)


def decode(groups: Int8Groups) -> Float[Array, "*b n"]:
    """The target's weights in float32."""
    return _scaled(groups.values, groups)


def decode_draft(
    groups: Int8Groups, reading: Reading = "augmentation", *, draft_bits: int | Int[Array, ""] = 4
) -> Float[Array, "*b n"]:
    """The draft's weights in float32: the MSB slice as one of the readings takes it, on the target's own scales."""
    return _scaled(read_draft(groups.values, reading, draft_bits=draft_bits), groups)


def _scaled(integers: Int8[Array, "*b n"] | Int16[Array, "*b n"], groups: Int8Groups) -> Float[Array, "*b n"]:
    rows = integers.astype(jnp.float32).reshape(*groups.scales.shape, groups.group_size)
    return (rows * groups.scales.astype(jnp.float32)[..., None]).reshape(integers.shape)


def split(values: Int8[Array, "*b"], *, draft_bits: int = 4) -> Slices:
    """The high `draft_bits` bits, signed, and the rest, unsigned.

    Raises:
        ValueError: `draft_bits` outside 2 to 6, or values that are not int8.
    """
    low_bits = WEIGHT_BITS - _checked(draft_bits)
    if values.dtype != jnp.int8:
        raise ValueError(f"values of type {values.dtype}; slices are those of int8: use `encode` first")
    lsb = values.astype(jnp.uint8) & ((1 << low_bits) - 1)
    return Slices(values >> low_bits, lsb, draft_bits)


def join(slices: Slices) -> Int8[Array, "*b"]:
    """The weights, bit for bit: what verification computes with."""
    return (slices.msb << (WEIGHT_BITS - slices.draft_bits)) | slices.lsb.astype(jnp.int8)


def read_draft(
    values: Int8[Array, "*b"], reading: Reading = "augmentation", *, draft_bits: int | Int[Array, ""] = 4
) -> Int16[Array, "*b"]:
    """The weight that the draft computes with, in steps of the INT8 grid.

    Args:
        draft_bits: may be traced; its range is not checked then.
    Raises:
        ValueError: unknown reading, or `draft_bits` outside 2 to 6.
    """
    if reading not in get_args(Reading):
        raise ValueError(f"reading {reading!r}; allowed are {get_args(Reading)}")
    bits = draft_bits if known_value(draft_bits) is None else _checked(int(draft_bits))
    low_bits = jnp.asarray(WEIGHT_BITS - bits, jnp.int16)
    wide, half = values.astype(jnp.int16), jnp.int16(1) << (low_bits - 1)
    if reading == "rounding":
        return jnp.minimum((wide + half) >> low_bits, (jnp.int16(128) >> low_bits) - 1) << low_bits
    cut = (wide >> low_bits) << low_bits
    return cut + half if reading == "augmentation" else cut


def mean_squared_error(draft_bits: Float[Array, "*b"], reading: Reading = "augmentation") -> Float[Array, "*b"]:
    """Mean squared error of a reading when all low bits are equally likely, in squared steps of the INT8 grid.

    With L = 2^(8−b): truncation (L − 1)(2L − 1)/6; rounding and augmentation (L² + 2)/12, a quarter of it for large L.
    Smooth in a fractional b, exact at whole ones. Of rounding the weights from 128 − L/2 up are left out, which it holds back.

    Raises:
        ValueError: unknown reading.
    Source: derived from the algebra of the slices; times the squared scale it is the error of a weight.
    """
    if reading not in get_args(Reading):
        raise ValueError(f"reading {reading!r}; allowed are {get_args(Reading)}")
    steps = jnp.exp2(WEIGHT_BITS - draft_bits)
    if reading == "truncation":
        return (steps - 1) * (2 * steps - 1) / 6
    return (steps**2 + 2) / 12


def num_bits(groups: Int8Groups, *, draft_bits: int = 4) -> BitsRead:
    """Bits of the MSB slice with the scales, which the draft reads, and of both: 8.5 per weight in groups of 32.

    Raises:
        ValueError: `draft_bits` outside 2 to 6.
    """
    draft = groups.values.size * _checked(draft_bits) + groups.scales.size * group_quantization.SCALE_BITS
    return BitsRead(draft, draft + groups.values.size * (WEIGHT_BITS - draft_bits))


def expected_bits(
    num_values: Float[Array, "*#b"] | float, draft_bits: Float[Array, "*#b"] | float, *, group_size: int = GROUP_SIZE
) -> BitsRead:
    """The same at a fractional draft width, interpolated between whole ones: linear in both, without kinks."""
    draft = group_quantization.expected_bits(num_values, draft_bits, group_size=group_size)
    return BitsRead(draft, draft + num_values * (WEIGHT_BITS - draft_bits))


def _checked(draft_bits: int) -> int:
    if not 2 <= draft_bits <= 6:
        raise ValueError(f"draft_bits {draft_bits}; allowed are 2 to 6, so that either slice has at least 2 bits")
    return draft_bits
