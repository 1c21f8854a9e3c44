"""Ranks that a draft gives to a text's own tokens, from every root on: all that a static tree's acceptance depends on.

A tree's node is accepted if the draft gave the rank on its path to each of the target's tokens. Under greedy decoding the
target's tokens are its text, so that these ranks give for any tree, without running a network again, the tokens accepted in
every cycle. At a temperature the same holds in expectation for text that the target sampled, with candidates that are the
draft's likeliest tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxspec.checks import check_count, check_draft_vocabulary, check_lengths, check_network, check_tokens
from jaxspec.compress.kv import stored_kv
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import ForwardResult, Params, forward_text
from jaxspec.models.kv_cache import take_slots
from jaxspec.models.mesh import mesh_of, on_host, split_rows
from jaxspec.models.rope import text_lengths
from jaxspec.speculate.chunks import prompt_chunks
from jaxspec.speculate.drafts.interface import Blocks, Committed, Draft, Level, Memory, ReadyDraft, Root, hidden_of
from jaxspec.trees.rank_traces import ENDED, UNKNOWN, RankTraces

__all__ = [
    "ContinuedTexts",
    "KeptTraces",
    "TargetTrace",
    "chain_level",
    "measure_ranks",
    "rank_of",
    "ranks_asked",
    "ranks_followed",
    "record_ranks",
    "trace_target",
]

#: Logits that a draft gives at once, 256 MB in float32.
_LOGITS = 1 << 26

# A known text and the target's pass over it, cut into the windows that decoding would commit to a draft.


class ContinuedTexts(NamedTuple):
    """Prompts and what the target put out after them; on the host or on a device.

    Attributes:
        tokens: each text from place 0 on; what follows its end is not read.
        lengths: of the prompts; None: all have as many tokens as the longest.
        generated: tokens that each text has after its prompt; a text that has fewer than there are places behind the longest
            prompt stopped with the last of them. None: none stopped.
    """

    tokens: Int[Any, "batch token"]
    lengths: Int[Any, " batch"] | None = None
    generated: Int[Any, " batch"] | None = None

    @classmethod
    def of(cls, texts: ContinuedTexts | Int[Any, "batch token"]) -> ContinuedTexts:
        """The texts, also given as tokens alone."""
        return texts if isinstance(texts, cls) else cls(texts)


class TargetTrace(NamedTuple):
    """Texts from place 0 on, and the target's pass over them.

    Attributes:
        tokens: "batch token"; more than the target has seen are padding.
        target: its forward pass over them, without logits.
    """

    tokens: Int[Array, "batch token"]
    target: ForwardResult

    def token_at(self, position: Int[Array, " batch"]) -> Int[Array, " batch"]:
        """The token at a position of each text, which must be there."""
        return jnp.take_along_axis(self.tokens, position[:, None], axis=1)[:, 0]

    def root(self, position: Int[Array, " batch"]) -> Root:
        """The last committed token, at these positions."""
        return Root(self.token_at(position), position)

    def committed(self, start: Int[Array, " batch"], places: int, valid: Int[Array, " batch"]) -> Committed:
        """A window of so many places (static) from `start` on, as decoding would commit it."""
        batch, slots = len(start), start[:, None] + jnp.arange(places)[None]
        at_slots = lambda x: jnp.take_along_axis(x, slots.reshape(batch, places, *[1] * (x.ndim - 2)), axis=1)
        return Committed(
            tokens=jnp.take_along_axis(self.tokens, slots + 1, axis=1),
            hidden=at_slots(self.target.for_draft),
            cache=take_slots(self.target.cache, slots),
            start=start,
            before=self.token_at(start),
            valid=valid,
            extras=jax.tree.map(at_slots, self.target.extras),
        )


def trace_target(
    params: Params,
    config: DecoderConfig,
    texts: Int[Array, "batch token"],
    lengths: Int[Array, " batch"],
    *,
    padding: int,
    beyond: int = 0,
    hidden_of: tuple[int, ...] | None = None,
) -> TargetTrace:
    """Run the target over texts once, each token rotated as decoding rotates it.

    Args:
        lengths: of the prompts that the texts begin with.
        padding: static; zeros behind the texts that the target does not see. beyond: static; zeros before these that it does.
        hidden_of: as for `forward`.
    """
    seen = jnp.pad(texts, ((0, 0), (0, beyond)))
    rotated_for = text_lengths(jnp.broadcast_to(jnp.arange(seen.shape[1]), seen.shape), lengths)
    how = {"kv_codec": stored_kv(config), "lengths": rotated_for, "hidden_of": hidden_of, "logits_from": seen.shape[1]}
    result = forward_text(params, config, seen, **how)
    return TargetTrace(jnp.pad(seen, ((0, 0), (0, padding))), result)


#: Bytes of passes that are kept.
_KEPT = 1 << 29


class KeptTraces:
    """Passes of targets over texts, kept for several drafts that are measured on the same ones."""

    def __init__(self) -> None:
        self._traces: dict[Hashable, TargetTrace] = {}

    def trace(self, key: Hashable, compute: Callable[[], TargetTrace]) -> TargetTrace:
        """The pass of this name; all others go where it would be too many bytes with them."""
        if key in self._traces:
            return self._traces[key]
        made = compute()
        num_bytes = lambda *traces: sum(leaf.nbytes for leaf in jax.tree.leaves(traces))
        if num_bytes(made, *self._traces.values()) > _KEPT:
            self._traces.clear()
        if num_bytes(made) <= _KEPT:
            self._traces[key] = made
        return made


def chain_level(tokens: Int[Array, " batch"], depth: Int[Array, ""], numbers: int) -> Level:
    """One drafted token of a chain, at a depth of 1 or more; `numbers` as for `Draft.empty`."""
    batch = len(tokens)
    return Level(
        tokens=tokens[:, None],
        first=depth,
        depth=jnp.full((batch, 1), depth, jnp.int32),
        parent=jnp.full((batch, 1), depth - 1, jnp.int32),
        ancestors=jnp.broadcast_to(jnp.arange(numbers) < depth, (batch, 1, numbers)),
    )


def rank_of(logits: Float[Array, "*b vocab"], token: Int[Array, "*b"]) -> Int[Array, "*b"]:
    """Number of tokens before a token, largest logit first and the smaller number first among equals: as `top_k` sorts."""
    own = jnp.take_along_axis(logits, token[..., None], axis=-1)
    first = jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1) < token[..., None]
    return jnp.sum((logits > own) | ((logits == own) & first), axis=-1, dtype=jnp.int32)


def measure_ranks(
    target_params: Params,
    draft_params: Any,
    texts: ContinuedTexts | Int[Any, "batch token"],
    *,
    draft: Draft,
    config: DecoderConfig,
    prompt_tokens: int,
    depth: int,
    roots: int | None = None,
    trace: TargetTrace | None = None,
) -> RankTraces:
    """Ranks of the texts' tokens at every start, along chains that the text itself is.

    The draft meets just what decoding lets it meet: after each root it reads the target's word on committed tokens and its
    own on the drafted ones.

    Args:
        texts: or their tokens, where all prompts have one length and no text stopped; the first root is a prompt's last token.
        draft: static, with its parameters.
        prompt_tokens: static, >= 2; places of the longest prompt. The other places hold tokens that were generated.
        depth: static, >= 1; drafted tokens after a root.
        roots: static, >= 1; starts of each text that are recorded, of texts that did not stop. None: all.
        trace: the target's pass over the texts, with a padding of `depth`; None: it is made here.
    Returns:
        One start for every token that a text has after the prompt; `UNKNOWN` beyond the places, `ENDED` behind a text's stop.
        Where the texts are traced, a token outside the vocabulary is not noticed; what is measured from there on is
        meaningless.
    Raises:
        ValueError: a prompt of less than two tokens, a text without more, no depth, a token outside the vocabulary, or a
            draft of another vocabulary.
    """
    texts = ContinuedTexts.of(texts)
    batch, length = check_tokens("texts", texts.tokens, vocab_size=config.vocab_size, least=3)
    check_count("prompt_tokens", prompt_tokens, least=2, most=length - 1)
    check_lengths(texts.lengths, batch, prompt_tokens)
    check_lengths(texts.generated, batch, length - prompt_tokens)
    check_count("depth", depth)
    if roots is not None:
        check_count("roots", roots, most=length - prompt_tokens)
    check_network(target_params, vocab_size=config.vocab_size, hidden_size=config.hidden_size)
    check_draft_vocabulary(draft.vocab_size, config.vocab_size)
    return _measure_ranks(
        target_params,
        draft_params,
        texts,
        draft=draft,
        config=config,
        prompt_tokens=prompt_tokens,
        depth=depth,
        roots=roots,
        trace=trace,
    )


_traced = jax.jit(trace_target, static_argnames=("config", "padding", "beyond", "hidden_of"))


def record_ranks(
    target: Params,
    config: DecoderConfig,
    draft: ReadyDraft,
    texts: ContinuedTexts | Int[Any, "batch token"],
    *,
    prompt_tokens: int,
    depth: int,
    roots: int | None = None,
    kept: tuple[KeptTraces, Hashable] | None = None,
    advance: Callable[[], None] = lambda: None,
) -> RankTraces:
    """`measure_ranks` over all texts, of which there is one or more, chunk by chunk.

    Args:
        kept: where the target's passes are kept, with a name of target and texts; None: nowhere.
    """
    texts = ContinuedTexts.of(texts)
    check_tokens("texts", texts.tokens, vocab_size=config.vocab_size)
    parts, inner = [], hidden_of(draft.draft)
    for number, chunk in enumerate(prompt_chunks(texts.tokens, mesh_of(target), sharing=draft.sharing)):
        rows = {name: chunk.of(row) for name in ("lengths", "generated") if (row := getattr(texts, name)) is not None}
        these, *of_these = split_rows(target, chunk.prompts, *rows.values())
        part = ContinuedTexts(these, **dict(zip(rows, of_these, strict=True)))
        trace = None
        if kept is not None:
            known = jnp.full(len(these), prompt_tokens) if part.lengths is None else part.lengths
            trace = kept[0].trace(
                (kept[1], number, len(these), depth, inner),
                lambda these=these, known=known: _traced(
                    target, config, these, known.astype(jnp.int32), padding=depth, hidden_of=inner
                ),
            )
        static = {"draft": draft.draft, "config": config, "prompt_tokens": prompt_tokens, "depth": depth}
        traces = measure_ranks(target, draft.params, part, roots=roots, trace=trace, **static)
        parts.append(jax.tree.map(lambda x, count=chunk.real: np.asarray(x)[:count], on_host(traces)))
        advance()
    return jax.tree.map(lambda *x: jnp.asarray(np.concatenate(x)), *parts)


@partial(jax.jit, static_argnames=("draft", "config", "prompt_tokens", "depth", "roots"))
def _measure_ranks(
    target_params: Params,
    draft_params: Any,
    texts: ContinuedTexts,
    *,
    draft: Draft,
    config: DecoderConfig,
    prompt_tokens: int,
    depth: int,
    roots: int | None = None,
    trace: TargetTrace | None = None,
) -> RankTraces:
    batch, length = texts.tokens.shape
    places = length - prompt_tokens
    starts = places if roots is None else roots
    lengths, generated = (
        jnp.full(batch, whole, jnp.int32) if rows is None else rows.astype(jnp.int32)
        for rows, whole in ((texts.lengths, prompt_tokens), (texts.generated, places))
    )
    if trace is None:
        trace = trace_target(target_params, config, texts.tokens, lengths, padding=depth, hidden_of=hidden_of(draft))
    beyond = jnp.where(generated < places, ENDED, UNKNOWN)
    # A state that follows one line of tokens cannot be at several roots.
    if getattr(draft, "follow", None) is not None and config.mixed_layers is None:
        ranks = ranks_followed(draft, draft_params, trace, lengths, depth, starts)
    else:
        ranks = ranks_asked(draft, draft_params, trace, lengths, prompt_tokens, depth, starts)
    known = (jnp.arange(starts)[:, None] + jnp.arange(depth)[None])[None] < generated[:, None, None]
    ranks = jnp.where(known, ranks, beyond[:, None, None])
    return RankTraces(rank=ranks, num_starts=generated if roots is None else jnp.minimum(generated, roots))


def _committed_memory(
    draft: Draft, params: Any, trace: TargetTrace, slots: int, depth: int, places: int, counts: Int[Array, " batch"]
) -> Memory:
    """A memory of so many slots, for chains of `depth`, with the first `counts` of `places` tokens of each text committed."""
    batch = len(counts)
    # The barrier keeps XLA from computing, at compile time, what an empty memory makes of the prompt.
    memory, first_place = jax.lax.optimization_barrier(
        (draft.empty(params, batch, slots, depth + 1), jnp.zeros(batch, jnp.int32))
    )
    return draft.commit(params, memory, trace.committed(first_place, places, counts))


def ranks_followed(
    draft: Any,
    draft_params: Any,
    trace: TargetTrace,
    lengths: Int[Array, " batch"],
    depth: int,
    starts: int,
    logits: int = _LOGITS,
) -> Int[Array, "batch start depth"]:
    """Ranks by a draft that `Follows`: it reads a text in blocks of `depth` tokens, once for each place where they can begin.

    Args: as for `measure_ranks`.
        logits: that the draft gives at once, at most, unless one block has more.
    """
    batch, slots, last = len(lengths), trace.target.cache.num_slots, trace.tokens.shape[1] - 1
    blocks = -(-starts // depth)
    together = max(1, min(blocks, logits // (batch * depth * draft.vocab_size)))
    groups = -(-blocks // together)
    memory = _committed_memory(draft, draft_params, trace, slots + depth, depth, slots - 1, jnp.full(batch, slots - 1))
    place = jnp.arange(together * depth)

    def from_start(start: Int[Array, ""]) -> Int[Array, "batch place"]:
        positions = (lengths - 1 + start)[:, None] + place[None]
        # What is behind a text's end fills the last blocks, and is not known.
        at = lambda ahead: jnp.take_along_axis(trace.tokens, jnp.minimum(positions + ahead, last), axis=1)
        read = Blocks(at(0), positions, positions - (place % depth)[None])
        return rank_of(draft.follow(draft_params, memory, read), at(1))

    offsets = jnp.arange(depth)
    ranks = jax.lax.map(from_start, (jnp.arange(groups)[:, None] * len(place) + offsets[None]).reshape(-1))
    by_start = ranks.reshape(groups, depth, batch, together, depth).transpose(2, 0, 3, 1, 4)
    return by_start.reshape(batch, -1, depth)[:, :starts]


def ranks_asked(
    draft: Draft,
    draft_params: Any,
    trace: TargetTrace,
    lengths: Int[Array, " batch"],
    prompt_tokens: int,
    depth: int,
    starts: int,
) -> Int[Array, "batch start depth"]:
    """Ranks by a draft that is asked root by root and token by token, as decoding asks it. Args: as for `measure_ranks`."""
    batch, length, numbers = len(lengths), trace.target.cache.num_slots, depth + 1

    memory = _committed_memory(draft, draft_params, trace, length + depth + 1, depth, prompt_tokens - 1, lengths - 1)

    def from_root(memory, start):
        position = lengths - 1 + start
        root = trace.root(position)
        logits, drafted = draft.open(draft_params, memory, root)
        # What was drafted is forgotten: the memory goes on from what is committed, or from the root where it counts.
        memory = drafted if getattr(draft, "follows_cycles", False) else memory
        first = rank_of(logits, trace.token_at(position + 1))

        def deeper(drafted, d):
            level = chain_level(trace.token_at(position + d), d, numbers)
            logits, drafted = draft.extend(draft_params, drafted, root, level)
            return drafted, rank_of(logits[:, 0], trace.token_at(position + d + 1))

        _, later = jax.lax.scan(deeper, drafted, jnp.arange(1, depth))
        # The window of one place before the next root; the last root has none.
        committed = trace.committed(jnp.minimum(position, length - 2), 1, jnp.ones(batch, jnp.int32))
        return draft.commit(draft_params, memory, committed), jnp.concatenate([first[None], later])

    _, ranks = jax.lax.scan(from_root, memory, jnp.arange(starts, dtype=jnp.int32))
    return ranks.transpose(2, 0, 1)
