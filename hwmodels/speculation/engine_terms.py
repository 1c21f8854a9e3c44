"""Time that a serving engine spends outside its networks' kernels: acceptance test, sampling, metadata, scheduling, launches.

Few numbers, each multiplied by a count that a plan and a workload know. They belong to the engine, not to the device: an
engine that keeps its host busy spends them on any GPU.
"""

from __future__ import annotations

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.network.architecture import Architecture
from hwmodels.numerics.axes import same_rank
from hwmodels.numerics.fields import NOT_NEGATIVE, number
from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.speculation.draft_cost import DraftCost
from hwmodels.speculation.plan import Plan

__all__ = ["NO_ENGINE", "EngineTerms", "engine_time"]


@flax.struct.dataclass
class EngineTerms:
    """Seconds that an engine adds, each a leaf, "*b", >= 0."""

    cycle_s: Leaf = number(NOT_NEGATIVE, default=0.0)  # per draft-verify cycle; autoregressive steps have none
    draft_pass_s: Leaf = number(NOT_NEGATIVE, default=0.0)  # per forward pass of a draft
    drafted_token_s: Leaf = number(NOT_NEGATIVE, default=0.0)  # per drafted token of each sequence
    prompt_token_s: Leaf = number(NOT_NEGATIVE, default=0.0)  # per prompt token processed beside decoding
    draft_layer_s: Leaf = number(NOT_NEGATIVE, default=0.0)  # per cycle and layer of the draft, a head being one layer
    mapped_pass_s: Leaf = number(NOT_NEGATIVE, default=0.0)  # per pass of a draft with `DraftCost.maps_logits`


#: Kernels alone.
NO_ENGINE = EngineTerms()


def engine_time(
    terms: EngineTerms,
    plan: Plan,
    *,
    target: Architecture,
    draft_cost: DraftCost,
    batch: Number,
    prompt_tokens: Number = 0.0,
) -> Float[Array, "*b"]:
    """Seconds that an engine adds to one cycle.

    Args:
        terms: of the engine.
        plan: of the cycle, or of a family, "*b".
        target: whose layers a draft without an architecture of its own has; leaves "*b".
        draft_cost: leaves "*b"; a lookup has no passes and no layers.
        batch: sequences decoded together, "*b".
        prompt_tokens: of all sequences, processed beside this cycle, "*b".
    Gradient: exact; linear in every term, with a kink where a draft step takes one pass.
    """
    repeats, tokens = same_rank(jnp.asarray(as_float(plan.draft_repeats)), as_float(plan.draft_tokens))
    steps, drafted = jnp.sum(repeats, axis=-1), jnp.sum(repeats * tokens, axis=-1)
    layers = (target if draft_cost.architecture is None else draft_cost.architecture).num_layers
    numbers = map(as_float, (batch, draft_cost.passes, draft_cost.maps_logits, layers, prompt_tokens))
    terms, steps, drafted, batch, passes, maps, layers, prompt = same_rank(terms, steps, drafted, *numbers)
    return (
        as_float(terms.cycle_s)
        + as_float(terms.draft_layer_s) * layers * jnp.minimum(passes, 1.0)
        + (as_float(terms.draft_pass_s) + as_float(terms.mapped_pass_s) * maps) * passes * steps
        + as_float(terms.drafted_token_s) * (drafted * batch)
        + as_float(terms.prompt_token_s) * prompt
    )
