"""Cycles of speculative decoding, predicted from a text that the target put out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from hwmodels.numerics.compensated_sums import EXACT
from jaxspec.checks import check_count, check_lengths, check_sampling, check_tokens
from jaxspec.compress.expert_pool import has_pool
from jaxspec.compress.knobs import Knobs
from jaxspec.compress.kv import compress_cache, stored_kv
from jaxspec.models.blocks import StepInput
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, causal_mask, forward
from jaxspec.models.mesh import mesh_of, split_rows
from jaxspec.models.rope import text_lengths
from jaxspec.models.special_tokens import unembed
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.speculate.acceptance import TargetText, all_starts
from jaxspec.speculate.chunks import Prompts, ends_of, flush_right, gather, generated_tokens, prompt_chunks
from jaxspec.speculate.drafts.elastic_draft import compressed_copy
from jaxspec.speculate.drafts.interface import Draft, Memory, ReadyDraft, Root, hidden_of
from jaxspec.speculate.expansion import TreeLimits, draft_tree, in_levels
from jaxspec.speculate.measured_ranks import ContinuedTexts, TargetTrace, chain_level, trace_target
from jaxspec.speculate.sampling import Decoding, Purpose, draw_keys, token_distribution
from jaxspec.speculate.tree_rules import residual_distribution, verify_greedily
from jaxspec.trees.topology import Tree, verification_mask, verification_positions

__all__ = [
    "CycleStatistics",
    "ReplayedTexts",
    "expected_cycles",
    "predict_cycles",
    "predict_trees",
    "replay_chains",
    "replay_trees",
]

# Cycles that decoding a known text takes in expectation: the renewal of cycles along it.


class CycleStatistics(NamedTuple):
    """Expected cycles and accepted tokens of decoding a known text with drafts of a fixed length.

    Attributes:
        cycles: expected cycles given that decoding puts out this text; over texts drawn from the target their mean is the
            expected number of cycles.
        survival: per text, sum over its cycles of P(tokens 1..d accepted), tokens behind the text's end left out; divided by
            `cycles` it is a mean.
        generated: expected tokens; the last cycle may run over what was asked for, but not over the text's end.
    """

    cycles: Float[Array, " batch"]
    survival: Float[Array, "batch depth"]
    generated: Float[Array, " batch"]


def expected_cycles(
    survival: Float[Array, "batch start depth"],
    draft_length: int,
    num_tokens: int,
    *,
    ends: Int[Array, " batch"] | None = None,
) -> CycleStatistics:
    """Renewal of cycles along a text: where cycles start decides which roots count, and how often.

    A cycle that starts at position t and accepts n tokens makes the next start at t + n + 1. Cycles start after refused
    tokens, so roots are not spread evenly over the text: the plain mean over positions would be biased.

    Args:
        survival: from `all_starts`, whose first start is the prompt's last token.
        draft_length: static, 1 to the depth of `survival`.
        num_tokens: static; decoding ends with the cycle that reaches this many tokens.
        ends: tokens of each text, the one that stops it included, where it stops before its last start; None: none stops.
    Raises:
        ValueError: fewer starts than tokens, or a number out of its range.
    """
    check_count("num_tokens", num_tokens)
    check_count("draft_length", draft_length, most=survival.shape[-1])
    if survival.shape[1] < num_tokens:
        raise ValueError(f"{survival.shape[1]} starts cannot tell about {num_tokens} tokens; measure a longer text")
    return _renewal(survival, ends, draft_length, num_tokens)


@partial(jax.jit, static_argnums=(2, 3))
def _renewal(
    survival: Float[Array, "batch start depth"], ends: Int[Array, " batch"] | None, draft_length: int, num_tokens: int
) -> CycleStatistics:
    depth = survival[..., :draft_length]
    at_least = jnp.concatenate([jnp.ones_like(depth[..., :1]), depth, jnp.zeros_like(depth[..., :1])], axis=-1)
    exactly = at_least[..., :-1] - at_least[..., 1:]  # P(n accepted), n = 0..draft_length

    batch = survival.shape[0]
    start = jnp.arange(num_tokens)
    ends = jnp.full(batch, num_tokens + draft_length + 1) if ends is None else ends.astype(start.dtype)

    def advance(visits, t):
        visit = jnp.where(t < ends, visits[:, 0], 0.0)
        spread = visit[:, None] * jax.lax.dynamic_index_in_dim(exactly, t, axis=1, keepdims=False)
        shifted = jnp.concatenate([visits[:, 1:], jnp.zeros_like(visits[:, :1])], axis=1)
        return shifted + spread, visit

    first = jnp.zeros((batch, draft_length + 1), survival.dtype).at[:, 0].set(1.0)
    _, visits = jax.lax.scan(advance, first, start)
    visits = visits.T  # "batch start"
    used = depth[:, : visits.shape[1]]
    # At [.., start, depth], how many tokens there are up to a drafted one.
    upto = (start[:, None] + 1 + jnp.arange(draft_length)[None])[None]
    inside = upto <= ends[:, None, None]
    # A drafted token that stops the text takes the place of the one that a cycle adds to those accepted.
    stopping = upto == ends[:, None, None]
    total = lambda chosen: jnp.einsum("bs,bsd->bd", visits, jnp.where(chosen, used, 0.0), precision=EXACT)
    cycles, accepted = jnp.sum(visits, axis=1), total(inside)
    generated = cycles + jnp.sum(accepted, axis=1) - jnp.sum(total(stopping), axis=1)
    return CycleStatistics(cycles=cycles, survival=accepted, generated=generated)


# Cycles of a draft along a known text, one after the other, with the memory that decoding would have.


class ReplayedTexts(NamedTuple):
    """Texts that the target put out, those that are decoded together.

    Attributes:
        tokens: prompts and what follows them, each from place 0 on; more than is generated by as much as a cycle commits.
        ids: name the texts for random draws.
        lengths: of the prompts.
        ends: generated tokens up to where each text stops; more than there are where it does not.
        num_tokens: cycles end with the one that reaches this many.
    """

    tokens: Int[Array, "batch token"]
    ids: Int[Array, " batch"]
    lengths: Int[Array, " batch"]
    ends: Int[Array, " batch"]
    num_tokens: Int[Array, ""] | int


class _State(NamedTuple):
    memory: Memory
    generated: Array  # tokens behind the prompt, the root included
    cycles: Array
    survival: Array


#: What one cycle drafts after a root: how many of these tokens the text accepts, and the memory with all that was drafted.
_Asked = Callable[[TargetTrace, Memory, Root], tuple[Int[Array, " batch"], Memory]]


@partial(jax.jit, static_argnames=("draft", "config", "prompt_tokens", "most_drafted"))
def replay_chains(
    target_params: Params,
    draft_params: Any,
    texts: ReplayedTexts,
    draft_length: Int[Array, ""] | int,
    seed: Key[Array, ""],
    decoding: Decoding,
    *,
    draft: Draft,
    config: DecoderConfig,
    prompt_tokens: int,
    most_drafted: int,
) -> CycleStatistics:
    """Replay texts with chains: the draft proposes tokens, the text accepts some of them, and the next cycle starts behind.

    A drafted token is accepted with the probability that it had given that decoding put out this very text. A refused one is
    drawn from what the draft proposes too often, and those behind it from the draft, as in decoding: memory gets what it would.

    Args:
        draft_length: 1 to `most_drafted`, which is static: lengths share one compilation.
        prompt_tokens: static; places of the longest prompt.
    Returns:
        Counts of one replay of each text. Their mean over draws, and over sampled texts, is the expectation.
    Source: Leviathan et al. 2023, arXiv:2211.17192, Algorithm 1, conditioned on the tokens that it puts out.
    """
    batch, numbers = texts.tokens.shape[0], most_drafted + 2

    def judge(
        trace: TargetTrace, logits: Array, followed: Bool[Array, " batch"], position: Int[Array, " batch"]
    ) -> tuple[Int[Array, " batch"], Bool[Array, " batch"]]:
        """The drafted token of a position, and whether it and all before it are accepted."""
        hidden = jnp.take_along_axis(trace.target.hidden, position[:, None, None] - 1, axis=1)[:, 0]
        p, q = (
            token_distribution(unembed(hidden, target_params, config), decoding),
            token_distribution(logits, decoding),
        )
        token = trace.token_at(position)
        p_text, q_text = (jnp.take_along_axis(x, token[:, None], axis=1)[:, 0] for x in (p, q))
        chance = jnp.where(p_text > 0, q_text / jnp.where(p_text > 0, p_text, 1.0), 0.0)
        keys = draw_keys(seed, Purpose.FOLLOW, texts.ids, position)
        accept_key, token_key = jax.vmap(jax.random.split, out_axes=1)(keys)
        accepted = followed & (jax.vmap(jax.random.uniform)(accept_key) < chance)
        # Given what came out, draft and target change places in the rules of a drafted token.
        others = jnp.where(followed[:, None], residual_distribution(q, p), q)
        other = jax.vmap(jax.random.categorical)(token_key, jnp.log(others))
        return jnp.where(accepted, token, other.astype(token.dtype)), accepted

    def chain(trace: TargetTrace, memory: Memory, root: Root) -> tuple[Int[Array, " batch"], Memory]:
        logits, memory = draft.open(draft_params, memory, root)

        def ask(depth: Array, carry: tuple) -> tuple:
            memory, logits, followed, count = carry
            token, followed = judge(trace, logits, followed, root.position + depth)
            logits, memory = draft.extend(draft_params, memory, root, chain_level(token, depth, numbers))
            return memory, logits[:, 0], followed, count + followed.astype(count.dtype)

        carry = memory, logits, jnp.ones(batch, bool), jnp.zeros(batch, jnp.int32)
        memory, logits, followed, count = jax.lax.fori_loop(1, draft_length, ask, carry)
        _, followed = judge(trace, logits, followed, root.position + draft_length)
        return count + followed.astype(count.dtype), memory

    asked = (draft, draft_params, config, texts)
    return _follow(chain, target_params, *asked, prompt_tokens=prompt_tokens, depth=most_drafted, numbers=numbers)


@partial(jax.jit, static_argnames=("draft", "config", "prompt_tokens", "limits"))
def replay_trees(
    target_params: Params,
    draft_params: Any,
    texts: ReplayedTexts,
    tree: Tree,
    seed: Key[Array, ""],
    decoding: Decoding,
    *,
    draft: Draft,
    config: DecoderConfig,
    prompt_tokens: int,
    limits: TreeLimits,
) -> CycleStatistics:
    """Replay texts with trees of the draft's likeliest tokens, of which the text's own are accepted.

    Args: as for `replay_chains`; tree, limits: as for `decode`.
    """
    levels = in_levels(tree, limits)
    # The text is a target with one certain token at each depth; nodes off the text are never reached.
    deep, sees = verification_positions(levels.tree), verification_mask(levels.tree)

    def branches(trace: TargetTrace, memory: Memory, root: Root) -> tuple[Int[Array, " batch"], Memory]:
        asked = (draft, draft_params, memory, root)
        drafted, memory = draft_tree(*asked, levels, seed, texts.ids, decoding, limits=limits, law="top")
        after = jnp.take_along_axis(trace.tokens, root.position[:, None] + 1 + deep[None], axis=1)
        one = partial(verify_greedily, levels.tree, sees=sees, depths=limits.depth)
        return jax.vmap(lambda *of: one(*of).accepted)(after, drafted.candidates), memory

    asked = (draft, draft_params, config, texts)
    depth, numbers = limits.depth, limits.numbers
    return _follow(branches, target_params, *asked, prompt_tokens=prompt_tokens, depth=depth, numbers=numbers)


def _follow(
    ask: _Asked,
    target_params: Params,
    draft: Draft,
    draft_params: Any,
    config: DecoderConfig,
    texts: ReplayedTexts,
    *,
    prompt_tokens: int,
    depth: int,
    numbers: int,
) -> CycleStatistics:
    """The loop over cycles; depth: most tokens that one accepts."""
    batch, window = texts.tokens.shape[0], depth + 1
    # A sequence that has finished goes on from its last root until all have, as in decoding; it may reach over its text's end.
    trace = trace_target(
        target_params, config, texts.tokens, texts.lengths, padding=1, beyond=2 * window, hidden_of=hidden_of(draft)
    )

    def unfinished(state: _State) -> Bool[Array, " batch"]:
        return (state.generated < texts.num_tokens) & (state.generated < texts.ends)

    def cycle(state: _State) -> _State:
        root = trace.root(texts.lengths - 1 + state.generated)
        accepted, memory = ask(trace, state.memory, root)
        active = unfinished(state)
        # A drafted token that stops the text takes the place of the one that a cycle adds to those accepted.
        room = texts.ends - state.generated
        hits = (jnp.arange(depth)[None] < jnp.minimum(accepted, room)[:, None]) & active[:, None]
        return _State(
            memory=draft.commit(draft_params, memory, trace.committed(root.position, window, accepted + 1)),
            generated=jnp.where(active, state.generated + jnp.minimum(accepted + 1, room), state.generated),
            cycles=state.cycles + active.astype(jnp.int32),
            survival=state.survival + hits.astype(jnp.int32),
        )

    # The barrier keeps XLA from computing, at compile time, what an empty memory makes of the prompt.
    memory, at_start = jax.lax.optimization_barrier(
        (draft.empty(draft_params, batch, trace.tokens.shape[1], numbers), jnp.zeros(batch, jnp.int32))
    )
    memory = draft.commit(draft_params, memory, trace.committed(at_start, prompt_tokens - 1, texts.lengths - 1))
    none = jnp.zeros(batch, jnp.int32)
    state = _State(memory, none, none, jnp.zeros((batch, depth), jnp.int32))
    state = jax.lax.while_loop(lambda state: jnp.any(unfinished(state)), cycle, state)
    real: Callable[[Array], Float[Array, "*b"]] = lambda counts: counts.astype(jnp.float32)
    return CycleStatistics(real(state.cycles), real(state.survival), real(state.generated))


class _AlongTexts(NamedTuple):
    """`CycleStatistics`, and tokens gained at each start."""

    cycles: Float[Array, " batch"]
    survival: Float[Array, "batch depth"]
    generated: Float[Array, " batch"]
    gained: Float[Array, "batch start"]


def predict_cycles(
    target: Params,
    draft: Params,
    config: DecoderConfig,
    prompts: Prompts,
    texts: np.ndarray,
    *,
    knobs: Knobs,
    draft_length: int,
    longest: int | None = None,
    sharing: int = 1,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, np.ndarray]:
    """Expected cycles of each text without decoding it: acceptance at every position, then the renewal of cycles.

    A draft whose pools of experts depend on earlier drafts is replayed along the text instead (see `replay_chains`).

    Args:
        draft: the matrices of the target's compressed copy; knobs: how it reads committed KV, and the size of its pools.
        prompts: that would be decoded; draws are made where there are pools and tokens are sampled.
        texts: prompts and their autoregressive continuation of `continuation_length(num_tokens)` tokens, or up to a stop token;
            each from place 0 on, what follows its end is not read.
        longest: draft length whose gains are returned too, at most `MAX_DRAFT_LENGTH`; None: none are. The draft runs over the
            texts as many times as the larger of both lengths.
        sharing: texts that share a pool of experts, as they were decoded.
    Returns:
        The fields of `CycleStatistics`, over all texts; with `longest`, but for drafts with pools, also `gained`, "text start":
        tokens that a cycle beginning there gains in expectation with a draft of `longest` tokens.
    Raises:
        ValueError: an argument out of its range, or texts that are too short.
    """
    prompt_tokens, num_tokens, lengths = prompts.tokens.shape[1], prompts.num_tokens, prompts.known_lengths
    check_count("prompt_tokens", prompt_tokens)
    check_count("num_tokens", num_tokens)
    check_count("draft_length", draft_length, most=MAX_DRAFT_LENGTH)
    if longest is not None:
        check_count("longest", longest, most=MAX_DRAFT_LENGTH)
    count, places = check_tokens("texts", texts, vocab_size=config.vocab_size, least=prompt_tokens + num_tokens)
    check_lengths(prompts.lengths, count, prompt_tokens)
    check_sampling(prompts.decoding)
    temperature = jnp.asarray(prompts.decoding.temperature, jnp.float32)
    decoding = dataclasses.replace(prompts.decoding, temperature=temperature).for_program()
    room = places - prompt_tokens
    ends = ends_of(generated_tokens(texts, lengths, np.full(count, room), room), prompts.stop)

    if has_pool(knobs, config):
        ready = compressed_copy(config, draft, knobs, sharing=sharing)

        def replay(tokens: Array, ids: Array, rows: Array, ends: Array):
            key, known = jax.random.key(prompts.seed), ReplayedTexts(tokens, ids, rows, ends, jnp.asarray(num_tokens))
            static = {"draft": ready.draft, "config": config}
            static |= {"prompt_tokens": prompt_tokens, "most_drafted": MAX_DRAFT_LENGTH}
            replayed = replay_chains(target, ready.params, known, jnp.asarray(draft_length), key, decoding, **static)
            return replayed._replace(survival=replayed.survival[:, :draft_length])

        return _in_chunks(target, texts, lengths, ends, replay, advance, sharing)

    def renewed(texts: Array, ids: Array, before: Array, ends: Array):
        del ids
        deepest, where = max(draft_length, longest or 0), {"config": config, "first": prompt_tokens - 1}
        survival = _survival(target, draft, texts, before, knobs, decoding, jnp.asarray(deepest), **where)
        # What is not drafted is not accepted, so that all lengths share one program.
        drafted = jnp.where(np.arange(MAX_DRAFT_LENGTH) < draft_length, survival, 0.0)
        cycles = expected_cycles(drafted, MAX_DRAFT_LENGTH, num_tokens, ends=ends)
        cycles = cycles._replace(survival=cycles.survival[:, :draft_length])
        if longest is None:
            return cycles
        return _AlongTexts(*cycles, gained=1.0 + jnp.sum(survival[..., :longest], axis=-1))

    # Generated tokens are in the same columns in all texts.
    return _in_chunks(target, *flush_right(texts, lengths + room), ends, renewed, advance)


def predict_trees(
    target: Params,
    draft: ReadyDraft,
    config: DecoderConfig,
    prompts: Prompts,
    texts: ContinuedTexts,
    tree: Tree,
    *,
    limits: TreeLimits,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, np.ndarray]:
    """Cycles of each text with a tree of a draft's likeliest tokens, replayed along it without decoding (see `replay_trees`).

    For drafts whose acceptance depends on earlier cycles; for others `record_ranks` covers all trees at once.

    Args:
        prompts: as for `predict_cycles`. texts: of these prompts. tree, limits: as for `decode`.
    """
    room = texts.tokens.shape[1] - prompts.tokens.shape[1]
    ends = np.full(len(texts.tokens), room + 1) if texts.generated is None else np.asarray(texts.generated)
    ends = np.where(ends < room, ends, room + 1).astype(np.int32)

    def replay(tokens: Array, ids: Array, rows: Array, ends: Array):
        key, static = jax.random.key(prompts.seed), {"draft": draft.draft, "config": config}
        static |= {"prompt_tokens": prompts.tokens.shape[1], "limits": limits}
        known = ReplayedTexts(tokens, ids, rows, ends, jnp.asarray(prompts.num_tokens))
        return replay_trees(target, draft.params, known, tree, key, prompts.decoding.for_program(), **static)

    return _in_chunks(target, texts.tokens, prompts.known_lengths, ends, replay, advance, draft.sharing)


def _in_chunks(
    target: Params,
    texts: np.ndarray,
    rows: np.ndarray,
    ends: np.ndarray,
    predict: Callable[[Array, Array, Array, Array], CycleStatistics | _AlongTexts],
    advance: Callable[[], None],
    sharing: int = 1,
) -> dict[str, np.ndarray]:
    """Predictions (of texts, ids, rows, ends) of all texts, chunk by chunk, as decoding takes them."""
    parts = []
    for chunk in prompt_chunks(texts, mesh_of(target), sharing=sharing):
        these, of_rows, of_ends = split_rows(target, chunk.prompts, chunk.of(rows), chunk.of(ends))
        parts.append((jax.block_until_ready(predict(these, chunk.ids, of_rows, of_ends)), chunk.real))
        advance()
    return gather(parts)


@partial(jax.jit, static_argnames=("config", "first"))
def _survival(
    target: Params,
    draft: Params,
    tokens: Int[Array, "batch token"],
    before: Int[Array, " batch"],
    knobs: Knobs,
    decoding: Decoding,
    draft_length: Int[Array, ""],
    *,
    config: DecoderConfig,
    first: int,
) -> Float[Array, "batch start depth"]:
    queries = tokens.shape[1] - 1
    place = jnp.arange(queries)[None]
    positions = jnp.maximum(place - before[:, None], 0)
    result = forward(
        target,
        config,
        tokens[:, :-1],
        StepInput(
            positions,
            causal_mask(tokens.shape[0], queries) & (place >= before[:, None])[:, None, :],
            kv_codec=stored_kv(config),
            lengths=text_lengths(positions, first + 1 - before),
        ),
        logits_from=queries,
    )
    return all_starts(
        draft,
        config,
        TargetText(tokens=tokens, hidden=result.hidden[:, first:], before=before),
        compress_cache(result.cache, knobs),
        target=target,
        block=draft_length,
        most=MAX_DRAFT_LENGTH,
        decoding=decoding,
    )
