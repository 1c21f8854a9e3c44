"""Chains: tokens gained per cycle, speedup over autoregressive decoding at every draft length, and the best one."""

from __future__ import annotations

from collections.abc import Sequence

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from hwmodels.network.operators import StepShape
from hwmodels.numerics.fast_compile import priced_at_once
from hwmodels.numerics.scalars import Number, as_float
from hwmodels.speculation.acceptance import Acceptance
from hwmodels.speculation.case import Case
from hwmodels.speculation.cycle import CycleCost, price


def tokens_per_cycle(conditional: Float[Array, "*b position"]) -> Float[Array, "*b position"]:
    """Expected tokens per cycle of a draft chain, for every draft length up to the number of positions.

    Args:
        conditional: "*b position", in [0, 1]; P(position accepted | all before it accepted).
    Returns:
        "*b position"; entry i belongs to draft length i + 1: 1 + sum over j <= i + 1 of the product of the first j
        conditionals. The 1 is the token that the verification itself yields.
    Source: Leviathan et al. 2023, arXiv:2211.17192, Eq. 1, with one probability per position.
    """
    return 1.0 + jnp.cumsum(jnp.cumprod(jnp.asarray(as_float(conditional)), axis=-1), axis=-1)


def expected_tokens_iid(alpha_token: Number, draft_length: int) -> Float[Array, "*b"]:
    """Expected tokens per cycle of a draft chain, with independent acceptance.

    Args:
        alpha_token: "*b", in [0, 1]; probability that one draft token is accepted.
        draft_length: static int >= 0; tokens drafted per cycle (gamma in the paper).
    Returns:
        "*b", tokens per cycle, in [1, draft_length + 1].
    Raises:
        ValueError: draft_length < 0.
    Source: Leviathan et al. 2023, arXiv:2211.17192, Eq. 1.
    Departs: summed, not the closed form, so that the gradient is right at 1.
    """
    if draft_length < 0:
        raise ValueError(f"draft_length is {draft_length}; it must be >= 0")
    alpha = jnp.asarray(as_float(alpha_token))
    total = jnp.ones_like(alpha)
    for _ in range(draft_length):
        total = 1.0 + alpha * total
    return total


@flax.struct.dataclass
class SpeculationResult:
    """Every draft length side by side: the entry at index gamma is draft length gamma, and 0 is not to speculate.

    Time per token is that of one sequence; speedups are ratios of it.
    """

    draft_lengths: Float[Array, "... gamma"]
    tokens_per_cycle: Float[Array, "... gamma"]
    cycle_s: Float[Array, "... gamma"]
    speedup_vs_bf16_ar: Float[Array, "... gamma"]  # over the uncompressed 16-bit network
    speedup_vs_stored_ar: Float[Array, "... gamma"]  # over the network as it is stored, read at the target's widths
    ar_bf16_s: Float[Array, "*b"]  # per token
    ar_stored_s: Float[Array, "*b"]  # per token


@flax.struct.dataclass
class PricedChains:
    """Every draft length side by side, and what its steps cost."""

    result: SpeculationResult
    cycle: CycleCost  # of draft lengths 1, 2, ..., leaves "length ..."


@priced_at_once
def priced_chains(
    case: Case, acceptance: Acceptance, *, temperature: Number = 0.0, also: Sequence[StepShape] = ()
) -> PricedChains:
    """Speedup of speculative decoding with chains of 0, 1, ... n drafted tokens, n being the positions of `acceptance`.

    A cycle without a draft takes none of the engine's terms.

    Args:
        acceptance: conditional "*b position".
        temperature, also: as of `price`.
    Raises:
        ValueError: the acceptance has no positions, or the footprint's kinds are wrong.
    Gradient: right for every input, with the kinks of the roofline at temperature 0.
    """
    conditional = jnp.asarray(as_float(acceptance.conditional))
    if conditional.ndim == 0 or conditional.shape[-1] == 0:
        raise ValueError(
            f"acceptance.conditional has shape {conditional.shape}; it needs a last axis of >= 1 positions"
        )
    tokens = tokens_per_cycle(conditional)
    tokens = jnp.concatenate([jnp.ones_like(tokens[..., :1]), tokens], axis=-1)
    draft_lengths = jnp.arange(tokens.shape[-1], dtype=tokens.dtype)
    cycle = price(case, case.draft.plan(draft_lengths[1:]), temperature=temperature, also=also)
    bf16, stored = cycle.baselines.bf16.cost, cycle.baselines.stored.cost
    # A cycle without a draft is a step of what is stored.
    cycle_s = jnp.broadcast_to(jnp.concatenate([stored.total_s[None], cycle.total_s]), tokens.shape)
    result = SpeculationResult(
        draft_lengths=draft_lengths,
        tokens_per_cycle=tokens,
        cycle_s=cycle_s,
        speedup_vs_bf16_ar=bf16.total_s * tokens / cycle_s,
        speedup_vs_stored_ar=stored.total_s * tokens / cycle_s,
        ar_bf16_s=bf16.total_s,
        ar_stored_s=stored.total_s,
    )
    return PricedChains(result, cycle)


@flax.struct.dataclass
class BestDraft:
    """The draft length of the highest speedup; 0 says that no draft pays."""

    draft_length: Int[Array, "*b"]
    tokens_per_cycle: Float[Array, "*b"]
    cycle_s: Float[Array, "*b"]
    speedup_vs_bf16_ar: Float[Array, "*b"]
    speedup_vs_stored_ar: Float[Array, "*b"]


def best(result: SpeculationResult) -> BestDraft:
    """The best entry of a result, "do not speculate" among them; the shortest draft where several are equal.

    Gradient: that of the chosen draft length, which itself is piecewise constant.
    """
    chosen = jnp.argmax(result.speedup_vs_bf16_ar, axis=-1)

    def pick(values):
        return jnp.take_along_axis(values, chosen[..., None], axis=-1)[..., 0]

    return BestDraft(
        draft_length=chosen,
        tokens_per_cycle=pick(result.tokens_per_cycle),
        cycle_s=pick(result.cycle_s),
        speedup_vs_bf16_ar=pick(result.speedup_vs_bf16_ar),
        speedup_vs_stored_ar=pick(result.speedup_vs_stored_ar),
    )


def expected_log_speedup(result: SpeculationResult, logits: Float[Array, "... gamma"]) -> Float[Array, "*b"]:
    """Mean log speedup over 16-bit decoding when softmax(logits) decides the draft length, which then is tuned as well.

    Args:
        logits: "*b gamma", one per draft length from 0 on.
    Returns:
        "*b"; never above the best draft length's own.
    """
    return jnp.sum(jax.nn.softmax(logits, axis=-1) * jnp.log(result.speedup_vs_bf16_ar), axis=-1)
