"""A draft as the cost model sees it: its shapes and how often it runs."""

from __future__ import annotations

import dataclasses

import flax.struct
from jaxtyping import Array, Float

from hwmodels.network.architecture import Architecture
from hwmodels.network.footprint import Footprint
from hwmodels.network.routing import EVERY_EXPERT
from hwmodels.network.workload import Workload
from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.parallel.group import DeviceGroup, held_share
from hwmodels.speculation.plan import Plan, block_plan, chain_plan
from hwmodels.step.capacity import held_bytes

__all__ = ["COMPRESSED_COPY", "DraftCost", "copied_widths", "held_with_draft", "separate_draft_bytes"]


@flax.struct.dataclass
class DraftCost:
    """Shapes of a draft and the forward passes that a draft step takes. Its widths are the footprint's `draft_*`.

    Every field but statement and block is a leaf, "*b", or a tree of leaves.
    """

    architecture: Architecture | None = None  # None: the target's own shapes, a compressed copy of it
    passes: Leaf = 1.0  # forward passes per draft step, >= 0; 0: a lookup, which takes what an engine spends on it
    shares_ends: Leaf = 0.0  # 1: embedding and LM head are the target's, which holds them already; 0: the draft's own
    maps_logits: Leaf = 0.0  # 1: each pass writes its logits into the target's vocabulary, as EAGLE-3 heads in engines
    pool_experts: Leaf = EVERY_EXPERT  # of each layer, the most popular ones, among which a draft step may choose
    separate_weights: Leaf = (
        0.0  # of a draft of the target's shapes; 1: its weights lie beside the target's; 0: within them
    )
    attention_share: Leaf = 1.0  # of the attention blocks of all layers, that a draft step runs
    feed_forward_share: Leaf = 1.0  # of the feed-forward networks of all layers, that a draft step runs
    visible_share: Leaf = 1.0  # of the cached tokens, that a draft step reads
    lookahead_tokens: Leaf = (
        0.0  # per sequence, of the draft's own, that each verification processes beside the drafted ones
    )
    lookahead_visible: Leaf = 1.0  # new tokens that each of them sees on average, itself included
    statement: str = flax.struct.field(pytree_node=False, default="a compressed copy of the target")  # for a reader
    block: bool = flax.struct.field(pytree_node=False, default=False)  # one pass drafts all of a cycle's tokens

    def plan(self, draft_length: Number) -> Plan:
        """The chain of so many tokens as this draft makes it. Arguments: `chain_plan`; of a block: `block_plan`."""
        return (block_plan if self.block else chain_plan)(draft_length)


#: The draft unless another is given: a compressed copy of the target, which runs once per draft step.
COMPRESSED_COPY = DraftCost()


def held_with_draft(
    architecture: Architecture,
    *,
    workload: Workload,
    footprint: Footprint,
    draft_cost: DraftCost,
    group: DeviceGroup | None = None,
) -> Float[Array, "*b"]:
    """Bytes of weights and KV of the target as they are stored, and of a draft's own, on the fullest device.

    Args:
        architecture, workload, footprint, draft_cost, group: leaves "*b"; one device alone unless a group is given.
    """
    copies = copied_widths(footprint, draft_cost)
    share, load = held_share(group, architecture, workload)
    target = held_bytes(
        share,
        batch=load.batch,
        context_tokens=workload.context_tokens,
        shared_tokens=workload.shared_tokens,
        weight_bits={kind: bits + as_float(copies[kind]) for kind, bits in footprint.target_weight_bits.items()},
        kv_bits=footprint.target_kv_bits,
    )
    own, alone = draft_cost.architecture, group if group is None else group.drafting
    if own is not None:
        own, load = held_share(alone, own, workload)
        draft_cost = dataclasses.replace(draft_cost, architecture=own)
    return target.total + separate_draft_bytes(workload=load, footprint=footprint, draft_cost=draft_cost)


def separate_draft_bytes(
    *, workload: Workload, footprint: Footprint, draft_cost: DraftCost, with_table: bool = True
) -> Leaf:
    """Bytes of weights and KV, "*b", of a draft that is a network of its own; 0 for others.

    Args:
        workload, footprint, draft_cost: leaves "*b".
        with_table: static; whether an embedding table that is no head counts: a step reads single rows of it.
    """
    own = draft_cost.architecture
    if own is None:
        return 0.0
    bits, own_ends = footprint.draft_weight_bits, 1.0 - as_float(draft_cost.shares_ends)
    bits = bits | {end: as_float(bits[end]) * own_ends for end in ("embed", "lm_head")}
    if not with_table:
        bits = bits | {"embed": bits["embed"] * as_float(own.tied_embeddings)}
    return held_bytes(
        own,
        batch=workload.batch,
        context_tokens=workload.context_tokens,
        shared_tokens=workload.shared_tokens,
        weight_bits=bits,
        kv_bits=footprint.draft_kv_bits,
    ).total


def copied_widths(footprint: Footprint, draft_cost: DraftCost) -> dict[str, Leaf]:
    """Kind -> bits, "*b", of a copy of each weight of the target that only the draft reads: 0 unless it is stored apart."""
    apart = as_float(draft_cost.separate_weights) if draft_cost.architecture is None else 0.0
    return {kind: apart * as_float(bits) for kind, bits in footprint.draft_weight_bits.items()}
