"""Time that a serving engine spends outside its networks' kernels: acceptance test, sampling, metadata, scheduling, launches.

Few numbers, each multiplied by a count that a plan and a workload know. They belong to the engine, not to the device: an
engine that keeps its host busy spends them on any GPU.
"""

from __future__ import annotations

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.network.architecture import Architecture, weights_per_token
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
    #: Per prompt token processed beside decoding, and weight of the target that it meets on a device.
    prompt_weight_s: Leaf = number(NOT_NEGATIVE, default=0.0)
    draft_layer_s: Leaf = number(NOT_NEGATIVE, default=0.0)  # per cycle and layer of the draft, a head being one layer
    mapped_pass_s: Leaf = number(NOT_NEGATIVE, default=0.0)  # per pass of a draft with `DraftCost.maps_logits`
    #: Per draft-verify cycle and device beyond the first that shares matrices: ranks that wait for each other's hosts.
    further_device_s: Leaf = number(NOT_NEGATIVE, default=0.0)
    #: Per drafted token of each sequence and layer of the draft: attention starts anew for each sequence in each layer.
    drafted_token_layer_s: Leaf = number(NOT_NEGATIVE, default=0.0)
    #: Per cycle in which a network or a head drafts, beside `cycle_s`: its launches, and inputs that are prepared for it.
    launched_cycle_s: Leaf = number(NOT_NEGATIVE, default=0.0)
    #: Per cycle of a lookup, beside `cycle_s`, and for each of its sequences: the host searches each text.
    lookup_cycle_s: Leaf = number(NOT_NEGATIVE, default=0.0)
    lookup_sequence_s: Leaf = number(NOT_NEGATIVE, default=0.0)


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
    devices: Number = 1.0,
) -> Float[Array, "*b"]:
    """Seconds that an engine adds to one cycle.

    Args:
        terms: of the engine.
        plan: of the cycle, or of a family, "*b".
        target: whose layers a draft without an architecture of its own has; leaves "*b".
        draft_cost: leaves "*b"; a lookup has no passes and no layers.
        batch: sequences decoded together, "*b".
        prompt_tokens: of all sequences, processed beside this cycle, "*b".
        devices: that share each matrix, "*b".
    Gradient: exact; linear in every term, with a kink where a draft step takes one pass.
    """
    repeats, tokens = same_rank(jnp.asarray(as_float(plan.draft_repeats)), as_float(plan.draft_tokens))
    steps, drafted = jnp.sum(repeats, axis=-1), jnp.sum(repeats * tokens, axis=-1)
    layers = (target if draft_cost.architecture is None else draft_cost.architecture).num_layers
    prompts_s = prompts_time(terms, target, prompt_tokens, devices)
    numbers = map(as_float, (batch, draft_cost.passes, draft_cost.maps_logits, layers, prompts_s, devices))
    terms, steps, drafted, batch, passes, maps, layers, prompts_s, devices = same_rank(terms, steps, drafted, *numbers)
    launched = jnp.minimum(passes, 1.0)  # 0: a lookup, which runs no layers
    layers = layers * launched
    return (
        as_float(terms.cycle_s)
        + as_float(terms.launched_cycle_s) * launched
        + (as_float(terms.lookup_cycle_s) + as_float(terms.lookup_sequence_s) * batch) * (1.0 - launched)
        + as_float(terms.further_device_s) * (devices - 1.0)
        + as_float(terms.draft_layer_s) * layers
        + (as_float(terms.draft_pass_s) + as_float(terms.mapped_pass_s) * maps) * passes * steps
        + (as_float(terms.drafted_token_s) + as_float(terms.drafted_token_layer_s) * layers) * (drafted * batch)
        + prompts_s
    )


def prompts_time(terms: EngineTerms, target: Architecture, tokens: Number, devices: Number) -> Float[Array, "*b"]:
    """Seconds of prompt tokens beside decoding. Args: tokens: of all sequences, "*b". devices: that share each matrix, "*b"."""
    each = same_rank(*map(as_float, (terms.prompt_weight_s, weights_per_token(target), tokens, devices)))
    of_weight, weights, tokens, devices = each
    return of_weight * weights * tokens / devices
