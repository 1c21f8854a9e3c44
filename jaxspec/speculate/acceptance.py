"""Acceptance of a draft on known text, measured as decoding meets it: committed positions read the target's compressed KV,
uncommitted ones the draft's own.

One forward pass serves a whole text. It is cut into blocks of γ tokens; the first token of a block is a *root* (the last
committed token of a cycle), and a token at depth d of its block sees the target's compressed KV before the root and the
draft's KV from the root on, just as the d-th draft step of a cycle does. With γ passes at shifted offsets every position is a
root once.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxspec.checks import check_count, check_sampling, check_tokens, check_traced_count
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, forward
from jaxspec.models.kv_cache import CachedKV, KVCache, pad_cache
from jaxspec.speculate.sampling import SAMPLING, Decoding, token_distribution


class TargetText(NamedTuple):
    """Text with what the target says about its later part.

    Attributes:
        tokens: one more than there are queries; token t + 1 follows query t.
        logits: the target's at the last queries; how many there are says where measuring begins.
        before: columns of padding before each text, whose first token is the one behind them; None: there are none.
    """

    tokens: Int[Array, "batch token_plus_1"]
    logits: Float[Array, "batch query vocab"]
    before: Int[Array, " batch"] | None = None

    @property
    def first(self) -> int:
        """Earliest root: position of the first query that has logits."""
        return self.tokens.shape[1] - 1 - self.logits.shape[1]


class BlockPass(NamedTuple):
    """What one pass measures at every (start, depth).

    Attributes:
        survival: P(draft tokens 1..d all accepted) from this root: the product over the depths before d of min(1, q/p) at the
            text's own token, times the sum of min(p, q) at d. Unbiased where the text is drawn from the target at the same
            temperature; exact under greedy decoding where the text is the target's own output.
        survival_on_text: the same given that decoding put out this very text: the product of min(1, q/p) at the text's tokens
            up to d. Its mean over texts is that of `survival`, with more noise; but only its products along a text are
            right, because which tokens are refused and where the next cycle starts depend on each other.
        kl: KL(p || q) at temperature 1, nats.
        cross_entropy: of the draft on the text's next token at temperature 1, nats.
    """

    survival: Float[Array, "batch start depth"]
    survival_on_text: Float[Array, "batch start depth"]
    kl: Float[Array, "batch start depth"]
    cross_entropy: Float[Array, "batch start depth"]


def block_pass(
    draft_params: Params,
    config: DecoderConfig,
    text: TargetText,
    draft_cache: KVCache,
    *,
    offset: Int[Array, ""] | int,
    block: int,
    decoding: Decoding = SAMPLING,
) -> BlockPass:
    """Measure one draft on text, with roots at text.first + offset, text.first + offset + block, ...

    Args:
        text: the draft computes in the type of its logits.
        draft_cache: the target's KV of all queries, `text.tokens[:, :-1]`, compressed.
        offset: 0 to block − 1, may be traced.
        block: static, at least 1; deepest draft length measured.
        decoding: how tokens are chosen; see `token_distribution`.
    Returns:
        Arrays over queries // block − 1 starts (queries where block is 1): one fewer than fit, so that any offset does.
    Raises:
        ValueError: the text is too short for one block, has tokens or logits of another vocabulary, or an argument is out of
            its range. Traced values are not checked (see `jaxspec.checks`); wrong ones give meaningless numbers.
    """
    _check_text(text, config)
    check_count("block", block)
    check_traced_count("offset", offset, least=0, most=block - 1)
    check_sampling(decoding)
    first, queries = text.first, text.logits.shape[1]
    batch, slots = text.tokens.shape[0], text.tokens.shape[1] - 1
    starts = queries // block - (block > 1)
    if starts < 1:
        raise ValueError(f"{queries} queries hold no block of {block} at any offset; use a longer text")
    place = jnp.arange(queries)
    root = jnp.where(place < offset, place, offset + (place - offset) // block * block)
    committed = jnp.arange(slots)[None, :] < first + root[:, None]
    own = (place[None, :] >= root[:, None]) & (place[None, :] <= place[:, None])
    before = jnp.zeros(batch, place.dtype) if text.before is None else text.before.astype(place.dtype)
    batched = lambda x: jnp.broadcast_to(x, (batch, *x.shape))
    logits = forward(
        draft_params,
        config,
        tokens=text.tokens[:, first:-1],
        positions=batched(first + place) - before[:, None],
        mask=batched(own),
        sources=[CachedKV(draft_cache, batched(committed) & (jnp.arange(slots) >= before[:, None])[:, None, :])],
        dtype=text.logits.dtype,
    ).logits

    index = offset + jnp.arange(starts)[:, None] * block + jnp.arange(block)[None, :]
    pick = lambda x: jnp.take(x, index, axis=1)  # "batch start depth ..."
    logits, target_logits, next_token = pick(logits), pick(text.logits), pick(text.tokens[:, first + 1 :])[..., None]
    at_next = lambda x: jnp.take_along_axis(x, next_token, axis=-1)[..., 0]
    p = token_distribution(target_logits, decoding)
    q = token_distribution(logits, decoding)
    log_p, log_q = jax.nn.log_softmax(target_logits), jax.nn.log_softmax(logits)
    p_next, q_next = at_next(p), at_next(q)
    step = jnp.where(p_next > 0, jnp.minimum(q_next / jnp.where(p_next > 0, p_next, 1.0), 1.0), 0.0)
    on_text = jnp.cumprod(step, axis=-1)
    before = jnp.concatenate([jnp.ones_like(step[..., :1]), on_text[..., :-1]], axis=-1)
    return BlockPass(
        survival=before * jnp.sum(jnp.minimum(p, q), axis=-1),
        survival_on_text=on_text,
        kl=jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1),
        cross_entropy=-at_next(log_q),
    )


def all_starts(
    draft_params: Params,
    config: DecoderConfig,
    text: TargetText,
    draft_cache: KVCache,
    *,
    block: int,
    decoding: Decoding = SAMPLING,
) -> Float[Array, "batch start depth"]:
    """Survival, given the text, from every position from `text.first` on, in order: `block` passes.

    Depths that lie beyond the text's end hold meaningless numbers in [0, 1]: of `query` queries, all depths are valid at
    starts up to query − block.

    Raises:
        ValueError: see `block_pass`.
    """
    _check_text(text, config)
    check_count("block", block)
    check_sampling(decoding)
    pad = ((0, 0), (0, 2 * block))
    text = TargetText(jnp.pad(text.tokens, pad), jnp.pad(text.logits, (*pad, (0, 0))), text.before)
    draft_cache = pad_cache(draft_cache, 2 * block)

    def one(offset):
        return block_pass(
            draft_params,
            config,
            text,
            draft_cache,
            offset=offset,
            block=block,
            decoding=decoding,
        ).survival_on_text

    survival = jax.lax.map(one, jnp.arange(block))  # "offset batch start depth"
    batch, starts = survival.shape[1:3]
    return survival.transpose(1, 2, 0, 3).reshape(batch, starts * block, block)


def _check_text(text: TargetText, config: DecoderConfig) -> None:
    """Tokens of the vocabulary, and the target's logits at the last of them.

    Raises:
        ValueError: other shapes or types, or a token outside the vocabulary.
    """
    batch, length = check_tokens("text.tokens", text.tokens, vocab_size=config.vocab_size, least=2)
    shape = jnp.shape(text.logits)
    if len(shape) != 3 or shape[0] != batch or not 1 <= shape[1] < length or shape[2] != config.vocab_size:
        raise ValueError(
            f"text.logits have shape {shape}; {batch} texts of {length} tokens need ({batch}, 1 to {length - 1}, "
            f"{config.vocab_size})"
        )


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
    upto = start[:, None] + 1 + jnp.arange(draft_length)
    inside = upto <= ends[:, None, None]
    # A drafted token that stops the text takes the place of the one that a cycle adds to those accepted.
    stopping = upto == ends[:, None, None]
    total = lambda chosen: jnp.einsum("bs,bsd->bd", visits, jnp.where(chosen, used, 0.0))
    cycles, accepted = jnp.sum(visits, axis=1), total(inside)
    generated = cycles + jnp.sum(accepted, axis=1) - jnp.sum(total(stopping), axis=1)
    return CycleStatistics(cycles=cycles, survival=accepted, generated=generated)
