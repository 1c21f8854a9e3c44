"""Bits read per stored weight and per stored KV element: the one type for bits."""

from __future__ import annotations

from collections.abc import Collection

import flax.struct

from hwmodels.network.architecture import KINDS
from hwmodels.numerics.scalars import Leaf, Number, as_float

#: Width of an uncompressed bfloat16 or float16 element.
UNCOMPRESSED_BITS = 16.0


@flax.struct.dataclass
class Footprint:
    """Bits READ per stored weight and per stored KV element, by a draft step and by a target step.

    Metadata and padding included. Weights are dictionaries over all of `KINDS`; leaves are "*b", >= 0, fractions too.
    """

    draft_weight_bits: dict[str, Leaf]
    target_weight_bits: dict[str, Leaf]
    draft_kv_bits: Leaf
    target_kv_bits: Leaf


def uniform_weight_bits(bits: Number, kinds: Collection[str] = KINDS) -> dict[str, Leaf]:
    """The same width for some kinds, 16 bits for all others.

    Args:
        bits: "*b", bits read per stored weight of the kinds named.
        kinds: names out of `KINDS`, all unless given; `LAYER_MATRICES` leaves embeddings, norms and head at 16 bits.
    Returns:
        kind -> "*b", over all of `KINDS`.
    Raises:
        ValueError: a name is not in `KINDS`.
    """
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown:
        raise ValueError(f"unknown kinds {unknown}; allowed: {', '.join(KINDS)}")
    return {kind: as_float(bits) if kind in kinds else UNCOMPRESSED_BITS for kind in KINDS}


def uniform_footprint(bits: Number) -> Footprint:
    """Draft and target, weights and KV, all at `bits` ("*b") per element; 16 is the uncompressed network."""
    return Footprint(
        draft_weight_bits=uniform_weight_bits(bits),
        target_weight_bits=uniform_weight_bits(bits),
        draft_kv_bits=as_float(bits),
        target_kv_bits=as_float(bits),
    )
