"""The compiled loop of decoding: batched, inside one `lax.while_loop`, with explicit KV caches.

A cycle drafts a tree, verifies all its nodes with the root in one target step under a tree mask, accepts a path and commits
that path's KV alone.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxspec.compress.kv import stored_kv
from jaxspec.models.attention import text_order
from jaxspec.models.blocks import StepInput
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import ForwardResult, Params, causal_mask, forward
from jaxspec.models.decoding_programs import jit_decoding
from jaxspec.models.kv_cache import CachedKV, KVCache, empty_cache, first_slots, take_slots, write_cache
from jaxspec.models.rope import text_lengths
from jaxspec.speculate.drafts.interface import Committed, Draft, Memory, Root, hidden_of
from jaxspec.speculate.dynamic_tree import DynamicTree, draft_dynamic_tree
from jaxspec.speculate.expansion import CandidateLaw, DraftedTree, Levels, TreeLimits, draft_tree, in_levels
from jaxspec.speculate.sampling import Decoding, Purpose, draw_keys, token_distribution
from jaxspec.speculate.steps import slots_before, top_gap
from jaxspec.speculate.tree_rules import TreeVerdict, verify_greedily, verify_tree
from jaxspec.trees.topology import PADDING, Tree, verification_mask, verification_positions

__all__ = ["Decoded", "LoopForm", "Request", "decoding_loop", "verified_view"]


def verified_view(
    cache: KVCache,
    root: Int[Array, " batch"],
    mask: Bool[Array, "*batch token token"],
    depth: Int[Array, "*batch token"],
    deepest: int,
) -> StepInput:
    """Where the root and the nodes of a tree are, and what they see.

    What is added up is the same, in the same order, however many of a token's predecessors are verified along with it: all
    but the `deepest` + 1 last tokens are read from the cache where they lie, and these in the order of the text. So a token has
    the same keys, values and logits, to the last bit, with and without speculation, as long as a row of a matrix product does
    not depend on which row it is.

    Args:
        cache: its slots are positions of the text. root: position of the root, which is not in the cache yet.
        mask: which tokens of the step each of them sees. depth: of each token below the root; in a tree, at most `deepest`.
    """
    batch, tokens = root.shape[0], depth.shape[-1]
    positions = root[:, None] + jnp.atleast_2d(depth)
    mask = jnp.broadcast_to(mask, (batch, tokens, tokens))
    if deepest == 0:
        before = slots_before(root, tokens, cache.num_slots)
        return StepInput(positions, mask, [CachedKV(cache, before)])
    # Of the nearest tokens, those that were committed.
    slot = root[:, None] + jnp.arange(-deepest, 0)[None]
    nearest = jnp.maximum(positions - deepest, 0)[:, :, None]
    recent = CachedKV(take_slots(cache, jnp.maximum(slot, 0)), slot[:, None, :] >= nearest)
    far = CachedKV(cache, jnp.arange(cache.num_slots)[None, None] < nearest)
    of_columns = jnp.concatenate([slot, positions], axis=1)
    order = text_order(positions, of_columns, jnp.concatenate([recent.mask, mask], axis=2), deepest + 1)
    return StepInput(positions, mask, [far, recent], order=order)


class Decoded(NamedTuple):
    """Result of decoding a batch of prompts.

    Attributes:
        tokens: prompt, then what was generated; more than `num_tokens` where the last cycle ran over.
        generated: tokens generated per prompt, `num_tokens` or a little more; up to its stop token where there was one.
        cycles: target steps per prompt, prefill not counted.
        accepted_at: per prompt, cycles in which a token of depth 1, 2, ... was accepted; none behind a stop token counts.
        ended_at: per prompt, cycles whose token of depth 1, 2, ... was accepted and stopped the text: none deeper was tried.
        accepted_nodes: per prompt, cycles in which each node was accepted; a dynamic tree numbers its nodes anew each time.
        margin: gap between the two largest target logits where each generated token was chosen: how near a tie came; infinite
            at other places.
    """

    tokens: Int[Array, "batch length"]
    generated: Int[Array, " batch"]
    cycles: Int[Array, " batch"]
    accepted_at: Int[Array, "batch depth"]
    ended_at: Int[Array, "batch depth"]
    accepted_nodes: Int[Array, "batch node"]
    margin: Float[Array, "batch length"]


class _State(NamedTuple):
    tokens: Array
    length: Array  # committed tokens; the last of them, the root, has no KV in the cache yet
    stopped: Array  # whether a stop token was generated
    target_cache: KVCache
    memory: Memory
    cycles: Array
    accepted_at: Array
    ended_at: Array
    accepted_nodes: Array
    margin: Array


class Request(NamedTuple):
    """What is decoded.

    Attributes:
        prompts: token ids, one or more each. Prompts of unequal length begin at place 0; what follows their ends is not read.
        ids: name the prompts for random draws, so that results do not depend on batching.
        seed: of all draws.
        num_tokens: to decode of each at least, 1 or more, unless a stop token comes before.
        lengths: of the prompts, 1 to their places; None: they have one length. Each prompt is decoded as it is alone.
        stop: tokens that end a text, any number of them; the first one generated is a text's last token. None: there are none.
    """

    prompts: Int[Array, "batch prompt"]
    ids: Int[Array, " batch"]
    seed: Array
    num_tokens: Int[Array, ""] | int
    lengths: Int[Array, " batch"] | None = None
    stop: Int[Array, " stop"] | None = None


class LoopForm(NamedTuple):
    """What a program of decoding is compiled for; see `decode`.

    Attributes:
        draft: None where the limits have no nodes.
        dynamic: None where a tree is given.
    """

    draft: Draft | None
    config: DecoderConfig
    room: int
    law: CandidateLaw
    limits: TreeLimits
    dynamic: DynamicTree | None


@partial(jit_decoding, static_argnames="form")
def decoding_loop(
    target_params: Params, draft_params: Any, request: Request, tree: Tree | None, decoding: Decoding, *, form: LoopForm
) -> Decoded:
    """`decode` with checked arguments.

    Prompts begin at place 0 whatever their lengths: their padding is behind them, where the causal mask hides it from them, and
    where what is generated takes its slots before anything may see them.

    Args:
        tree: None for a dynamic tree.
    """
    batch, places = request.prompts.shape
    lengths = jnp.full(batch, places, jnp.int32) if request.lengths is None else request.lengths.astype(jnp.int32)
    stop = jnp.zeros(0, jnp.int32) if request.stop is None else request.stop
    levels = given = None
    if tree is not None:
        levels = None if form.limits.nodes == 0 else in_levels(tree, form.limits)
        given = _seen_in(tree if form.draft is None or levels is None else levels.tree)
    loop = _Loop(target_params, draft_params, request, lengths, stop, tree, levels, given, decoding, form)
    state = jax.lax.while_loop(lambda state: jnp.any(loop.unfinished(state)), loop.cycle, loop.started())
    return Decoded(
        tokens=state.tokens,
        generated=state.length - lengths,
        cycles=state.cycles,
        accepted_at=state.accepted_at,
        ended_at=state.ended_at,
        accepted_nodes=state.accepted_nodes,
        margin=state.margin,
    )


def _seen_in(tree: Tree) -> tuple[Array, Array]:
    """Mask and depths of the root and the nodes of a tree."""
    return verification_mask(tree), verification_positions(tree)


@dataclasses.dataclass(frozen=True, eq=False)
class _Loop:
    """The parts of one program, with what they share.

    Attributes:
        levels: of a given tree with nodes. given: mask and depths of a given tree, the same for all sequences and cycles.
    """

    target_params: Params
    draft_params: Any
    request: Request
    lengths: Int[Array, " batch"]
    stop: Int[Array, " stop"]
    tree: Tree | None
    levels: Levels | None
    given: tuple[Array, Array] | None
    decoding: Decoding
    form: LoopForm

    @property
    def window(self) -> int:
        """The most that one cycle commits."""
        return self.form.limits.depth + 1

    def target(self, tokens: Array, step: StepInput) -> ForwardResult:
        """A step of the target."""
        config, draft = self.form.config, self.form.draft
        step = step._replace(kv_codec=stored_kv(config))
        return forward(self.target_params, config, tokens, step, hidden_of=hidden_of(draft))

    def commit(self, memory: Memory, committed: Committed) -> Memory:
        """The draft's memory with these tokens."""
        draft = self.form.draft
        return memory if draft is None else draft.commit(self.draft_params, memory, committed)

    def started(self) -> _State:
        """The state behind the prompts."""
        form, (batch, places), lengths = self.form, self.request.prompts.shape, self.lengths
        # The last cycle may start at room − 1 and write a whole window.
        slots = places + form.room + 2 * self.window
        at = jnp.broadcast_to(jnp.arange(places), self.request.prompts.shape)
        step = StepInput(at, causal_mask(batch, places), lengths=text_lengths(at, lengths))
        prefill = self.target(self.request.prompts, step)
        numbers = form.limits.numbers if form.dynamic is None else form.dynamic.numbers
        memory = None if form.draft is None else form.draft.empty(self.draft_params, batch, slots, numbers)
        # The barrier keeps XLA from computing, at compile time, what an empty memory makes of the prompt.
        memory, at_start = jax.lax.optimization_barrier((memory, jnp.zeros(batch, jnp.int32)))
        committed = Committed(
            tokens=self.request.prompts[:, 1:],
            hidden=prefill.for_draft[:, :-1],
            cache=first_slots(prefill.cache, places - 1),
            start=at_start,
            before=self.request.prompts[:, 0],
            valid=lengths - 1,
            extras=jax.tree.map(lambda x: x[:, :-1], prefill.extras),
        )
        unpadded = jnp.where(jnp.arange(places)[None] < lengths[:, None], self.request.prompts, 0)
        cache = empty_cache(form.config, batch, slots, params=self.target_params)
        return _State(
            tokens=jnp.zeros((batch, slots), jnp.int32).at[:, :places].set(unpadded),
            length=lengths,
            stopped=jnp.zeros(batch, bool),
            target_cache=write_cache(cache, prefill.cache, at_start),
            memory=self.commit(memory, committed),
            cycles=jnp.zeros(batch, jnp.int32),
            accepted_at=jnp.zeros((batch, form.limits.depth), jnp.int32),
            ended_at=jnp.zeros((batch, form.limits.depth), jnp.int32),
            accepted_nodes=jnp.zeros((batch, form.limits.nodes), jnp.int32),
            margin=jnp.full((batch, slots), jnp.inf, jnp.float32),
        )

    def unfinished(self, state: _State) -> Bool[Array, " batch"]:
        """Sequences that go on."""
        return (state.length - self.lengths < self.request.num_tokens) & ~state.stopped

    def drafted(self, memory: Memory, root: Root) -> tuple[DraftedTree, Memory]:
        """The tokens of a cycle, and the memory with them."""
        form, batch = self.form, len(self.request.prompts)
        if form.draft is None:
            assert self.tree is not None
            nothing = jnp.zeros((batch, 0), jnp.int32), jnp.zeros((batch, 1, 1), jnp.int32)
            return DraftedTree(self.tree, *nothing, None), memory
        asking, drawn = (
            (form.draft, self.draft_params, memory, root),
            (self.request.seed, self.request.ids, self.decoding),
        )
        if self.levels is None:
            assert form.dynamic is not None
            return draft_dynamic_tree(*asking, form.dynamic, *drawn)
        return draft_tree(*asking, self.levels, *drawn, limits=form.limits, law=form.law)

    def verdict(self, drafted: DraftedTree, logits: Array, mask: Array, root: Root) -> TreeVerdict:
        """What the target accepts."""
        limits, trees = self.form.limits, None if self.form.dynamic is None else 0
        if self.decoding.greedy:
            return jax.vmap(partial(verify_greedily, depths=limits.depth), in_axes=(trees, 0, 0, trees))(
                drafted.tree, jnp.argmax(logits, axis=-1), drafted.candidates, mask
            )
        draw = lambda purpose, position: draw_keys(self.request.seed, purpose, self.request.ids, position)
        per_rank = jax.vmap(lambda key: jax.random.uniform(key, (limits.ranks,)))
        at_depth = [per_rank(draw(Purpose.ACCEPT, root.position + i)) for i in range(1, self.window)]
        none = jnp.zeros((len(self.request.prompts), 0, limits.ranks))
        return jax.vmap(verify_tree, in_axes=(trees, 0, 0, 0, 0, 0))(
            drafted.tree,
            token_distribution(logits, self.decoding),
            drafted.distribution,
            drafted.candidates,
            jnp.stack(at_depth, axis=1) if at_depth else none,
            # One draw per cycle, named by the root's position, which no other cycle of this prompt shares.
            draw(Purpose.NEXT, root.position),
        )

    def cycle(self, state: _State) -> _State:
        """The state behind one more cycle."""
        root_slot, limits = state.length - 1, self.form.limits
        root = Root(jnp.take_along_axis(state.tokens, root_slot[:, None], axis=1)[:, 0], root_slot)
        drafted, memory = self.drafted(state.memory, root)
        mask, depth = jax.vmap(_seen_in)(drafted.tree) if self.given is None else self.given
        view = verified_view(state.target_cache, root_slot, mask, depth, limits.depth)
        verified = self.target(jnp.concatenate([root.token[:, None], drafted.tokens], axis=1), view)
        verdict = self.verdict(drafted, verified.logits, mask, root)
        committed, gaps = _path_of(drafted, verified, verdict, root, limits)
        active, place = self.unfinished(state), jnp.arange(self.window)[None]
        ends = jnp.any(committed.tokens[:, :, None] == self.stop[None, None], axis=2) & (
            place < committed.valid[:, None]
        )
        stops = jnp.any(ends, axis=1)
        # What a cycle yields ends with its first stop token, accepted or drawn.
        yielded = jnp.where(stops, jnp.argmax(ends, axis=1).astype(jnp.int32) + 1, committed.valid)
        within = place < yielded[:, None]
        write = jax.vmap(partial(jax.lax.dynamic_update_slice_in_dim, axis=0))
        written = lambda kept, new: jnp.where(active[:, None], write(kept, new, state.length), kept)
        counted = lambda hits: hits.astype(jnp.int32) * active[:, None].astype(jnp.int32)
        accepted, deep = jnp.minimum(verdict.accepted, yielded), jnp.arange(limits.depth)[None]
        on_path = jnp.where(deep < accepted[:, None], verdict.path, PADDING)
        # Behind a stop token there is nothing; elsewhere whatever follows the valid tokens is overwritten.
        tokens = jnp.where(stops[:, None] & ~within, 0, committed.tokens)
        return _State(
            tokens=written(state.tokens, tokens),
            length=jnp.where(active, state.length + yielded, state.length),
            stopped=state.stopped | (active & stops),
            # A finished sequence rewrites its own last window with the same values.
            target_cache=write_cache(state.target_cache, committed.cache, root_slot, after=verified.hidden),
            memory=self.commit(memory, committed),
            cycles=state.cycles + active.astype(jnp.int32),
            accepted_at=state.accepted_at + counted(deep < accepted[:, None]),
            ended_at=state.ended_at
            + counted(stops[:, None] & (deep + 1 == accepted[:, None]) & (accepted == yielded)[:, None]),
            accepted_nodes=state.accepted_nodes + counted(_nodes_of_path(on_path, self.levels, limits)),
            margin=written(state.margin, jnp.where(within, gaps, jnp.inf)),
        )


