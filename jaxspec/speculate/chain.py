"""Chain speculative decoding of a real network: batched, inside one `lax.while_loop`, with explicit KV caches.

A cycle drafts γ tokens one by one, verifies them with the root in one target step of static width, accepts a prefix and
commits. The number drafted may vary at run time below the static width, so that all configurations, and the autoregressive
baseline (which drafts nothing), run the same compiled step.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from jaxspec.checks import (
    check_key,
    check_network,
    check_prompt_ids,
    check_sizes,
    check_temperature,
    check_tokens,
    check_traced_count,
)
from jaxspec.compress.knobs import Knobs
from jaxspec.compress.kv import compress_cache, round_kv
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, causal_mask, forward
from jaxspec.models.kv_cache import CachedKV, KVCache, empty_cache, write_cache
from jaxspec.speculate.keys import Purpose, draw_keys
from jaxspec.speculate.rules import token_distribution, verify_chain
from jaxspec.speculate.steps import slots_before, top_gap


class Decoded(NamedTuple):
    """Result of decoding a batch of prompts.

    Attributes:
        tokens: prompt, then what was generated; more than `num_tokens` where the last cycle ran over.
        generated: tokens generated per prompt, `num_tokens` or a little more.
        cycles: target steps per prompt, prefill not counted.
        accepted_at: per prompt, cycles in which draft token d (first: index 0) was accepted.
        margin: smallest gap between the two largest target logits at the tokens generated: how near a tie came.
    """

    tokens: Int[Array, "batch length"]
    generated: Int[Array, " batch"]
    cycles: Int[Array, " batch"]
    accepted_at: Int[Array, "batch depth"]
    margin: Float[Array, " batch"]


class _State(NamedTuple):
    tokens: Array
    length: Array  # committed tokens; the last of them, the root, has no KV in the cache yet
    target_cache: KVCache
    draft_cache: KVCache
    cycles: Array
    accepted_at: Array
    margin: Array


def decode(
    target_params: Params,
    draft_params: Params,
    prompts: Int[Array, "batch prompt"],
    prompt_ids: Int[Array, " batch"],
    knobs: Knobs,
    draft_length: Int[Array, ""] | int,
    seed: Key[Array, ""],
    temperature: Float[Array, ""] | float,
    *,
    config: DecoderConfig,
    num_tokens: int,
    width: int,
    greedy: bool,
    room: int | None = None,
) -> Decoded:
    """Decode every prompt to at least `num_tokens` new tokens.

    Values are checked on the host, unless they are traced (see `jaxspec.checks`). A traced `draft_length` out of range counts
    as the nearest one in range; traced tokens outside the vocabulary and a traced temperature that is not above 0 give
    meaningless text.

    Args:
        target_params, draft_params: the draft's matrices may be anything of the same shape.
        prompts: token ids, one or more each; all prompts of a call have one length.
        prompt_ids: names the prompts for random draws, so that results do not depend on batching.
        knobs: only their KV part is used: how the draft reads committed KV.
        draft_length: tokens drafted per cycle, 0 (autoregressive) to width − 1; may be traced.
        temperature, greedy: greedy takes the largest logit and ignores the temperature; sampling needs one above 0.
        width: static tokens per verification, root included.
        num_tokens: static, at least 1.
        room: static number of new tokens that the caches have slots for, `num_tokens` unless given. Calls that share it
            share one compilation, whatever their `num_tokens`.
    Raises:
        ValueError: an argument out of its range, of another shape or type, or more tokens than room.
    """
    room = num_tokens if room is None else room
    check_sizes(num_tokens=num_tokens, room=room, width=width)
    batch, _ = check_tokens("prompts", prompts, vocab_size=config.vocab_size)
    check_prompt_ids(prompt_ids, batch)
    check_traced_count("draft_length", draft_length, least=0, most=width - 1)
    check_temperature(temperature, greedy)
    check_key(seed)
    check_network(target_params, vocab_size=config.vocab_size, hidden_size=config.hidden_size)
    return _decode(
        target_params,
        draft_params,
        prompts,
        prompt_ids,
        knobs,
        draft_length,
        seed,
        temperature,
        jnp.asarray(num_tokens),
        config=config,
        room=room,
        width=width,
        greedy=greedy,
    )


@partial(jax.jit, static_argnames=("config", "room", "width", "greedy"))
def _decode(
    target_params: Params,
    draft_params: Params,
    prompts: Array,
    prompt_ids: Array,
    knobs: Knobs,
    draft_length: Array,
    seed: Array,
    temperature: Array,
    num_tokens: Array,
    *,
    config: DecoderConfig,
    room: int,
    width: int,
    greedy: bool,
) -> Decoded:
    batch, prompt_length = prompts.shape
    # A traced length was not checked: beyond the window there is nothing that verification could compare it with.
    draft_length = jnp.clip(draft_length, 0, width - 1)
    # The last cycle may start at room − 1 and write a whole window.
    slots = prompt_length + room + 2 * width
    target = partial(forward, target_params, config, kv_codec=round_kv)
    draft = partial(forward, draft_params, config)
    depth = jnp.arange(width)

    prefill = target(
        tokens=prompts,
        positions=jnp.broadcast_to(jnp.arange(prompt_length), prompts.shape),
        mask=causal_mask(batch, prompt_length),
    )
    at_start = jnp.zeros(batch, jnp.int32)
    empty = empty_cache(config, batch, slots)
    state = _State(
        tokens=jnp.zeros((batch, slots), jnp.int32).at[:, :prompt_length].set(prompts),
        length=jnp.full(batch, prompt_length, jnp.int32),
        target_cache=write_cache(empty, prefill.cache, at_start),
        draft_cache=write_cache(empty, compress_cache(prefill.cache, knobs), at_start),
        cycles=jnp.zeros(batch, jnp.int32),
        accepted_at=jnp.zeros((batch, width - 1), jnp.int32),
        margin=jnp.full(batch, jnp.inf),
    )

    def draft_one(i, carry):
        """Token i of the chain; its predecessor's KV goes to the slot that verification will overwrite."""
        chain, q, cache, root_slot = carry
        slot = root_slot + i
        result = draft(
            tokens=jax.lax.dynamic_slice_in_dim(chain, i, 1, axis=1),
            positions=slot[:, None],
            mask=jnp.ones((batch, 1, 1), bool),
            sources=[CachedKV(cache, slots_before(slot, 1, slots))],
        )
        distribution = token_distribution(result.logits[:, 0], temperature, greedy)
        keys = draw_keys(seed, Purpose.DRAFT, prompt_ids, slot + 1)
        token = jax.vmap(jax.random.categorical)(keys, jnp.log(distribution)).astype(jnp.int32)
        chain = jax.lax.dynamic_update_slice_in_dim(chain, token[:, None], i + 1, axis=1)
        q = jax.lax.dynamic_update_slice_in_dim(q, distribution[:, None], i, axis=1)
        return chain, q, write_cache(cache, result.cache, slot), root_slot

    def cycle(state: _State) -> _State:
        root_slot = state.length - 1
        root = jnp.take_along_axis(state.tokens, root_slot[:, None], axis=1)
        chain = jnp.zeros((batch, width + 1), jnp.int32).at[:, :1].set(root)
        q = jnp.zeros((batch, width, config.vocab_size))
        carry = (chain, q, state.draft_cache, root_slot)
        chain, q, draft_cache, _ = jax.lax.fori_loop(0, draft_length, draft_one, carry)

        positions = root_slot[:, None] + depth
        verified = target(
            tokens=chain[:, :width],
            positions=positions,
            mask=causal_mask(batch, width),
            sources=[CachedKV(state.target_cache, slots_before(root_slot, width, slots))],
        )
        p = token_distribution(verified.logits, temperature, greedy)
        drafted = chain[:, 1:]
        draw = lambda purpose, position: draw_keys(seed, purpose, prompt_ids, position)
        uniforms = jnp.stack(
            [jax.vmap(jax.random.uniform)(draw(Purpose.ACCEPT, positions[:, i] + 1)) for i in range(width)], axis=1
        )
        # One draw per cycle, named by the root's position, which no other cycle of this prompt shares.
        next_keys = draw(Purpose.NEXT, root_slot)
        verdict = jax.vmap(verify_chain, in_axes=(0, 0, 0, None, 0, 0))(
            p, q, drafted, draft_length, uniforms, next_keys
        )

        active = state.length - prompt_length < num_tokens
        new = jnp.where(depth == verdict.accepted[:, None], verdict.next_token[:, None], drafted)
        write_tokens = jax.vmap(partial(jax.lax.dynamic_update_slice_in_dim, axis=0))
        tokens = write_tokens(state.tokens, new.astype(jnp.int32), state.length)
        committed = depth <= verdict.accepted[:, None]
        gap = jnp.min(jnp.where(committed, top_gap(verified.logits), jnp.inf), axis=1)
        accepted = (depth[:-1] < verdict.accepted[:, None]).astype(jnp.int32)
        return _State(
            tokens=jnp.where(active[:, None], tokens, state.tokens),
            length=jnp.where(active, state.length + verdict.accepted + 1, state.length),
            # A finished sequence rewrites its own last window with the same values.
            target_cache=write_cache(state.target_cache, verified.cache, root_slot),
            draft_cache=write_cache(draft_cache, compress_cache(verified.cache, knobs), root_slot),
            cycles=state.cycles + active.astype(jnp.int32),
            accepted_at=state.accepted_at + accepted * active[:, None].astype(jnp.int32),
            margin=jnp.where(active, jnp.minimum(state.margin, gap), state.margin),
        )

    unfinished = lambda state: jnp.any(state.length - prompt_length < num_tokens)
    state = jax.lax.while_loop(unfinished, cycle, state)
    return Decoded(
        tokens=state.tokens,
        generated=state.length - prompt_length,
        cycles=state.cycles,
        accepted_at=state.accepted_at,
        margin=state.margin,
    )


def decode_autoregressively(
    target_params: Params,
    prompts: Int[Array, "batch prompt"],
    prompt_ids: Int[Array, " batch"],
    knobs: Knobs,
    seed: Key[Array, ""],
    temperature: Float[Array, ""] | float,
    *,
    config: DecoderConfig,
    num_tokens: int,
    width: int,
    greedy: bool,
    room: int | None = None,
) -> Decoded:
    """Autoregressive decoding through the same compiled step at the same static width: the draft's place stays empty.

    Args:
        knobs: any of the scheme that this is compared with, so that both share a compilation; nothing reads what they do.
        others: as for `decode`.
    Raises:
        ValueError: see `decode`.
    """
    return decode(
        target_params,
        target_params,
        prompts,
        prompt_ids,
        knobs,
        jnp.asarray(0),
        seed,
        temperature,
        config=config,
        num_tokens=num_tokens,
        width=width,
        greedy=greedy,
        room=room,
    )
