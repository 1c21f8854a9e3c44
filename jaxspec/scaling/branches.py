"""Continuations of one prompt, grown together: the prompt's KV is stored once, and each branch has its own behind it.

Sampling is growing to the end. A search over steps grows to the end of a step, keeps some branches, and grows on.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int, Key

from jaxspec.compress.kv import stored_kv
from jaxspec.models.blocks import StepInput
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, causal_mask, forward
from jaxspec.models.decoding_programs import jit_decoding
from jaxspec.models.kv_cache import CachedKV, KVCache, cache_like, empty_cache, take_sequences, write_cache
from jaxspec.speculate.keys import Purpose, draw_keys
from jaxspec.speculate.sampling import Decoding, token_distribution
from jaxspec.speculate.steps import slots_before

__all__ = ["Branches", "grow", "kept_branches", "started"]


@struct.dataclass
class Branches:
    """Continuations of one prompt.

    Attributes:
        prefix: KV of the prompt, of one sequence that all branches share; what stands behind the prompt is padding.
        prefix_tokens: tokens of the prompt that lie in it: all but the last, which is the first root.
        cache: each branch's own KV; slot i is of the token at position `prefix_tokens` + i.
        tokens: what each has generated; 0 behind `length`.
        length: tokens generated.
        root: last token of each, which the network has not processed yet.
        ended: whether a stop token was generated.
        paused: whether the last growth ended with a token that pauses.
        log_prob: of each token under the distribution that it was drawn from; 0 behind `length`.
        number: of each sample, which its random numbers are made of.
    """

    prefix: KVCache
    prefix_tokens: Int[Array, ""]
    cache: KVCache
    tokens: Int[Array, "branch place"]
    length: Int[Array, " branch"]
    root: Int[Array, " branch"]
    ended: Bool[Array, " branch"]
    paused: Bool[Array, " branch"]
    log_prob: Float[Array, "branch place"]
    number: Int[Array, " branch"]


@partial(jax.jit, static_argnames=("config", "room"))
def started(
    params: Params,
    prompt: Int[Array, " place"],
    prompt_tokens: Int[Array, ""],
    number: Int[Array, " branch"],
    *,
    config: DecoderConfig,
    room: int,
) -> Branches:
    """Branches that have generated nothing: the prompt is processed once, whatever their number.

    Args:
        prompt: padded behind; prompt_tokens: of it that count, 1 or more.
        number: of each sample.
        room: static; most tokens that a branch will ever have.
    """
    places, branches = prompt.shape[0], number.shape[0]
    result = forward(
        params,
        config,
        prompt[None],
        StepInput(
            jnp.arange(places)[None],
            causal_mask(1, places),
            kv_codec=stored_kv(config),
            lengths=jnp.broadcast_to(prompt_tokens, (1, places)),
        ),
        logits_from=places,
    )
    nothing = jnp.zeros(branches, jnp.int32)
    return Branches(
        prefix=cache_like(params, result.cache),
        prefix_tokens=prompt_tokens - 1,
        cache=empty_cache(config, branches, room, params=params),
        tokens=jnp.zeros((branches, room), jnp.int32),
        length=nothing,
        root=jnp.broadcast_to(prompt[prompt_tokens - 1], (branches,)).astype(jnp.int32),
        ended=jnp.zeros(branches, bool),
        paused=jnp.zeros(branches, bool),
        log_prob=jnp.zeros((branches, room), jnp.float32),
        number=number,
    )


@partial(jit_decoding, static_argnames="config")
def grow(
    params: Params,
    branches: Branches,
    seed: Key[Array, ""],
    prompt_id: Int[Array, ""],
    decoding: Decoding,
    most: Int[Array, ""],
    pause: Int[Array, " pause"],
    stop: Int[Array, " stop"],
    *,
    config: DecoderConfig,
) -> Branches:
    """Every branch that has not ended grows by up to `most` tokens, until a token of `pause` or `stop`, or until it is full.

    A token depends on the seed, the prompt, the branch's number and its position, on no other branch.

    Args:
        prompt_id: of the prompt, as `decode` has it.
    """
    room, count = branches.tokens.shape[1], branches.number.shape[0]
    slots = branches.prefix.num_slots
    before = branches.length
    begun = dataclasses.replace(branches, paused=jnp.zeros(count, bool))
    # Of every place at once: one by one, keys take a tenth of a step on CPUs.
    at_place = draw_keys(
        seed, Purpose.SAMPLE, jnp.broadcast_to(prompt_id, (room,)), branches.prefix_tokens + jnp.arange(room)
    )
    keys = jax.vmap(lambda number: jax.vmap(lambda key: jax.random.fold_in(key, number))(at_place))(branches.number)

    def growing(state: Branches) -> Bool[Array, " branch"]:
        return ~state.ended & ~state.paused & (state.length - before < most) & (state.length < room)

    def step(state: Branches) -> Branches:
        active = growing(state)
        position = state.prefix_tokens + state.length
        shared = jnp.broadcast_to(state.prefix_tokens, (count,))
        result = forward(
            params,
            config,
            state.root[:, None],
            StepInput(
                position[:, None],
                jnp.ones((count, 1, 1), bool),
                sources=[
                    CachedKV(state.prefix, slots_before(shared, 1, slots)),
                    CachedKV(state.cache, slots_before(state.length, 1, room)),
                ],
                kv_codec=stored_kv(config),
            ),
        )
        probability = token_distribution(result.logits[:, 0], decoding)
        log_probability = jnp.log(probability)
        place = jnp.minimum(state.length, room - 1)
        drawn = jax.vmap(jax.random.categorical)(keys[jnp.arange(count), place], log_probability).astype(jnp.int32)
        here = (jnp.arange(room)[None] == state.length[:, None]) & active[:, None]
        chosen = jnp.take_along_axis(log_probability, drawn[:, None], axis=1)
        return dataclasses.replace(
            state,
            # A branch that rests computes its root again: the same values go to the same slot.
            cache=write_cache(state.cache, result.cache, place, after=result.hidden),
            tokens=jnp.where(here, drawn[:, None], state.tokens),
            log_prob=jnp.where(here, chosen, state.log_prob),
            length=state.length + active.astype(jnp.int32),
            root=jnp.where(active, drawn, state.root),
            ended=state.ended | (active & jnp.any(drawn[:, None] == stop[None], axis=1)),
            paused=state.paused | (active & jnp.any(drawn[:, None] == pause[None], axis=1)),
        )

    return jax.lax.while_loop(lambda state: jnp.any(growing(state)), step, begun)


def kept_branches(branches: Branches, index: Int[Array, " branch"], number: Int[Array, " branch"]) -> Branches:
    """Some of the branches, perhaps several times each, with new numbers, so that copies grow apart."""
    rows = {
        name: getattr(branches, name)[index] for name in ("tokens", "length", "root", "ended", "paused", "log_prob")
    }
    cache = take_sequences(branches.cache, index)
    return dataclasses.replace(branches, cache=cache, number=number, **rows)