def _path_of(
    drafted: DraftedTree, verified: ForwardResult, verdict: TreeVerdict, root: Root, limits: TreeLimits
) -> tuple[Committed, Float[Array, "batch place"]]:
    """Tokens committed after a verification, and the gap between the target's two largest logits at each of them."""
    batch, window = root.token.shape[0], limits.depth + 1
    place = jnp.arange(window)[None]
    if limits.ranks == 1 and limits.depth <= limits.nodes:
        # A chain: its path is its beginning, and nothing has to be gathered.
        by_row = lambda x: x[:, :window]
        path_tokens, cache = drafted.tokens[:, : limits.depth], first_slots(verified.cache, window)
    else:
        # Verified tokens of the path: the root is number 0, node i number i + 1.
        rows = jnp.pad(jnp.maximum(verdict.path, -1) + 1, ((0, 0), (1, 0)))
        by_row = lambda x: jnp.take_along_axis(x, rows.reshape(batch, window, *[1] * (x.ndim - 2)), axis=1)
        path_tokens = jnp.take_along_axis(drafted.tokens, jnp.maximum(verdict.path, 0), axis=1)
        cache = take_slots(verified.cache, rows)
    path_tokens = jnp.pad(path_tokens, ((0, 0), (0, 1)))
    committed = Committed(
        tokens=jnp.where(place == verdict.accepted[:, None], verdict.next_token[:, None], path_tokens).astype(
            jnp.int32
        ),
        hidden=by_row(verified.for_draft),
        cache=cache,
        start=root.position,
        before=root.token,
        valid=verdict.accepted + 1,
        extras=jax.tree.map(by_row, verified.extras),
    )
    return committed, by_row(top_gap(verified.logits))


def _nodes_of_path(
    path: Int[Array, "batch depth"], levels: Levels | None, limits: TreeLimits
) -> Bool[Array, "batch node"]:
    """Mask of the nodes on the accepted path, by their numbers in the given tree."""
    node = path if levels is None else jnp.where(path >= 0, levels.number[path], PADDING)
    return jnp.any(node[:, :, None] == jnp.arange(limits.nodes)[None, None], axis=1)
