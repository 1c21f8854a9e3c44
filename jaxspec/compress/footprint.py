"""Bits that a draft and its target read per stored value, with bitmap, sign, coded exponent, codebook and mantissa.

The share of bits that the padding of streams to memory blocks adds is left out: in the architectures that are priced, one
matrix is ten thousand blocks long. Superblock packing has its own model.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float, UInt16

from hwmodels import ALL_LAYER_MATRICES, Footprint, uniform_weight_bits
from hwmodels.numerics.scalars import Number
from jaxspec.formats.patterns import BFLOAT16
from jaxspec.formats.unary import mean_code_length, weighted_counts
from jaxspec.models.config import kinds_of

#: How the exponents of pruned values are stored: as they are (Cassandra, V-A: "without any further transformation"), or
#: unary-coded with a codebook of their own.
PrunedExponents = Literal["raw", "coded"]

#: A bitmap is stored once anything is pruned. Its soft presence rises with the ratio over this many temperatures.
_BITMAP_RISE = 0.2


def _exponents(bits: UInt16[Array, "*b"]) -> UInt16[Array, "*b"]:
    return (bits >> BFLOAT16.mantissa_bits) & 0xFF


def speculation_bits(
    bits: UInt16[Array, "*b n"],
    kept: Float[Array, "*b n"],
    cut_bits: Float[Array, "*b"],
    bitmap: Float[Array, "*b"],
) -> Float[Array, "*b"]:
    """Bits per stored bfloat16 value that one draft step reads, from the values themselves.

    Args:
        bits: stored patterns.
        kept: weight of each value in the draft: 0 or 1, between for a soft mask.
        cut_bits: mean number of cut mantissa bits.
        bitmap: bits of bitmap per value, 0 to 1.
    Source: Cassandra, IV-B.
    """
    code = mean_code_length(weighted_counts(_exponents(bits), kept))
    return bitmap + jnp.mean(kept, axis=-1) * (1 + code + BFLOAT16.mantissa_bits - cut_bits)


def verification_bits(
    bits: UInt16[Array, "*b n"],
    kept: Float[Array, "*b n"],
    cut_bits: Float[Array, "*b"],
    pruned_exponents: PrunedExponents,
) -> Float[Array, "*b"]:
    """Bits per stored bfloat16 value that a verification reads beyond those of a draft step.

    Args: as for `speculation_bits`.
    Source: Cassandra, IV-B; the 13.9 and 11.85 bits of the 40 %/4-bit point follow with a unary length of 2.85.
    """
    share = jnp.mean(kept, axis=-1)
    if pruned_exponents == "raw":
        pruned = jnp.asarray(float(BFLOAT16.total_bits), share.dtype)
    else:
        coded = mean_code_length(weighted_counts(_exponents(bits), 1 - kept))
        pruned = BFLOAT16.total_bits - BFLOAT16.exponent_bits + coded
    return share * cut_bits + (1 - share) * pruned


def soft_bitmap(prune: Float[Array, "*b"], temperature: Float[Array, ""] | float) -> Float[Array, "*b"]:
    """Bits of bitmap per value: 0 without pruning, 1 with any, a fast rise between.

    Departs from the hard footprint where a ratio is above 0 but prunes less than half a value of a row: nothing is pruned
    there and no bitmap is stored, yet this one tends to 1, so that its slope at 0 holds off ratios that do not pay.
    """
    return -jnp.expm1(-prune / (_BITMAP_RISE * temperature))


def uniform(draft: Number, target: Number, draft_kv: Number = 16.0, target_kv: Number = 16.0) -> Footprint:
    """The same bits for all matrices of the layers, experts among them; embeddings, norms, routers and head at 16."""
    return Footprint(
        draft_weight_bits=uniform_weight_bits(draft, ALL_LAYER_MATRICES),
        target_weight_bits=uniform_weight_bits(target, ALL_LAYER_MATRICES),
        draft_kv_bits=draft_kv,
        target_kv_bits=target_kv,
    )


def of_weights(draft: dict[str, Array], target: dict[str, Array]) -> Footprint:
    """A footprint that tells of weights alone."""
    return Footprint(draft_weight_bits=draft, target_weight_bits=target, draft_kv_bits=None, target_kv_bits=None)


def of_kv(draft: Array, target: Array) -> Footprint:
    """A footprint that tells of the KV cache alone."""
    return Footprint(draft_weight_bits={}, target_weight_bits={}, draft_kv_bits=draft, target_kv_bits=target)


def joined(weights: Footprint, kv: Footprint) -> Footprint:
    """Weights of the one, KV of the other."""
    return dataclasses.replace(weights, draft_kv_bits=kv.draft_kv_bits, target_kv_bits=kv.target_kv_bits)


def by_kind(bits: dict[str, Float[Array, " layer"]]) -> Float[Array, "layer kind"]:
    """Bits of a network's own matrices as one array."""
    return jnp.stack([jnp.asarray(bits[kind]) for kind in kinds_of(bits)], axis=-1)


def mean_draft_bits(footprint: Footprint) -> Float[Array, ""]:
    """Mean bits per weight that a draft step reads, all matrices counted alike."""
    return jnp.mean(by_kind(footprint.draft_weight_bits))
