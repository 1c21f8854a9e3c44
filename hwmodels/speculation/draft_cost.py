"""A draft as the cost model sees it: its shapes and how often it runs."""

from __future__ import annotations

import dataclasses

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.device import Device
from hwmodels.memory.placement import placement_of
from hwmodels.network.architecture import Architecture, Footprint, Workload
from hwmodels.network.operators import draft_step, step_operators
from hwmodels.network.routing import EVERY_EXPERT, UNIFORM, Routing
from hwmodels.numerics.fields import AMOUNT, CHANCE, NOT_NEGATIVE, Rule, check_number, number, part
from hwmodels.numerics.scalars import Leaf, Number, as_float, either
from hwmodels.parallel.group import DeviceGroup, held_share
from hwmodels.speculation.plan import Plan, block_plan, chain_plan
from hwmodels.step.capacity import held_bytes

__all__ = [
    "COMPRESSED_COPY",
    "EAGLE3_VOCABULARY",
    "DraftCost",
    "block_head",
    "copied_widths",
    "eagle_head",
    "fitting_pool",
    "held_with_draft",
    "medusa_head",
    "multi_token_head",
    "one_layer",
    "separate_draft_bytes",
    "with_pool",
]


#: Of experts to choose among: none where a network has none, and infinitely many are all.
_POOL = Rule("a number >= 0", lambda value: value >= 0)


@flax.struct.dataclass
class DraftCost:
    """Shapes of a draft and the forward passes that a draft step takes. Its widths are the footprint's `draft_*`.

    Every field but statement and block is a leaf, "*b", or a tree of leaves.
    """

    #: None: the target's own shapes, a compressed copy of it.
    architecture: Architecture | None = part(Architecture, default=None)
    #: Forward passes per draft step, >= 0; 0: a lookup, which takes what an engine spends on it.
    passes: Leaf = number(NOT_NEGATIVE, default=1.0)
    #: 1: embedding and LM head are the target's, which holds them already; 0: the draft's own.
    shares_ends: Leaf = number(CHANCE, default=0.0)
    #: 1: each pass writes its logits into the target's vocabulary, as EAGLE-3 heads in engines.
    maps_logits: Leaf = number(CHANCE, default=0.0)
    #: Of each layer, the most popular ones, among which a draft step may choose.
    pool_experts: Leaf = number(_POOL, default=EVERY_EXPERT)
    #: Of a draft of the target's shapes; 1: its weights lie beside the target's; 0: within them.
    separate_weights: Leaf = number(CHANCE, default=0.0)
    attention_share: Leaf = number(CHANCE, default=1.0)  # of the attention blocks of all layers, that a draft step runs
    feed_forward_share: Leaf = number(CHANCE, default=1.0)  # of the feed-forward networks, likewise
    visible_share: Leaf = number(CHANCE, default=1.0)  # of the cached tokens, that a draft step reads
    #: Per sequence, of the draft's own, that each verification processes beside the drafted ones.
    lookahead_tokens: Leaf = number(NOT_NEGATIVE, default=0.0)
    lookahead_visible: Leaf = number(AMOUNT, default=1.0)  # new tokens that each sees on average, itself included
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


# Shapes of draft heads that are trained for a target, from the target's own shapes.

#: Rows of an EAGLE-3 head's own vocabulary; that of the head for Llama-3.1-8B (config.json: draft_vocab_size).
EAGLE3_VOCABULARY = 32_000.0

#: Features of the hidden size that a head's projection reads: those of a token and of the target's hidden state.
_PROJECTED = 2.0


def eagle_head(target: Architecture, vocabulary: float | None = None) -> DraftCost:
    """An EAGLE head: one layer of the target's behind a projection of token and feature, and a head.

    Args:
        target: leaves are single numbers.
        vocabulary: rows of its own head, whose logits are mapped to the target's; None, or as many as the target's: the
            target's head.
    Source: Li et al. 2024, arXiv:2401.15077, Sec. 3.1; EAGLE-3, arXiv:2503.01840, for a vocabulary of its own.
    """
    check_number("vocabulary", target.vocab_size if vocabulary is None else vocabulary, AMOUNT)
    rows = float(target.vocab_size) if vocabulary is None else min(vocabulary, float(target.vocab_size))
    return DraftCost(
        architecture=one_layer(target, rows),
        shares_ends=float(rows == float(target.vocab_size)),
        maps_logits=float(rows != float(target.vocab_size)),
        statement="one layer of the target's, with a projection and a head",
    )


def multi_token_head(target: Architecture) -> DraftCost:
    """A network's own head for further tokens: one layer behind a projection; embedding and head are the target's.

    Source: DeepSeek-V3, arXiv:2412.19437, Sec. 2.2.
    """
    return DraftCost(
        architecture=one_layer(target, target.vocab_size),
        shares_ends=1.0,
        statement="one layer of the target's, with a projection",
    )


