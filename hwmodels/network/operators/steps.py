"""The steps of decoding and speculation as work: prefill, decode, draft, verify."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from hwmodels.network.architecture import UNCOMPRESSED_BITS, Architecture, Footprint, Workload
from hwmodels.network.operators.step import StepShape, step_operators
from hwmodels.network.operators.work import OperatorWork
from hwmodels.network.routing import EVERY_EXPERT, UNIFORM, Routing
from hwmodels.numerics.scalars import Leaf, Number, as_float, either


def stack_steps(steps: Sequence[StepShape]) -> StepShape:
    """Steps whose leaves are single numbers as one, leaves "step": to be mapped over."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(as_float(leaf)) for leaf in leaves]), *steps)


def prefill_step(workload: Workload, *, footprint: Footprint) -> StepShape:
    """The prompt through the target, from an empty cache; only each sequence's last token reaches the head."""
    tokens = as_float(workload.prompt_tokens)
    return dataclasses.replace(
        _target_step(workload, footprint, tokens), context_tokens=0.0, shared_tokens=0.0, logit_tokens=1.0
    )


def decode_step(workload: Workload, *, footprint: Footprint) -> StepShape:
    """One autoregressive step of the target."""
    return _target_step(workload, footprint, 1.0)


def draft_step(
    workload: Workload,
    *,
    footprint: Footprint,
    tokens: Number = 1.0,
    visible_new_tokens: Number | None = None,
    pool_experts: Number = EVERY_EXPERT,
    attention_share: Number = 1.0,
    feed_forward_share: Number = 1.0,
    visible_share: Number = 1.0,
) -> StepShape:
    """One step of the draft: the target's network, read at the draft's widths.

    What it writes is not encoded: the verification overwrites it.

    Args:
        tokens: "*b", >= 1; nodes that one step expands per sequence, 1 for a chain.
        visible_new_tokens: "*b", see `StepShape`; siblings do not see each other, so 1 for the nodes of one depth.
        pool_experts, attention_share, feed_forward_share, visible_share: "*b", see `StepShape`.
    """
    step = _target_step(workload, footprint, as_float(tokens), visible_new_tokens)
    return dataclasses.replace(
        step,
        weight_bits=footprint.draft_weight_bits,
        kv_bits=footprint.draft_kv_bits,
        encoded_kv_share=0.0,
        pool_experts=as_float(pool_experts),
        attention_share=as_float(attention_share),
        feed_forward_share=as_float(feed_forward_share),
        visible_share=as_float(visible_share),
        speculating=1.0,
        drafting=1.0,
    )


def verify_step(
    workload: Workload,
    *,
    footprint: Footprint,
    verify_tokens: Number,
    visible_new_tokens: Number | None = None,
) -> StepShape:
    """One pass of the target over `verify_tokens` ("*b", >= 1) new tokens per sequence, each with its logits.

    Args:
        visible_new_tokens: "*b"; for a tree the mean depth of its nodes, the root counting 1. A chain's unless given.
    """
    step = _target_step(workload, footprint, as_float(verify_tokens), visible_new_tokens)
    return dataclasses.replace(step, speculating=1.0)


def decode_operators(
    architecture: Architecture, workload: Workload, *, footprint: Footprint, routing: Routing = UNIFORM
) -> OperatorWork:
    """Work of `decode_step`."""
    return step_operators(architecture, decode_step(workload, footprint=footprint), routing)


def _target_step(
    workload: Workload, footprint: Footprint, tokens: Leaf, visible_new_tokens: Number | None = None
) -> StepShape:
    return StepShape(
        tokens=tokens,
        batch=workload.batch,
        context_tokens=workload.context_tokens,
        shared_tokens=workload.shared_tokens,
        visible_new_tokens=visible_new_tokens,
        weight_bits=footprint.target_weight_bits,
        kv_bits=footprint.target_kv_bits,
        # A cache of 16 bits of which a draft reads a part is encoded too.
        encoded_kv_share=either(
            (as_float(footprint.target_kv_bits) < UNCOMPRESSED_BITS)
            | (as_float(footprint.draft_kv_bits) < UNCOMPRESSED_BITS),
            1.0,
            0.0,
        ),
    ).complete
