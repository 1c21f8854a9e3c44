"""Tree speculative decoding of a real network: batched, inside one `lax.while_loop`, with explicit KV caches.

A cycle drafts a tree, verifies all its nodes with the root in one target step under a tree mask, accepts a path and commits
that path's KV alone. Trees of the same static sizes share one compilation; one without nodes is autoregressive decoding
through the same step.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from jaxspec.checks import (
    check_draft_vocabulary,
    check_key,
    check_network,
    check_prompt_ids,
    check_sizes,
    check_temperature,
    check_tokens,
)
from jaxspec.compress.kv import round_kv
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, causal_mask, forward
from jaxspec.models.kv_cache import CachedKV, KVCache, empty_cache, take_slots, write_cache
from jaxspec.speculate.candidates import CandidateLaw
from jaxspec.speculate.drafts.interface import Committed, Draft, Memory, Root
from jaxspec.speculate.expansion import TreeLimits, draft_tree, in_levels, tree_limits
from jaxspec.speculate.growing_tree import GrowingTree, draft_growing_tree
from jaxspec.speculate.keys import Purpose, draw_keys
from jaxspec.speculate.rules import token_distribution
from jaxspec.speculate.steps import slots_before, top_gap
from jaxspec.speculate.tree_rules import verify_tree
from jaxspec.trees.masks import verification_mask, verification_positions
from jaxspec.trees.topology import PADDING, Tree, check_tree, one_tree

__all__ = ["DecodedTrees", "autoregressive_tree", "decode_tree"]


class DecodedTrees(NamedTuple):
    """Result of decoding a batch of prompts with draft trees.

    Attributes:
        tokens: prompt, then what was generated; more than `num_tokens` where the last cycle ran over.
        generated: tokens generated per prompt, `num_tokens` or a little more.
        cycles: target steps per prompt, prefill not counted.
        accepted_at: per prompt, cycles in which a token of depth 1, 2, ... was accepted.
        accepted_nodes: per prompt, cycles in which each node was accepted; a growing tree numbers its nodes anew each time.
        margin: smallest gap between the two largest target logits at the tokens generated: how near a tie came.
    """

    tokens: Int[Array, "batch length"]
    generated: Int[Array, " batch"]
    cycles: Int[Array, " batch"]
    accepted_at: Int[Array, "batch depth"]
    accepted_nodes: Int[Array, "batch node"]
    margin: Float[Array, " batch"]


class _State(NamedTuple):
    tokens: Array
    length: Array  # committed tokens; the last of them, the root, has no KV in the cache yet
    target_cache: KVCache
    memory: Memory
    cycles: Array
    accepted_at: Array
    accepted_nodes: Array
    margin: Array


def autoregressive_tree(limits: TreeLimits) -> Tree:
    """A tree without nodes: decoding then drafts nothing, at the same static width."""
    padding = jnp.full(limits.nodes, PADDING, jnp.int32)
    return Tree(parent=padding, depth=padding, rank=padding, num_nodes=jnp.asarray(0, jnp.int32))


def decode_tree(
    target_params: Params,
    draft_params: Any,
    prompts: Int[Array, "batch prompt"],
    prompt_ids: Int[Array, " batch"],
    tree: Tree | GrowingTree,
    seed: Key[Array, ""],
    temperature: Float[Array, ""] | float,
    *,
    draft: Draft,
    config: DecoderConfig,
    num_tokens: int,
    greedy: bool,
    law: CandidateLaw = "top",
    limits: TreeLimits | None = None,
    room: int | None = None,
) -> DecodedTrees:
    """Decode every prompt to at least `num_tokens` new tokens.

    Values are checked on the host, unless they are traced (see `jaxspec.checks`): traced tokens outside the vocabulary and a
    traced temperature that is not above 0 give meaningless text.

    Args:
        draft_params: of `draft`.
        prompts: token ids, two or more each; all prompts of a call have one length.
        prompt_ids: names the prompts for random draws, so that results do not depend on batching.
        tree: one tree for all prompts, or how trees grow; not traced: decoding compiles on its own.
        temperature, greedy: greedy takes the largest logit and ignores the temperature; sampling needs one above 0.
        draft: static; it has the target's vocabulary.
        num_tokens: static, at least 1.
        law: how candidates are chosen; greedy decoding and growing trees take the draft's likeliest ("top").
        limits: static sizes, those of the tree unless given; trees of one size within the same limits share one compilation. A
            growing tree has its own.
        room: static number of new tokens that the caches have slots for, `num_tokens` unless given.
    Raises:
        ValueError: an argument out of its range, of another shape or type, more tokens than room, a malformed tree, one beyond
            the limits, prompts of one token, or sampled candidates where only the likeliest are possible.
    Source: SpecInfer, Miao et al. 2024, Algorithm 2.
    """
    room = num_tokens if room is None else room
    check_sizes(num_tokens=num_tokens, room=room)
    batch, _ = check_tokens("prompts", prompts, vocab_size=config.vocab_size, least=2)
    check_prompt_ids(prompt_ids, batch)
    check_temperature(temperature, greedy)
    check_key(seed)
    check_network(target_params, vocab_size=config.vocab_size, hidden_size=config.hidden_size)
    check_draft_vocabulary(draft.vocab_size, config.vocab_size)
    if law not in ("top", "sampled"):
        raise ValueError(f"candidates are {law!r}; they are chosen as 'top' or 'sampled'")
    growing = tree if isinstance(tree, GrowingTree) else None
    if law == "sampled" and (greedy or growing is not None):
        raise ValueError(f"sampled candidates with {'greedy decoding' if greedy else 'a growing tree'}: use law='top'")
    fixed = None if isinstance(tree, GrowingTree) else tree
    if isinstance(tree, GrowingTree):
        if limits is not None:
            raise ValueError(f"limits {limits} came with a growing tree, which has its own; leave them out")
        limits = tree.limits
    else:
        limits = _checked_limits(tree, limits)
    return _decode(
        target_params,
        draft_params,
        prompts,
        prompt_ids,
        fixed,
        seed,
        temperature,
        jnp.asarray(num_tokens),
        draft=draft,
        config=config,
        room=room,
        greedy=greedy,
        law=law,
        limits=limits,
        growing=growing,
    )


def _checked_limits(tree: Tree, limits: TreeLimits | None) -> TreeLimits:
    if int(one_tree(tree).num_nodes) > 0:
        check_tree(tree)
    own = tree_limits(tree)
    if limits is None:
        return own
    sizes = ("nodes", "depth", "ranks", "width")
    beyond = [f"{name} {getattr(own, name)}" for name in sizes if getattr(own, name) > getattr(limits, name)]
    if beyond or own.nodes != limits.nodes:
        raise ValueError(
            f"the tree has {', '.join(beyond) or f'nodes {own.nodes}'}; the limits are {limits}: pad it or raise them"
        )
    return limits


@partial(jax.jit, static_argnames=("draft", "config", "room", "greedy", "law", "limits", "growing"))
def _decode(
    target_params: Params,
    draft_params: Any,
    prompts: Array,
    prompt_ids: Array,
    tree: Tree | None,
    seed: Array,
    temperature: Array,
    num_tokens: Array,
    *,
    draft: Draft,
    config: DecoderConfig,
    room: int,
    greedy: bool,
    law: CandidateLaw,
    limits: TreeLimits,
    growing: GrowingTree | None,
) -> DecodedTrees:
    batch, prompt_length = prompts.shape
    window = limits.depth + 1  # the most that one cycle commits
    # The last cycle may start at room − 1 and write a whole window.
    slots = prompt_length + room + 2 * window
    numbers = limits.numbers if growing is None else growing.numbers
    target = partial(forward, target_params, config, kv_codec=round_kv)
    levels = None if tree is None else in_levels(tree, limits.depth)

    prefill = target(
        tokens=prompts,
        positions=jnp.broadcast_to(jnp.arange(prompt_length), prompts.shape),
        mask=causal_mask(batch, prompt_length),
    )
    # The barrier keeps XLA from computing, at compile time, what an empty memory makes of the prompt.
    memory, at_start = jax.lax.optimization_barrier(
        (draft.empty(draft_params, batch, slots, numbers), jnp.zeros(batch, jnp.int32))
    )
    committed = Committed(
        tokens=prompts[:, 1:],
        hidden=prefill.hidden[:, :-1],
        cache=take_slots(prefill.cache, jnp.broadcast_to(jnp.arange(prompt_length - 1), (batch, prompt_length - 1))),
        start=at_start,
        before=prompts[:, 0],
        valid=jnp.full(batch, prompt_length - 1, jnp.int32),
    )
    state = _State(
        tokens=jnp.zeros((batch, slots), jnp.int32).at[:, :prompt_length].set(prompts),
        length=jnp.full(batch, prompt_length, jnp.int32),
        target_cache=write_cache(empty_cache(config, batch, slots), prefill.cache, at_start),
        memory=draft.commit(draft_params, memory, committed),
        cycles=jnp.zeros(batch, jnp.int32),
        accepted_at=jnp.zeros((batch, limits.depth), jnp.int32),
        accepted_nodes=jnp.zeros((batch, limits.nodes), jnp.int32),
        margin=jnp.full(batch, jnp.inf, jnp.float32),
    )

    def cycle(state: _State) -> _State:
        root_slot = state.length - 1
        root = Root(jnp.take_along_axis(state.tokens, root_slot[:, None], axis=1)[:, 0], root_slot)
        asking = (draft, draft_params, state.memory, root)
        if growing is None:
            assert levels is not None
            drafted, memory = draft_tree(*asking, levels, seed, prompt_ids, temperature, limits=limits, law=law)
        else:
            drafted, memory = draft_growing_tree(*asking, growing, seed, prompt_ids, temperature)

        verified = target(
            tokens=jnp.concatenate([root.token[:, None], drafted.tokens], axis=1),
            positions=root_slot[:, None] + jax.vmap(verification_positions)(drafted.tree),
            mask=jax.vmap(verification_mask)(drafted.tree),
            sources=[CachedKV(state.target_cache, slots_before(root_slot, limits.nodes + 1, slots))],
        )
        p = token_distribution(verified.logits, temperature, greedy)
        draw = lambda purpose, position: draw_keys(seed, purpose, prompt_ids, position)
        per_rank = jax.vmap(lambda key: jax.random.uniform(key, (limits.ranks,)))
        uniforms = jnp.stack([per_rank(draw(Purpose.ACCEPT, root_slot + depth)) for depth in range(1, window)], axis=1)
        # One draw per cycle, named by the root's position, which no other cycle of this prompt shares.
        next_keys = draw(Purpose.NEXT, root_slot)
        verdict = jax.vmap(verify_tree)(drafted.tree, p, drafted.distribution, drafted.candidates, uniforms, next_keys)

        active = state.length - prompt_length < num_tokens
        place = jnp.arange(window)
        path = jnp.pad(verdict.path, ((0, 0), (0, 1)), constant_values=PADDING)
        path_tokens = jnp.take_along_axis(drafted.tokens, jnp.maximum(path, 0), axis=1)
        new = jnp.where(place == verdict.accepted[:, None], verdict.next_token[:, None], path_tokens).astype(jnp.int32)
        # Verified tokens of the path: the root is number 0, node i number i + 1.
        rows = jnp.concatenate([jnp.zeros((batch, 1), jnp.int32), jnp.maximum(path[:, :-1], -1) + 1], axis=1)
        by_row = lambda x: jnp.take_along_axis(x, rows.reshape(batch, window, *[1] * (x.ndim - 2)), axis=1)
        committed = Committed(
            tokens=new,
            hidden=by_row(verified.hidden),
            cache=take_slots(verified.cache, rows),
            start=root_slot,
            before=root.token,
            valid=verdict.accepted + 1,
        )
        write_tokens = jax.vmap(partial(jax.lax.dynamic_update_slice_in_dim, axis=0))
        gap = jnp.where(place <= verdict.accepted[:, None], by_row(top_gap(verified.logits)), jnp.inf)
        count = active[:, None].astype(jnp.int32)
        node = path if levels is None else jnp.where(path >= 0, levels.number[path], PADDING)
        nowhere = jnp.zeros((batch, limits.nodes), jnp.int32)
        at_node = nowhere.at[jnp.arange(batch)[:, None], jnp.where(node >= 0, node, limits.nodes)].add(1, mode="drop")
        return _State(
            tokens=jnp.where(active[:, None], write_tokens(state.tokens, new, state.length), state.tokens),
            length=jnp.where(active, state.length + verdict.accepted + 1, state.length),
            # A finished sequence rewrites its own last window with the same values.
            target_cache=write_cache(state.target_cache, committed.cache, root_slot),
            memory=draft.commit(draft_params, memory, committed),
            cycles=state.cycles + active.astype(jnp.int32),
            accepted_at=state.accepted_at + (place[:-1] < verdict.accepted[:, None]).astype(jnp.int32) * count,
            accepted_nodes=state.accepted_nodes + at_node * count,
            margin=jnp.where(active, jnp.minimum(state.margin, jnp.min(gap, axis=1)), state.margin),
        )

    unfinished = lambda state: jnp.any(state.length - prompt_length < num_tokens)
    state = jax.lax.while_loop(unfinished, cycle, state)
    return DecodedTrees(
        tokens=state.tokens,
        generated=state.length - prompt_length,
        cycles=state.cycles,
        accepted_at=state.accepted_at,
        accepted_nodes=state.accepted_nodes,
        margin=state.margin,
    )
