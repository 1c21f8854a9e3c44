"""What a cycle costs with a tree of every size, at every context, and what plain decoding costs there.

`hwmodels.speculation.trees.tree_cycle_time` prices one tree. Here all sizes and contexts go through one program: a draft step
is priced once for each number of tokens that any of the trees expands.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from hwmodels import Architecture, Footprint, Workload, uniform_footprint
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from hwmodels.network.operators import decode_step, draft_step, stack_steps
from hwmodels.numerics.scalars import as_float
from hwmodels.speculation.trees import tree_shape
from hwmodels.step.capacity import held_bytes
from hwmodels.step.step_time import work_time
from jaxspec.models.config import DecoderConfig
from jaxspec.speculate.drafts import HeadDraft, NGramDraft
from jaxspec.studies.tree.drafts import NamedDraft
from jaxspec.trees.optimal_tree import RankedTree
from jaxspec.tune.objective import Pricing

__all__ = ["DraftPricing", "GrowthTimes", "price_growth", "priced_draft"]


#: Widths that are scaled as the feed-forward network's is.
_FEED_FORWARD = ("intermediate_size", "expert_intermediate_size", "shared_intermediate_size")


class DraftPricing(NamedTuple):
    """Architecture used to price draft steps.

    Attributes:
        steps: whether drafting takes time at all.
        architecture: of a draft that is a network of its own; None otherwise.
        shares_ends: whether embedding and LM head are the target's, which holds them already.
        statement: how it was chosen, for a reader.
    """

    steps: bool
    architecture: Architecture | None
    shares_ends: bool
    statement: str


class GrowthTimes(NamedTuple):
    """Times at each context, sizes 1, 2, ... nodes; on the host.

    Attributes:
        verify_s: one verification.
        draft_s: all draft steps of a cycle.
        ar_bf16_s, ar_stored_s: a step of plain decoding, of the uncompressed network and as it is stored.
        fits: whether weights and KV of the target, and of a draft network, fit the device's memories.
    """

    verify_s: Float[np.ndarray, "context size"]
    draft_s: Float[np.ndarray, "context size"]
    ar_bf16_s: Float[np.ndarray, " context"]
    ar_stored_s: Float[np.ndarray, " context"]
    fits: Bool[np.ndarray, " context"]


def priced_draft(draft: NamedDraft, target: DecoderConfig, priced: Architecture, name: str) -> DraftPricing:
    """A draft of the priced architecture that stands to it as the measured draft stands to the measured target.

    Args:
        target: the network that runs.
        priced, name: whose cost is predicted.
    """
    if draft.network is None:
        if isinstance(draft.draft, NGramDraft):
            return DraftPricing(False, None, False, "a lookup in the text, which costs nothing")
        return DraftPricing(True, None, False, f"a compressed copy of {name}")
    own = draft.network
    ratio = lambda size: getattr(own, size) / getattr(target, size)
    like = {size: size for size in ("hidden_size", "num_heads", "num_kv_heads", "head_dim")}
    like |= dict.fromkeys(_FEED_FORWARD, "intermediate_size")
    scaled = {size: as_float(getattr(priced, size)) * ratio(measured) for size, measured in like.items()}
    layers = as_float(priced.num_layers)
    if isinstance(draft.draft, HeadDraft):
        share = 1.0 / layers
        # The matrix that mixes token and hidden state is 2 h², as many weights as these rows of the feed-forward matrices.
        rows = 2.0 * scaled["hidden_size"] / (2.0 + as_float(priced.gated_ffn))
        for size in ("intermediate_size", "shared_intermediate_size"):  # of dense layers, and of mixtures of experts
            scaled[size] = scaled[size] + rows
        said = (
            f"one layer of {name} and its LM head; the layer's inner widths are to {name}'s as {draft.name}'s are to the "
            "measured network's, its mixing matrix counts as feed-forward rows"
        )
    else:
        share = ratio("num_layers")
        scaled["tied_embeddings"] = float(own.tie_embeddings)
        said = f"{name} with its layers and widths scaled as {draft.name}'s are to the measured network's"
    by_layer = {
        count: as_float(getattr(priced, count)) * share
        for count in ("num_layers", "num_moe_layers", "num_window_layers")
    }
    found = dataclasses.replace(priced, **scaled, **by_layer)
    return DraftPricing(True, found, isinstance(draft.draft, HeadDraft), said)


def price_growth(
    pricing: Pricing, growth: RankedTree, *, footprint: Footprint, contexts: tuple[int, ...], draft: DraftPricing
) -> GrowthTimes:
    """Price the first 1, 2, ... nodes of a growing tree at every context.

    Args:
        footprint: read by draft and verification; of a draft network, its own widths stand under the draft's.
        contexts: cached tokens; the workload's own is not used.
    """
    shapes = [tree_shape(growth.parent[:count]) for count in range(1, growth.parent.size + 1)]
    tokens = np.unique(np.concatenate([shape.expanded for shape in shapes]))
    steps = np.array([[np.sum(shape.expanded == count) for count in tokens] for shape in shapes], np.float64)
    found = _price(
        pricing,
        footprint,
        draft.architecture,
        0.0 if draft.shares_ends else 1.0,
        jnp.asarray(contexts, jnp.float32),
        jnp.asarray([len(shape.depth) + 1 for shape in shapes], jnp.float32),
        jnp.asarray([shape.visible_tokens for shape in shapes], jnp.float32),
        jnp.asarray(tokens, jnp.float32),
    )
    verify_s, draft_step_s, ar_s, held = (np.asarray(x, np.float64) for x in jax.device_get(found))
    tiers = (pricing.device.memory, *pricing.device.spill)
    capacity = sum(float(tier.capacity_bytes) for tier in tiers)
    return GrowthTimes(
        verify_s=verify_s,
        draft_s=(draft_step_s @ steps.T) * draft.steps,
        ar_bf16_s=ar_s[:, 0],
        ar_stored_s=ar_s[:, 1],
        fits=held <= capacity,
    )


@jax.jit
def _price(
    pricing: Pricing,
    footprint: Footprint,
    draft_architecture: Architecture | None,
    own_ends: Array,
    contexts: Array,
    verify_tokens: Array,
    visible_tokens: Array,
    draft_tokens: Array,
):
    """Seconds of verifications, of draft steps and of the two kinds of plain decoding, and bytes held; by context."""
    target = pricing.architecture
    sizes = len(verify_tokens)
    one = jnp.ones(2, verify_tokens.dtype)
    # 16-bit decoding, decoding of what is stored, its verifications, draft steps: all through one map.
    kind = jnp.concatenate([jnp.array([0, 1]), jnp.full(sizes, 1), jnp.full(len(draft_tokens), 2)])
    tokens = jnp.concatenate([one, verify_tokens, draft_tokens])
    visible = jnp.concatenate([one, visible_tokens, jnp.ones_like(draft_tokens)])
    seconds = lambda network: jax.vmap(lambda step: work_time(pricing.device, step.operators(network)).total_s)

    def at_context(context: Array):
        workload: Workload = dataclasses.replace(pricing.workload, context_tokens=context)
        kinds = [
            decode_step(workload, footprint=uniform_footprint(UNCOMPRESSED_BITS)),
            decode_step(workload, footprint=footprint),
            draft_step(workload, footprint=footprint),
        ]
        steps = jax.tree.map(lambda leaf: leaf[kind], stack_steps(kinds))
        steps = dataclasses.replace(steps, tokens=tokens, logit_tokens=tokens, visible_new_tokens=visible)
        load = {"batch": workload.batch, "context_tokens": context}
        held = held_bytes(
            target, **load, weight_bits=footprint.target_weight_bits, kv_bits=footprint.target_kv_bits
        ).total
        if draft_architecture is None:
            step_s = seconds(target)(steps)
        else:
            of_target, of_draft = (jax.tree.map(lambda leaf, part=part: leaf[part], steps) for part in _parts(sizes))
            step_s = jnp.concatenate([seconds(target)(of_target), seconds(draft_architecture)(of_draft)])
            own_bits = footprint.draft_weight_bits
            own_bits = own_bits | {end: as_float(own_bits[end]) * own_ends for end in ("embed", "lm_head")}
            own = held_bytes(draft_architecture, **load, weight_bits=own_bits, kv_bits=footprint.draft_kv_bits)
            held = held + own.total
        return step_s[2 : sizes + 2], step_s[sizes + 2 :], step_s[:2], held

    return jax.vmap(at_context)(contexts)


def _parts(sizes: int) -> tuple[slice, slice]:
    """Steps of the target, and those of the draft after them."""
    return slice(None, sizes + 2), slice(sizes + 2, None)
