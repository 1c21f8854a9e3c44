"""From the router's logits to the experts of each token, and their weights."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hwmodels.networks import ExpertSizes

__all__ = ["NO_EXPERT", "MoreExperts", "Routed", "RouterChoices", "route"]

# A second set of experts that a router may choose from, for pools of a fractional size.


class MoreExperts(NamedTuple):
    """A larger pool beside the one that is allowed: what is computed is a blend of both.

    Attributes:
        allowed: as `allowed_experts`.
        weight: of what is computed with the larger pool, 0 to 1; the rest is the smaller one's.
    """

    allowed: Bool[Array, "*layer batch token expert"]
    weight: Float[Array, "*layer"]


# Which experts the tokens of a step chose.

#: Stands for a choice that could not be made, because fewer experts are allowed than a token chooses.
NO_EXPERT = -1


class RouterChoices(NamedTuple):
    """Experts by number, best first.

    Attributes:
        original: what the router chooses among all experts.
        used: what is computed with: the same, unless only some experts are allowed. `NO_EXPERT` where none is left.
    """

    original: Int[Array, "batch token *layer chosen"]
    used: Int[Array, "batch token *layer chosen"]


class Routed(NamedTuple):
    """Choices of a step's tokens, and the weights of the experts used."""

    choices: RouterChoices
    weights: Float[Array, "batch token chosen"]


def route(
    logits: Float[Array, "batch token expert"],
    sizes: ExpertSizes,
    *,
    correction: Float[Array, " expert"] | None = None,
    allowed: Bool[Array, "batch *token expert"] | None = None,
    more: MoreExperts | None = None,
) -> Routed:
    """Choose experts by their scores, and weigh the chosen ones.

    The choice is piecewise constant in the logits; gradients flow through the weights alone.

    Args:
        logits: float32.
        correction: added to the scores for the choice.
        allowed: experts among which each sequence's tokens (or each token by itself) choose, in the order of the original
            scores; a token whose groups are restricted chooses its groups by what is allowed in them. None: all.
        more: a larger set beside `allowed`; the experts used are then those of both choices, one after the other, and their
            weights a blend. None: there is none.
    Source: Shazeer et al. 2017, arXiv:1701.06538; groups and corrections: DeepSeek-V3, arXiv:2412.19437, Section 2.1.2.
    """
    scores = jax.nn.sigmoid(logits) if sizes.scores == "sigmoid" else jax.nn.softmax(logits, axis=-1)
    corrected = scores if correction is None else scores + jax.lax.broadcast_to_rank(correction, scores.ndim)
    ranking = jax.lax.stop_gradient(corrected)
    original = _chosen(ranking, sizes)
    used = original if allowed is None else _chosen_among(ranking, allowed, sizes)
    weights = _weights(scores, used, sizes)
    if more is not None:
        larger = _chosen_among(ranking, more.allowed, sizes)
        share = more.weight
        parts = (1 - share) * weights.astype(share.dtype), share * _weights(scores, larger, sizes).astype(share.dtype)
        used, weights = jnp.concatenate([used, larger], axis=-1), jnp.concatenate(parts, axis=-1)
    return Routed(RouterChoices(original, used), weights)


def _weights(
    scores: Float[Array, "batch token expert"], used: Int[Array, "batch token chosen"], sizes: ExpertSizes
) -> Float[Array, "batch token chosen"]:
    """Weights of the experts that each token uses."""
    weights = jnp.take_along_axis(scores, jnp.maximum(used, 0), axis=-1)
    weights = jnp.where(used == NO_EXPERT, 0.0, weights)
    if sizes.renormalised:
        weights = weights / (weights.sum(axis=-1, keepdims=True) + sizes.added)
    return weights * sizes.scale


def _chosen_among(
    ranking: Float[Array, "batch token expert"], allowed: Bool[Array, "batch *token expert"], sizes: ExpertSizes
) -> Int[Array, "batch token chosen"]:
    """The choice among the allowed experts, of each sequence or of each token."""
    of_tokens = allowed.reshape(allowed.shape[0], -1, allowed.shape[-1])
    return _chosen(jnp.where(of_tokens, ranking, -jnp.inf), sizes)


def _chosen(ranking: Float[Array, "batch token expert"], sizes: ExpertSizes) -> Int[Array, "batch token chosen"]:
    if sizes.grouped:
        members = ranking.reshape(*ranking.shape[:-1], sizes.groups, -1)
        best = jax.lax.top_k(members, 1 if sizes.group_score == "largest" else 2)[0].sum(axis=-1)
        groups = jax.lax.top_k(best, sizes.groups_per_token)[1]
        kept = jnp.any(jax.nn.one_hot(groups, sizes.groups, dtype=bool), axis=-2)
        ranking = jnp.where(kept[..., None], members, -jnp.inf).reshape(ranking.shape)
    values, chosen = jax.lax.top_k(ranking, sizes.per_token)
    return jnp.where(values == -jnp.inf, NO_EXPERT, chosen)
