"""Speculation data and verification data of a tensor: disjoint, and together the stored tensor bit for bit."""

from __future__ import annotations

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int, UInt

from jaxspec.formats.patterns import NumberFormat, format_of, from_bits, to_bits
from jaxspec.formats.truncation import high_part, low_part

__all__ = ["SplitTensor", "draft_values", "join_tensor", "split_tensor"]


@struct.dataclass
class SplitTensor:
    """A tensor in two parts (Cassandra, IV-A).

    Attributes:
        kept: the bitmap; True where a value is speculation data.
        speculation: high bits of the kept values, zero elsewhere: the draft's values as they stand.
        verification: everything else: the cut bits of the kept values, the pruned values whole.
        number_format: static; of the stored tensor.
    """

    kept: Bool[Array, "*b"]
    speculation: UInt[Array, "*b"]
    verification: UInt[Array, "*b"]
    number_format: NumberFormat = struct.field(pytree_node=False)


def split_tensor(x: Float[Array, "*b"], kept: Bool[Array, "*b"], cut_bits: Int[Array, "*#b"] | int) -> SplitTensor:
    """Divide a tensor by a bitmap and a number of cut mantissa bits.

    Args:
        x: bfloat16, float16 or float32.
        cut_bits: 0 to the format's mantissa bits, broadcast against x; it may be traced.
    Raises:
        ValueError: int8 or another dtype, or a cut that is known and out of range.
    """
    number_format = format_of(x.dtype)
    bits = to_bits(x)
    zero = jnp.zeros((), bits.dtype)
    return SplitTensor(
        kept=kept,
        speculation=jnp.where(kept, high_part(bits, cut_bits, number_format=number_format), zero),
        verification=jnp.where(kept, low_part(bits, cut_bits, number_format=number_format), bits),
        number_format=number_format,
    )


def draft_values(parts: SplitTensor) -> Float[Array, "*b"]:
    """What the draft computes with: speculation data, zero-filled. No gradient passes, as bits are cut from patterns."""
    return from_bits(parts.speculation, parts.number_format)


def join_tensor(parts: SplitTensor) -> Float[Array, "*b"]:
    """The stored tensor, bit for bit."""
    whole = jnp.where(parts.kept, parts.speculation | parts.verification, parts.verification)
    return from_bits(whole, parts.number_format)
