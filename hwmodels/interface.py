"""The few small trees in which networks and hardware meet: workload, footprint, acceptance, draft plan."""

from __future__ import annotations

from collections.abc import Collection

import flax.struct

from hwmodels.architecture import KINDS
from hwmodels.scalars import Leaf, Number, as_float

#: Width of an uncompressed bfloat16 or float16 element.
UNCOMPRESSED_BITS = 16.0


@flax.struct.dataclass
class Workload:
    """What is decoded. Every field is a leaf, "*b"."""

    batch: Leaf = 1.0  # sequences decoded together
    context_tokens: Leaf = 1024.0  # cached tokens per sequence at the step that is priced
    prompt_tokens: Leaf = 512.0  # per sequence, processed by one prefill
    output_tokens: Leaf = 512.0  # per sequence, decoded


@flax.struct.dataclass
class Footprint:
    """Bits READ per stored weight and per stored KV element, by a draft step and by a target step.

    Metadata and padding included. Weights are dictionaries over all of `KINDS`; leaves are "*b", >= 0, fractions too.
    """

    draft_weight_bits: dict[str, Leaf]
    target_weight_bits: dict[str, Leaf]
    draft_kv_bits: Leaf
    target_kv_bits: Leaf


@flax.struct.dataclass
class Acceptance:
    """P(position accepted | all before it accepted), one leaf "*b position" in [0, 1], for draft chains."""

    conditional: Leaf


@flax.struct.dataclass
class DraftPlan:
    """What one cycle drafts and verifies.

    Raises:
        NotImplementedError: `kind` is not "chain".
    """

    draft_length: Leaf  # draft steps per cycle (gamma)
    verify_tokens: Leaf  # tokens of one verification, the last accepted one included
    kind: str = flax.struct.field(pytree_node=False, default="chain")

    def __post_init__(self) -> None:
        if self.kind != "chain":
            raise NotImplementedError(f"draft plan of kind {self.kind!r}: only 'chain' is modelled; use chain_plan")


def chain_plan(draft_length: Number) -> DraftPlan:
    """A chain of `draft_length` ("*b", >= 0) drafted tokens, all verified at once behind the last accepted one."""
    length = as_float(draft_length)
    return DraftPlan(draft_length=length, verify_tokens=length + 1.0)


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
