"""What a cycle costs with a tree of every size, at every context, and what plain decoding costs there.

All sizes are one family of plans, so that a draft step is priced once for each number of tokens that any of them expands.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from hwmodels import Architecture, DraftCost, Footprint, Plan, plan_family, price_decoding, tree_plan
from hwmodels.numerics.scalars import as_float
from hwmodels.speculation.draft_cost import held_with_draft
from jaxspec.models.config import DecoderConfig
from jaxspec.speculate.drafts import HeadDraft, NGramDraft
from jaxspec.studies.tree.drafts import NamedDraft
from jaxspec.trees.optimal_tree import RankedTree
from jaxspec.tune.objective import Pricing

__all__ = ["GrowthTimes", "price_growth", "priced_draft"]


#: Widths that are scaled as the feed-forward network's is.
_FEED_FORWARD = ("intermediate_size", "expert_intermediate_size", "shared_intermediate_size")


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


def priced_draft(draft: NamedDraft, target: DecoderConfig, priced: Architecture, name: str) -> DraftCost:
    """Cost of a draft of the priced architecture that stands to it as the measured draft stands to the measured target.

    Args:
        target: the network that runs.
        priced, name: whose cost is predicted.
    """
    if draft.network is None:
        if isinstance(draft.draft, NGramDraft):
            return DraftCost(passes=0.0, statement="a lookup in the text, which costs nothing")
        return DraftCost(statement=f"a compressed copy of {name}")
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
    return DraftCost(architecture=found, shares_ends=float(isinstance(draft.draft, HeadDraft)), statement=said)


def price_growth(
    pricing: Pricing, growth: RankedTree, *, footprint: Footprint, contexts: tuple[int, ...], draft: DraftCost
) -> GrowthTimes:
    """Price the first 1, 2, ... nodes of a growing tree at every context.

    Args:
        footprint: read by draft and verification; of a draft network, its own widths stand under the draft's.
        contexts: cached tokens; the workload's own is not used.
    """
    sizes = plan_family([tree_plan(growth.parent[:count]) for count in range(1, growth.parent.size + 1)])
    # The statement is for readers: it must not compile anew.
    cost = dataclasses.replace(draft, statement="")
    found = jax.device_get(_priced(pricing, footprint, cost, jnp.asarray(contexts, jnp.float32), sizes))
    *times, held = (np.asarray(x, np.float64) for x in found)
    capacity = sum(float(tier.capacity_bytes) for tier in (pricing.device.memory, *pricing.device.spill))
    return GrowthTimes(*times, fits=held <= capacity)


@jax.jit
def _priced(
    pricing: Pricing, footprint: Footprint, draft: DraftCost, contexts: Float[Array, " context"], sizes: Plan
) -> tuple[Array, ...]:
    """The first fields of `GrowthTimes`, and bytes held."""
    device, target = pricing.device, pricing.architecture

    def at_context(context: Array) -> tuple[Array, ...]:
        parts = {
            "footprint": footprint,
            "draft_cost": draft,
            "workload": dataclasses.replace(pricing.workload, context_tokens=context),
        }
        priced = price_decoding(device, target, plan=sizes, **parts)
        plain = priced.baselines.bf16.cost.total_s, priced.baselines.stored.cost.total_s
        return priced.cycle.verify_s, priced.cycle.draft_s, *plain, held_with_draft(target, **parts)

    return jax.vmap(at_context)(contexts)
