"""Bits that a draft and its target read per stored value, with bitmap, sign, coded exponent, codebook and mantissa.

The share of bits that the padding of streams to memory blocks adds is left out: in the architectures that are priced, one
matrix is ten thousand blocks long. Superblock packing has its own model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, UInt16

from hwmodels import ALL_LAYER_MATRICES, Footprint, uniform_weight_bits
from hwmodels.numerics.scalars import Number
from jaxspec.compress.rematerialised import save_for_backward
from jaxspec.formats.patterns import BFLOAT16, BitsRead, NumberFormat
from jaxspec.formats.unary import mean_code_length, weighted_counts
from jaxspec.models.config import kinds_of

#: How the exponents of pruned values are stored: as they are (Cassandra, V-A: "without any further transformation"), or
#: unary-coded with a codebook of their own.
PrunedExponents = Literal["raw", "coded"]

#: A bitmap is stored once anything is pruned. Its soft presence rises with the ratio over this many temperatures.
_BITMAP_RISE = 0.2


class ExponentCounts(NamedTuple):
    """How often each exponent occurs among kept and among pruned values, weighted; those of parts of a tensor add up.

    Attributes:
        pruned: None where pruned exponents are not coded.
    """

    kept: Float[Array, "*b symbol"]
    pruned: Float[Array, "*b symbol"] | None


def count_exponents(
    bits: UInt16[Array, "*b n"],
    kept: Float[Array, "*b n"],
    pruned_exponents: PrunedExponents,
    number_format: NumberFormat = BFLOAT16,
    pruned: Float[Array, "*b n"] | None = None,
) -> ExponentCounts:
    """Of stored patterns.

    Args:
        kept: weight of each value in the draft: 0 or 1, between for a soft mask.
        pruned: weight of each value that it lacks; None: 1 - kept.
    """
    exponents = (bits >> number_format.mantissa_bits) & ((1 << number_format.exponent_bits) - 1)
    count = lambda weight: save_for_backward(weighted_counts(exponents, weight))
    return ExponentCounts(
        count(kept), count(1 - kept if pruned is None else pruned) if pruned_exponents == "coded" else None
    )


def bits_per_value(
    counts: ExponentCounts,
    values: Float[Array, ""] | int,
    cut_bits: Float[Array, "*b"],
    bitmap: Float[Array, "*b"],
    number_format: NumberFormat = BFLOAT16,
) -> BitsRead:
    """Bits per stored value.

    Args:
        values: that were counted.
        cut_bits: mean number of cut mantissa bits.
        bitmap: bits of bitmap per value, 0 to 1.
    Source: Cassandra, IV-B; the 5.11, 13.9 and 11.85 bits of the 40 %/4-bit point follow with a unary length of 2.85.
    """
    share = jnp.sum(counts.kept, axis=-1) / values
    code = mean_code_length(counts.kept)
    draft = bitmap + share * (1 + code + number_format.mantissa_bits - cut_bits)
    if counts.pruned is None:
        pruned = jnp.asarray(float(number_format.total_bits), share.dtype)
    else:
        pruned = number_format.total_bits - number_format.exponent_bits + mean_code_length(counts.pruned)
    return BitsRead(draft, draft + share * cut_bits + (1 - share) * pruned)


def soft_bitmap(prune: Float[Array, "*b"], temperature: Float[Array, ""] | float) -> Float[Array, "*b"]:
    """Bits of bitmap per value: 0 without pruning, 1 with any, a fast rise between.

    Departs from the hard footprint where a ratio is above 0 but prunes less than half a value of a row: nothing is pruned
    there and no bitmap is stored, yet this one tends to 1, so that its slope at 0 holds off ratios that do not pay.
    """
    return -jnp.expm1(-prune / (_BITMAP_RISE * temperature))


def uniform(
    draft_weight_bits: Number,
    target_weight_bits: Number,
    draft_kv_bits: Number = 16.0,
    target_kv_bits: Number = 16.0,
    draft_head_bits: Number = 16.0,
    target_head_bits: Number = 16.0,
) -> Footprint:
    """The same bits for all matrices of the layers, experts among them; embeddings, norms and routers at 16."""
    return Footprint(
        draft_weight_bits=uniform_weight_bits(draft_weight_bits, ALL_LAYER_MATRICES) | {"lm_head": draft_head_bits},
        target_weight_bits=uniform_weight_bits(target_weight_bits, ALL_LAYER_MATRICES) | {"lm_head": target_head_bits},
        draft_kv_bits=draft_kv_bits,
        target_kv_bits=target_kv_bits,
    )


def stored_alike(bits: Number, apart: Mapping[str, Number], kv: Number) -> Footprint:
    """The same bits for draft and target, and for all matrices of the layers but some kinds.

    Args:
        apart: kind of a network's matrix -> its bits. An architecture counts the three matrices of a shared expert as one kind,
            which has their mean.
    """
    shared = [apart.get(kind, bits) for kind in ("shared_gate", "shared_up", "shared_down")]
    kinds = {kind: apart.get(kind, bits) for kind in ALL_LAYER_MATRICES} | {"shared": sum(shared) / len(shared)}
    stored = uniform_weight_bits(16.0) | kinds
    return Footprint(stored, dict(stored), kv, kv)


def measured_footprint(weights: Mapping[str, BitsRead], kv: BitsRead) -> Footprint:
    """What reading a network's own matrices and its KV cache takes."""
    return Footprint(
        draft_weight_bits={kind: bits.draft for kind, bits in weights.items()},
        target_weight_bits={kind: bits.target for kind, bits in weights.items()},
        draft_kv_bits=kv.draft,
        target_kv_bits=kv.target,
    )


def with_head(footprint: Footprint, head: BitsRead) -> Footprint:
    """The same with these bits for the LM head."""
    return dataclasses.replace(
        footprint,
        draft_weight_bits=footprint.draft_weight_bits | {"lm_head": head.draft},
        target_weight_bits=footprint.target_weight_bits | {"lm_head": head.target},
    )


def means_by_kind(bits: Mapping[str, Float[Array, " layer"]]) -> dict[str, Float[Array, ""]]:
    """Mean bits of each of a network's own kinds of matrix, over the layers that have it."""
    return {kind: jnp.mean(jnp.asarray(bits[kind])) for kind in kinds_of(bits)}


def limited_draft_bits(footprint: Footprint) -> list[Float[Array, ""]]:
    """Numbers of bits per weight that a limit of a draft's bits is about: the matrices' mean, and the head's where it is
    compressed."""
    bits = footprint.draft_weight_bits
    return [mean_draft_bits(footprint), *([jnp.asarray(bits["lm_head"])] if "lm_head" in bits else [])]


def mean_draft_bits(footprint: Footprint) -> Float[Array, ""]:
    """Mean bits per weight that a draft step reads, all matrices counted alike."""
    bits = footprint.draft_weight_bits
    return jnp.mean(jnp.concatenate([jnp.asarray(bits[kind]) for kind in kinds_of(bits)]))
