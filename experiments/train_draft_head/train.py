"""Training of a draft head on its target's hidden states and on its own predictions of them.

Drafting at depth d reads what the head itself predicted at depth d − 1, and keys and values that it wrote from predictions.
Training meets the same: one pass over the text reads true hidden states; from every few places a chain then goes on from the
head's predictions, and its d-th place sees true places up to its root and predicted ones after it.

Source: the unrolling is the training-time test of EAGLE-3, Li et al. 2025, arXiv:2503.01840, Section 3.1.
Departs: chains go on from a grid of roots, whose offset changes from step to step, instead of from all places, since more text
    teaches more than more chains through the same text; soft labels and, with a small weight, the hidden states themselves.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from experiments.train_embedded.train import Recipe, optimizer
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, causal_mask, forward_text
from jaxspec.models.draft_head import TargetEnds, head_forward, head_logits, target_ends
from jaxspec.models.kv_cache import CachedKV, KVCache


@dataclasses.dataclass(frozen=True)
class HeadRecipe(Recipe):
    """Everything that decides the head's weights, apart from target and text."""

    steps: int = 800
    depth: int = 5  # deepest token that is trained: 1 reads true hidden states alone
    root_every: int = 8  # places between two chains of predictions
    depth_discount: float = (
        0.8  # weight of a depth's loss over that of the one before: deeper tokens are drafted less often
    )
    feature_weight: float = 0.1  # of the hidden states' squared error beside the cross-entropy, in nats


def unroll(
    head: Params,
    config: DecoderConfig,
    ends: TargetEnds,
    tokens: Int[Array, "batch place_plus_1"],
    hidden: Float[Array, "batch place hidden"],
    *,
    offset: Int[Array, ""],
    depth: int,
    root_every: int,
    options: dict,
) -> list[tuple[Float[Array, "batch chain hidden"], Int[Array, " chain"]]]:
    """Predicted hidden states at each depth, and the places (of `hidden`) where they were predicted.

    Args:
        tokens: one more than there are hidden states.
        offset: first root, 0 to root_every − 1.
        depth: static; the first entry of the result holds all places.
        root_every: static.
        options: of `head_forward`: how it multiplies and attends.
    """
    batch, places = hidden.shape[:2]
    place = jnp.arange(places)
    batched = lambda x: jnp.broadcast_to(x, (batch, *x.shape))
    first = head_forward(
        head,
        config,
        ends=ends,
        tokens=tokens[:, 1:],
        hidden=hidden,
        positions=batched(place),
        mask=causal_mask(batch, places),
        **options,
    )
    result = [(first.hidden, place)]
    root = offset + root_every * jnp.arange((places - depth + 1) // root_every)
    own = jnp.eye(root.size, dtype=bool)
    seen = place[None, :] <= root[:, None]
    cache = first.cache
    state = first.hidden[:, root]
    for d in range(1, depth):
        at = root + d
        step = head_forward(
            head,
            config,
            ends=ends,
            tokens=tokens[:, at + 1],
            hidden=state,
            positions=batched(at),
            mask=batched(own),
            sources=[CachedKV(cache, batched(jnp.concatenate([seen, *[own] * (d - 1)], axis=1)))],
            **options,
        )
        cache = KVCache(
            key=jnp.concatenate([cache.key, step.cache.key], axis=4),
            value=jnp.concatenate([cache.value, step.cache.value], axis=3),
        )
        state = step.hidden
        result.append((state, at))
    return result


def _unit(x: Array) -> Array:
    """Scaled to a root mean square of 1: all that anyone reads of a hidden state."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def head_loss(
    head: Params,
    target: Params,
    config: DecoderConfig,
    target_config: DecoderConfig,
    tokens: Int[Array, "batch token"],
    offset: Int[Array, ""],
    recipe: HeadRecipe,
    frugal: bool,
) -> Float[Array, ""]:
    """KL divergence of the target's distribution from the head's in nats, plus the features' error, both over all depths."""
    options = dict(dot_dtype=jnp.bfloat16, frugal=True) if frugal else {}
    said = forward_text(target, target_config, tokens, **options)
    ends = target_ends(target)
    dot_dtype = options.get("dot_dtype")
    wanted, log_p = said.hidden[:, 1:], jax.nn.log_softmax(said.logits[:, 1:])
    depths = unroll(
        head,
        config,
        ends,
        tokens,
        said.hidden[:, :-1],
        offset=offset,
        depth=recipe.depth,
        root_every=recipe.root_every,
        options=options,
    )
    losses = []
    for predicted, place in depths:
        log_q = jax.nn.log_softmax(head_logits(predicted, ends, config, dot_dtype))
        kl = jnp.mean(jnp.sum(jnp.exp(log_p[:, place]) * (log_p[:, place] - log_q), axis=-1))
        error = jnp.mean((_unit(predicted) - _unit(wanted[:, place])) ** 2)
        losses.append(kl + recipe.feature_weight * error)
    weights = recipe.depth_discount ** np.arange(recipe.depth, dtype=np.float32)
    return jnp.sum(jnp.stack(losses) * weights) / weights.sum()


def make_head_step(recipe: HeadRecipe, config: DecoderConfig, target: Params, target_config: DecoderConfig):
    """The jitted, donated training step (head, optimiser state, (tokens, offset)) -> (head, optimiser state, loss)."""
    transform = optimizer(recipe)
    frugal = jax.default_backend() == "cpu"

    @jax.jit
    def step(head, opt_state, target, tokens, offset):
        loss, gradient = jax.value_and_grad(head_loss)(
            head, target, config, target_config, tokens, offset, recipe, frugal
        )
        updates, opt_state = transform.update(gradient, opt_state, head)
        return optax.apply_updates(head, updates), opt_state, loss

    return transform.init, lambda head, opt_state, batch: step(head, opt_state, target, *batch)
