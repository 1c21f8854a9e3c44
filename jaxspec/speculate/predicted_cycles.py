"""Cycles of speculative decoding, predicted from a text that the target put out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxspec.checks import check_count, check_lengths, check_sampling, check_tokens
from jaxspec.compress.expert_pool import has_pool
from jaxspec.compress.knobs import Knobs
from jaxspec.compress.kv import compress_cache, stored_kv
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, causal_mask, forward
from jaxspec.models.mesh import mesh_of, split_rows
from jaxspec.models.rope import text_lengths
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.speculate.acceptance import TargetText, all_starts
from jaxspec.speculate.chunks import gather, prompt_chunks
from jaxspec.speculate.drafts.compressed_copy import compressed_copy
from jaxspec.speculate.drafts.interface import ReadyDraft
from jaxspec.speculate.expansion import TreeLimits
from jaxspec.speculate.expected_cycles import CycleStatistics, expected_cycles
from jaxspec.speculate.ragged import ends_of, flush_right, generated_tokens
from jaxspec.speculate.replay import ReplayedTexts, replay_chains, replay_trees
from jaxspec.speculate.sampling import Decoding
from jaxspec.trees.topology import Tree

__all__ = ["predict_cycles", "predict_trees"]


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
    texts: np.ndarray,
    *,
    prompt_tokens: int,
    num_tokens: int,
    knobs: Knobs,
    draft_length: int,
    decoding: Decoding,
    lengths: np.ndarray | None = None,
    stop: Sequence[int] = (),
    sharing: int = 1,
    seed: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, np.ndarray]:
    """Expected cycles of each text without decoding it: acceptance at every position, then the renewal of cycles.

    A draft whose pools of experts depend on earlier drafts is replayed along the text instead (see `replay_chains`).

    Args:
        draft: the matrices of the target's compressed copy; knobs: how it reads committed KV, and the size of its pools.
        texts: prompts and their autoregressive continuation of `continuation_length(num_tokens)` tokens, or up to a stop token;
            each from place 0 on, what follows its end is not read.
        prompt_tokens: places of the longest prompt; the other places hold tokens that were generated.
        lengths: of the prompts; None: all have that many tokens.
        stop: tokens that end a text, as it was decoded with.
        sharing: texts that share a pool of experts, as they were decoded.
        seed: of the draws where there are pools and tokens are sampled.
    Returns:
        The fields of `CycleStatistics`, over all texts; but for drafts with pools also `gained`, "text start": tokens that a
        cycle beginning there gains in expectation with a draft of `MAX_DRAFT_LENGTH` tokens.
    Raises:
        ValueError: an argument out of its range, or texts that are too short.
    """
    check_count("prompt_tokens", prompt_tokens)
    check_count("num_tokens", num_tokens)
    check_count("draft_length", draft_length, most=MAX_DRAFT_LENGTH)
    count, places = check_tokens("texts", texts, vocab_size=config.vocab_size, least=prompt_tokens + num_tokens)
    check_lengths(lengths, count, prompt_tokens)
    check_sampling(decoding)
    decoding = dataclasses.replace(decoding, temperature=jnp.asarray(decoding.temperature, jnp.float32)).for_program()
    lengths = np.full(count, prompt_tokens, np.int32) if lengths is None else lengths
    room = places - prompt_tokens
    ends = ends_of(generated_tokens(texts, lengths, np.full(count, room), room), stop)

    if has_pool(knobs, config):
        ready = compressed_copy(config, draft, knobs, sharing=sharing)

        def replay(*texts: Array):
            key, sizes = jax.random.key(seed), (jnp.asarray(draft_length), jnp.asarray(num_tokens))
            static = {"draft": ready.draft, "config": config}
            static |= {"prompt_tokens": prompt_tokens, "most_drafted": MAX_DRAFT_LENGTH}
            replayed = replay_chains(target, ready.params, ReplayedTexts(*texts), *sizes, key, decoding, **static)
            return replayed._replace(survival=replayed.survival[:, :draft_length])

        return _in_chunks(target, texts, np.asarray(lengths, np.int32), ends, replay, advance, sharing)

    def renewed(texts: Array, ids: Array, before: Array, ends: Array):
        del ids
        survival = _survival(target, draft, texts, before, knobs, decoding, config=config, first=prompt_tokens - 1)
        found = expected_cycles(survival, draft_length, num_tokens, ends=ends)
        return _AlongTexts(*found, gained=1.0 + jnp.sum(survival, axis=-1))

    # Generated tokens are in the same columns in all texts.
    return _in_chunks(target, *flush_right(texts, lengths + room), ends, renewed, advance)


def predict_trees(
    target: Params,
    draft: ReadyDraft,
    config: DecoderConfig,
    texts: np.ndarray,
    tree: Tree,
    *,
    limits: TreeLimits,
    prompt_tokens: int,
    num_tokens: int,
    decoding: Decoding,
    seed: int,
    lengths: np.ndarray,
    generated: np.ndarray,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, np.ndarray]:
    """Cycles of each text with a tree of a draft's likeliest tokens, replayed along it without decoding (see `replay_trees`).

    For drafts whose acceptance depends on earlier cycles; for others `record_ranks` covers all trees at once.

    Args:
        texts, prompt_tokens, lengths: as for `predict_cycles`. tree, limits: as for `decode`.
        generated: tokens that each text has after its prompt; fewer than there are places where it stopped.
    """
    room = texts.shape[1] - prompt_tokens
    ends = np.where(generated < room, generated, room + 1).astype(np.int32)

    def replay(*texts: Array):
        key, static = jax.random.key(seed), {"draft": draft.draft, "config": config}
        static |= {"prompt_tokens": prompt_tokens, "limits": limits}
        rest = (tree, jnp.asarray(num_tokens), key, decoding.for_program())
        return replay_trees(target, draft.params, ReplayedTexts(*texts), *rest, **static)

    return _in_chunks(target, texts, np.asarray(lengths, np.int32), ends, replay, advance, draft.sharing)


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
        tokens=tokens[:, :-1],
        positions=positions,
        mask=causal_mask(tokens.shape[0], queries) & (place >= before[:, None])[:, None, :],
        kv_codec=stored_kv(config),
        logits_from=queries,
        lengths=text_lengths(positions, first + 1 - before),
    )
    return all_starts(
        draft,
        config,
        TargetText(tokens=tokens, hidden=result.hidden[:, first:], before=before),
        compress_cache(result.cache, knobs),
        target=target,
        block=MAX_DRAFT_LENGTH,
        decoding=decoding,
    )