def medusa_head(target: Architecture, blocks: Leaf = 1.0) -> DraftCost:
    """A Medusa head for each drafted token: residual blocks and an LM head of its own, without attention.

    A block's matrix is as many weights as the hidden size has rows of the LM head. Of memory, one head is counted.

    Args:
        blocks: of each head.
    Source: Cai et al. 2024, arXiv:2401.10774, Sec. 2.1.
    """
    check_number("blocks", blocks, NOT_NEGATIVE)
    own = one_layer(target, target.vocab_size + blocks * target.hidden_size)
    return DraftCost(
        # Tied, so that no table of embeddings lies beside the head.
        architecture=dataclasses.replace(own, num_layers=0.0, tied_embeddings=1.0),
        statement="Medusa heads: residual blocks and an LM head of its own for each token; memory counts one",
    )


#: Layers of released block drafters: DFlash's for Qwen3.5-27B has 3.46 GB in 16 bits, which are five of the target's layers.
_BLOCK_LAYERS = 5.0


def block_head(target: Architecture, layers: Leaf = _BLOCK_LAYERS) -> DraftCost:
    """A drafter that proposes a block of tokens in one pass: few layers of the target's; embedding and head are the target's.

    One projection joins the features of as many of the target's layers as the drafter has. Its attention has no gates.
    Source: DFlash, arXiv:2602.06036, Sec. 4; the drafter for Qwen3.5-4B, whose projection is 2,560 x 12,800.
    """
    head = one_layer(target, target.vocab_size, projected=1.0)
    return DraftCost(
        architecture=dataclasses.replace(head, num_layers=layers, attention_gate=0.0),
        shares_ends=1.0,
        statement="a block drafter of few layers of the target's",
        block=True,
    )


def one_layer(target: Architecture, vocabulary: Leaf, projected: float = _PROJECTED) -> Architecture:
    """One dense layer of the target's shapes, which attends to a cache, with a head.

    The projection is counted into the feed-forward network.

    Args:
        vocabulary: rows of the head.
        projected: features of the hidden size that the projection reads for each layer.
    """
    width = target.intermediate_size or target.expert_intermediate_size * target.experts_per_token
    matrices = 2.0 + float(target.gated_ffn)
    return dataclasses.replace(
        target,
        num_layers=1.0,
        vocab_size=vocabulary,
        tied_embeddings=0.0,
        intermediate_size=width + projected * target.hidden_size / matrices,
        num_ffn_layers=0.0,
        num_moe_layers=0.0,
        num_experts=0.0,
        experts_per_token=0.0,
        expert_intermediate_size=0.0,
        shared_intermediate_size=0.0,
        expert_hidden_size=0.0,
        num_window_layers=0.0,
        window_tokens=0.0,
        sink_tokens=0.0,
        window_query_ratio=1.0,
        window_kv_ratio=1.0,
        selected_tokens=0.0,
        num_selecting_layers=0.0,
        num_index_layers=0.0,
        index_heads=0.0,
        index_head_dim=0.0,
        num_linear_layers=0.0,
        linear_key_heads=0.0,
        linear_value_heads=0.0,
        linear_key_dim=0.0,
        linear_value_dim=0.0,
        linear_conv_tokens=0.0,
        learned_positions=0.0,
        vectors_outside_layers=0.0,
    )


# Size of a draft's pool of experts: a share of all, or what fits into the fast memory.


def fitting_pool(
    device: Device, architecture: Architecture, *, workload: Workload, footprint: Footprint, routing: Routing = UNIFORM
) -> Float[Array, "*b"]:
    """Number of a layer's experts whose draft bits fit into the first memory; no fewer than a token chooses.

    Args:
        device, architecture, workload, footprint: leaves are single numbers; `vmap` for more.
        routing: which experts tokens choose.
    Returns:
        "*b", in [experts per token, number of experts]; all experts on a device with one memory.
    Gradient: by capacities and sizes, with kinks where all or too few fit.
    Source: ELMoE-3D, 4.2: a subset of experts, sized to fit the room that weights and KV leave in the bonded memory.
    """
    all_, least = (jnp.asarray(as_float(x)) for x in (architecture.num_experts, architecture.experts_per_token))
    if not device.spill:
        return all_
    work = step_operators(architecture, draft_step(workload, footprint=footprint), routing)
    held = placement_of(device).draft_experts(device.tiers, work)
    held = jnp.where(held > least, held, least)
    return jnp.where(held < all_, held, all_)


def with_pool(cost: DraftCost, priced: Architecture, pool_share: Float[Array, "*layer"] | float | None) -> DraftCost:
    """The cost of a draft that chooses among so many of the priced network's experts; the same without a share.

    Args:
        pool_share: from a token's own number of experts (0) to all (1); one number for all layers.
    """
    if pool_share is None:
        return cost
    experts, chosen = as_float(priced.num_experts), as_float(priced.experts_per_token)
    pool = chosen + jnp.mean(jnp.asarray(pool_share)) * (experts - chosen)
    return dataclasses.replace(cost, pool_experts=either(experts > 0, pool, EVERY_EXPERT))
