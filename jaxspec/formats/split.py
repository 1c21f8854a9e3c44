"""Speculation data and verification data of a bfloat16 tensor: disjoint, and together the stored tensor bit for bit."""

from __future__ import annotations

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, BFloat16, Bool, Int, UInt16

from jaxspec.formats.bfloat16 import from_bits, high_part, low_part, to_bits


@struct.dataclass
class SplitTensor:
    """A tensor in two parts (Cassandra, IV-A).

    Attributes:
        kept: the bitmap; True where a value is speculation data.
        speculation: high bits of the kept values, zero elsewhere: the draft's values as they stand.
        verification: everything else: the cut bits of the kept values, the pruned values whole.
    """

    kept: Bool[Array, "*b"]
    speculation: UInt16[Array, "*b"]
    verification: UInt16[Array, "*b"]


def split_tensor(x: BFloat16[Array, "*b"], kept: Bool[Array, "*b"], cut_bits: Int[Array, "*b"] | int) -> SplitTensor:
    """Divide a tensor by a bitmap and a number of cut mantissa bits (0 to 7, broadcast against x)."""
    bits = to_bits(x)
    zero = jnp.uint16(0)
    return SplitTensor(
        kept=kept,
        speculation=jnp.where(kept, high_part(bits, cut_bits), zero),
        verification=jnp.where(kept, low_part(bits, cut_bits), bits),
    )


def draft_values(parts: SplitTensor) -> BFloat16[Array, "*b"]:
    """What the draft computes with: speculation data, zero-filled."""
    return from_bits(parts.speculation)


def join_tensor(parts: SplitTensor) -> BFloat16[Array, "*b"]:
    """The stored tensor, bit for bit."""
    return from_bits(jnp.where(parts.kept, parts.speculation | parts.verification, parts.verification))
