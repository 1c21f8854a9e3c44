"""Acceptance of a draft on known text, measured as decoding meets it: committed positions read the target's compressed KV,
uncommitted ones the draft's own.

One forward pass serves a whole text. It is cut into blocks of γ tokens; the first token of a block is a *root* (the last
committed token of a cycle), and a token at depth d of its block sees the target's compressed KV before the root and the
draft's KV from the root on, just as the d-th draft step of a cycle does. With γ passes at shifted offsets every position is a
root once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxspec.checks import check_count, check_sampling, check_tokens, check_traced_count
from jaxspec.models.blocks import StepInput
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import ForwardResult, Params, forward
from jaxspec.models.kv_cache import CachedKV, KVCache
from jaxspec.models.layer_loops import LayerView
from jaxspec.models.special_tokens import unembed
from jaxspec.speculate.hotness import TextPools
from jaxspec.speculate.sampling import SAMPLING, Decoding, token_distribution
from jaxspec.trees.rank_traces import error_of_mean, ratio_of_totals

__all__ = [
    "Agreement",
    "ComparedCycles",
    "Interval",
    "acceptance_rates",
    "agreement",
    "compare_cycles",
    "speedup_ratio",
]

# Counts of decoding turned into acceptance, tokens per cycle with their standard error, and intervals.

_RESAMPLES = 2000

#: Gaps are expressed in units of no less than this many tokens per cycle, so that rounding is none.
_LEAST_ERROR = 1e-9


class Interval(NamedTuple):
    """A ratio with its central 95 % bootstrap interval."""

    ratio: float
    low: float
    high: float


class ComparedCycles(NamedTuple):
    """Tokens per cycle, counted and predicted of the same prompts.

    Attributes:
        counted, predicted: total tokens over total cycles.
        standard_error: of the counted, prompts taken as independent; NaN for one prompt.
        gap_in_standard_errors: distance of the two, in standard errors of their difference on the same prompts, but at least
            of the count, so that a deterministic prediction is not held against its own rounding. NaN for one prompt, unless
            the two are equal.
    """

    counted: float
    predicted: float
    standard_error: float
    gap_in_standard_errors: float


def acceptance_rates(
    accepted_at: np.ndarray, ended_at: np.ndarray, cycles: np.ndarray, draft_length: int
) -> dict[str, object]:
    """Acceptance rates from counts.

    Args:
        accepted_at: "prompt depth", cycles in which token d was accepted. cycles: "prompt".
        ended_at: "prompt depth", cycles in which it stopped the text, so that no deeper token was tried.
    Returns:
        alpha_token, alpha_fraction, conditional (see the glossary).
    """
    accepted = accepted_at[:, :draft_length].sum(axis=0).astype(np.float64)
    reached = np.concatenate([[cycles.sum()], (accepted - ended_at[:, :draft_length].sum(axis=0))[:-1]])
    conditional = np.divide(accepted, reached, out=np.full(draft_length, np.nan), where=reached > 0)
    return {
        "alpha_token": float(accepted.sum() / reached.sum()),
        "alpha_fraction": float(accepted.sum() / (draft_length * cycles.sum())),
        "conditional": conditional.tolist(),
    }


def compare_cycles(
    tokens: np.ndarray, cycles: np.ndarray, predicted_tokens: np.ndarray, predicted_cycles: np.ndarray
) -> ComparedCycles:
    """Tokens per cycle counted and predicted, the standard error, and the gap between them.

    Args:
        tokens, cycles, predicted_tokens, predicted_cycles: " prompt".
    """
    wide = lambda values: np.asarray(values, np.float64)
    counted = ratio_of_totals(wide(tokens), wide(cycles))
    predicted = ratio_of_totals(wide(predicted_tokens), wide(predicted_cycles))
    gap, error = abs(float(counted.mean - predicted.mean)), float(counted.standard_error)
    scale = max(error, float(error_of_mean(counted.per_text - predicted.per_text)), _LEAST_ERROR)
    in_errors = gap / scale if len(tokens) > 1 else 0.0 if gap == 0 else float("nan")
    return ComparedCycles(float(counted.mean), float(predicted.mean), error, in_errors)


def _resampled(count: int, seed: int) -> np.ndarray:
    """Bootstrap weights, "resample prompt"."""
    rng = np.random.default_rng([seed, count, _RESAMPLES])
    return rng.multinomial(count, np.full(count, 1 / count), size=_RESAMPLES).astype(np.float64)


def speedup_ratio(
    ours: tuple[np.ndarray, np.ndarray, float], theirs: tuple[np.ndarray, np.ndarray, float], seed: int
) -> Interval:
    """Ratio of two drafts' speeds on the same prompts, with a bootstrap over prompts.

    Args:
        ours, theirs: (tokens per prompt, cycles per prompt, seconds per cycle).
    """

    def speed(weights, draft):
        tokens, cycles, cycle_s = draft
        return (weights @ tokens) / (weights @ cycles) / cycle_s

    once = np.ones((1, len(ours[0])))
    weights = _resampled(len(ours[0]), seed)
    ratios = speed(weights, ours) / speed(weights, theirs)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return Interval(float((speed(once, ours) / speed(once, theirs))[0]), float(low), float(high))


#: Logits that exist at once, of draft and target each.
_LOGITS = 1 << 24


class Agreement(NamedTuple):
    """Target p and draft q at each place.

    Attributes:
        accepted: min(1, q/p) at the text's own next token.
        overlap: the sum of min(p, q).
        kl: KL(p || q) at temperature 1, nats.
        cross_entropy: of the draft on the text's next token at temperature 1, nats.
    """

    accepted: Float[Array, "*b"]
    overlap: Float[Array, "*b"]
    kl: Float[Array, "*b"]
    cross_entropy: Float[Array, "*b"]


def agreement(
    target: Float[Array, "*b hidden"],
    draft: Float[Array, "*b hidden"],
    next_token: Int[Array, "*b"],
    logits_of: tuple[Callable[[Array], Array], Callable[[Array], Array]],
    *,
    vocab_size: int,
    decoding: Decoding,
) -> Agreement:
    """Of every place.

    Args:
        logits_of: "... hidden" -> "... vocab", of target and draft.
        decoding: how tokens are chosen; see `token_distribution`.
    """
    places, size = next_token.size, max(1, _LOGITS // vocab_size)

    def of_some(target: Array, draft: Array, next_token: Array) -> Agreement:
        return _of_logits(logits_of[0](target), logits_of[1](draft), next_token, decoding)

    if places <= size:
        return of_some(target, draft, next_token)
    # More texts than a piece has places are one after the other.
    texts = next_token.shape[0] if next_token.shape[0] <= size else 1
    of_each = places // texts
    pieces = -(-of_each // (size // texts))
    width = -(-of_each // pieces)

    def in_pieces(x: Array, *rest: int) -> Array:
        # What fills the last piece is thrown away.
        filled = jnp.pad(
            x.reshape(texts, of_each, *rest), [(0, 0), (0, pieces * width - of_each), *[(0, 0)] * len(rest)]
        )
        return jnp.moveaxis(filled.reshape(texts, pieces, width, *rest), 1, 0)

    channels = target.shape[-1]
    inputs = in_pieces(target, channels), in_pieces(draft, channels), in_pieces(next_token)
    by_piece = jax.lax.map(jax.checkpoint(lambda piece: of_some(*piece)), inputs)
    whole = lambda x: jnp.moveaxis(x, 0, 1).reshape(texts, -1)[:, :of_each].reshape(next_token.shape)
    return jax.tree.map(whole, by_piece)


def _of_logits(
    target: Float[Array, "*b vocab"], draft: Float[Array, "*b vocab"], next_token: Int[Array, "*b"], decoding: Decoding
) -> Agreement:
    at_next = lambda x: jnp.take_along_axis(x, next_token[..., None], axis=-1)[..., 0]
    p, q = token_distribution(target, decoding), token_distribution(draft, decoding)
    log_p, log_q = jax.nn.log_softmax(target), jax.nn.log_softmax(draft)
    p_next, q_next = at_next(p), at_next(q)
    return Agreement(
        accepted=jnp.where(p_next > 0, jnp.minimum(q_next / jnp.where(p_next > 0, p_next, 1.0), 1.0), 0.0),
        overlap=jnp.sum(jnp.minimum(p, q), axis=-1),
        kl=jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1),
        cross_entropy=-at_next(log_q),
    )


class TargetText(NamedTuple):
    """Text with what the target makes of its later part.

    Attributes:
        tokens: one more than there are queries; token t + 1 follows query t.
        hidden: what the target's last layer puts out at the last queries; how many there are says where measuring begins. Its
            logits follow from it, and take a hundred times as much memory.
        before: columns of padding before each text, whose first token is the one behind them; None: there are none.
    """

    tokens: Int[Array, "batch token_plus_1"]
    hidden: Float[Array, "batch query hidden"]
    before: Int[Array, " batch"] | None = None

    @property
    def first(self) -> int:
        """Earliest root: position of the first query that is measured."""
        return self.tokens.shape[1] - 1 - self.hidden.shape[1]


class BlockPass(NamedTuple):
    """Measurements of one pass at every (start, depth).

    Attributes:
        survival: P(draft tokens 1..d all accepted) from this root: the product over the depths before d of min(1, q/p) at the
            text's own token, times the sum of min(p, q) at d. Unbiased where the text is drawn from the target at the same
            temperature; exact under greedy decoding where the text is the target's own output.
        survival_on_text: the same given that decoding put out this very text: the product of min(1, q/p) at the text's tokens
            up to d. Its mean over texts is that of `survival`, with more noise; but only its products along a text are
            right, because which tokens are refused and where the next cycle starts depend on each other.
        overlap: the sum of min(p, q).
        kl: KL(p || q) at temperature 1, nats.
        cross_entropy: of the draft on the text's next token at temperature 1, nats.
    """

    survival: Float[Array, "batch start depth"]
    survival_on_text: Float[Array, "batch start depth"]
    overlap: Float[Array, "batch start depth"]
    kl: Float[Array, "batch start depth"]
    cross_entropy: Float[Array, "batch start depth"]


class BlockForward(NamedTuple):
    """A draft run over a text in blocks.

    Attributes:
        hidden: what its last layer puts out at every (start, depth), "batch start depth hidden".
        place: query number of each.
        facts: of the view.
    """

    hidden: Float[Array, "batch start depth hidden"]
    place: Int[Array, "start depth"]
    facts: Any


def block_forward(
    draft_params: Params,
    config: DecoderConfig,
    text: TargetText,
    draft_cache: Any,
    *,
    offset: Int[Array, ""] | int,
    block: int,
    view: LayerView | None = None,
    pools: TextPools | None = None,
) -> BlockForward:
    """The draft's hidden states at every depth of blocks with roots at text.first + offset, text.first + offset + block, ...

    Args: as for `block_pass`.
    """
    queries = text.hidden.shape[1]
    starts = queries // block - (block > 1)
    if starts < 1:
        raise ValueError(f"{queries} queries hold no block of {block} at any offset; use a longer text")
    ran = _forward_from(_roots(queries, offset, block), draft_params, config, text, draft_cache, view=view, pools=pools)
    index = offset + jnp.arange(starts)[:, None] * block + jnp.arange(block)[None, :]
    return BlockForward(jnp.take(ran.hidden, index, axis=1), index, ran.facts)


def _roots(queries: int, offset: Int[Array, ""] | int, block: Int[Array, ""] | int) -> Int[Array, " query"]:
    """The root of each query: its block's first, and itself before the first block."""
    place = jnp.arange(queries)
    return jnp.where(place < offset, place, offset + (place - offset) // block * block)


def _forward_from(
    root: Int[Array, " query"],
    draft_params: Params,
    config: DecoderConfig,
    text: TargetText,
    draft_cache: Any,
    *,
    view: LayerView | None = None,
    pools: TextPools | None = None,
) -> ForwardResult:
    """The draft's pass over all queries, each of which reads the target's KV before its root and the draft's from there on."""
    first, place = text.first, jnp.arange(len(root))
    batch, slots = text.tokens.shape[0], text.tokens.shape[1] - 1
    committed = jnp.arange(slots)[None, :] < first + root[:, None]
    own = (place[None, :] >= root[:, None]) & (place[None, :] <= place[:, None])
    before = jnp.zeros(batch, place.dtype) if text.before is None else text.before.astype(place.dtype)
    batched = lambda x: jnp.broadcast_to(x, (batch, *x.shape))
    return forward(
        draft_params,
        config,
        text.tokens[:, first:-1],
        StepInput(
            batched(first + place) - before[:, None],
            batched(own),
            sources=[
                CachedKV(draft_cache, batched(committed) & (jnp.arange(slots)[None] >= before[:, None])[:, None, :])
            ],
            frugal=view is not None and view.policy is not None,
            **({} if pools is None else pools.of_roots(root)),
        ),
        dtype=text.hidden.dtype,
        logits_from=len(root),
        view=view,
    )


def block_pass(
    draft_params: Params,
    config: DecoderConfig,
    text: TargetText,
    draft_cache: KVCache,
    *,
    target: Params,
    offset: Int[Array, ""] | int,
    block: int,
    decoding: Decoding = SAMPLING,
    pools: TextPools | None = None,
) -> BlockPass:
    """Measure one draft on text, with roots at text.first + offset, text.first + offset + block, ...

    Args:
        draft_params: of the target's shapes.
        text: the draft computes in the type of its hidden states.
        draft_cache: the target's KV of all queries, `text.tokens[:, :-1]`, compressed.
        target: its parameters, of which only final norm and head are read.
        offset: 0 to block − 1, may be traced.
        block: static, at least 1; deepest draft length measured.
        decoding: how tokens are chosen; see `token_distribution`.
        pools: of experts that the draft chooses from, at every query; None: all experts.
    Returns:
        Arrays over queries // block − 1 starts (queries where block is 1): one fewer than fit, so that any offset does.
    Raises:
        ValueError: the text is too short for one block, has tokens of another vocabulary or hidden states of another size, or
            an argument is out of its range. Traced values are not checked (see `jaxspec.checks`); wrong ones give meaningless
            numbers.
    """
    _check_text(text, config)
    check_count("block", block)
    check_traced_count("offset", offset, least=0, most=block - 1)
    check_sampling(decoding)
    ran = block_forward(draft_params, config, text, draft_cache, offset=offset, block=block, pools=pools)
    return compare_with_target(ran, text, (target, draft_params), config, decoding)


def compare_with_target(
    ran: BlockForward, text: TargetText, ends: tuple[Params, Params], config: DecoderConfig, decoding: Decoding
) -> BlockPass:
    """Acceptance of what a draft put out.

    Args:
        ends: parameters of target and draft, of which only final norm and head are read.
    """
    at_places = lambda x: jnp.take(x, ran.place, axis=1)
    next_token = at_places(text.tokens[:, text.first + 1 :])
    agreed = _agreement_with_target(at_places(text.hidden), ran.hidden, next_token, ends, config, decoding)
    on_text = jnp.cumprod(agreed.accepted, axis=-1)
    before = jnp.concatenate([jnp.ones_like(on_text[..., :1]), on_text[..., :-1]], axis=-1)
    return BlockPass(
        survival=before * agreed.overlap,
        survival_on_text=on_text,
        overlap=agreed.overlap,
        kl=agreed.kl,
        cross_entropy=agreed.cross_entropy,
    )


def _agreement_with_target(
    target: Float[Array, "*b hidden"],
    draft: Float[Array, "*b hidden"],
    next_token: Int[Array, "*b"],
    ends: tuple[Params, Params],
    config: DecoderConfig,
    decoding: Decoding,
) -> Agreement:
    logits_of = (lambda hidden: unembed(hidden, ends[0], config), lambda hidden: unembed(hidden, ends[1], config))
    return agreement(target, draft, next_token, logits_of, vocab_size=config.vocab_size, decoding=decoding)


def all_starts(
    draft_params: Params,
    config: DecoderConfig,
    text: TargetText,
    draft_cache: KVCache,
    *,
    target: Params,
    block: Int[Array, ""] | int,
    most: int | None = None,
    decoding: Decoding = SAMPLING,
    pools: TextPools | None = None,
) -> Float[Array, "batch start depth"]:
    """Survival, given the text, from every position from `text.first` on, in order: `block` passes.

    Args:
        block: draft length; at most `most`, up to which it may be traced: lengths share one compilation then.
        most: static, depths of the result; None: `block`.
    Returns:
        0 beyond the draft length, and from the text's end on.
    Raises:
        ValueError: see `block_pass`.
    """
    _check_text(text, config)
    if most is None:
        check_count("block", block)
        most = int(block)
    check_traced_count("block", block, least=1, most=most)
    check_sampling(decoding)
    batch, queries = text.hidden.shape[:2]
    next_token, place = text.tokens[:, text.first + 1 :], jnp.arange(queries)

    def one(offset: Int[Array, ""], accepted: Float[Array, "batch start depth"]) -> Float[Array, "batch start depth"]:
        root = _roots(queries, offset, block)
        drafted = _forward_from(root, draft_params, config, text, draft_cache, pools=pools).hidden
        agreed = _agreement_with_target(text.hidden, drafted, next_token, (target, draft_params), config, decoding)
        return accepted.at[:, root, place - root].set(agreed.accepted)

    # Probabilities, whatever type the network computes in.
    none = jnp.zeros((batch, queries, most), jnp.promote_types(text.hidden.dtype, jnp.float32))
    return jnp.cumprod(jax.lax.fori_loop(0, block, one, none), axis=-1)


def _check_text(text: TargetText, config: DecoderConfig) -> None:
    """Tokens of the vocabulary, and the target's hidden states at the last of them.

    Raises:
        ValueError: other shapes or types, or a token outside the vocabulary.
    """
    batch, length = check_tokens("text.tokens", text.tokens, vocab_size=config.vocab_size, least=2)
    shape = jnp.shape(text.hidden)
    if len(shape) != 3 or shape[0] != batch or not 1 <= shape[1] < length or shape[2] != config.hidden_size:
        raise ValueError(
            f"text.hidden has shape {shape}; {batch} texts of {length} tokens need ({batch}, 1 to {length - 1}, "
            f"{config.hidden_size})"
        )
