"""Cycles of speculative decoding, predicted from a text that the target put out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
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
from jaxspec.models.blocks import StepInput
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, causal_mask, forward
from jaxspec.models.mesh import mesh_of, split_rows
from jaxspec.models.rope import text_lengths
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.speculate.acceptance import TargetText, all_starts
from jaxspec.speculate.chunks import Prompts, gather, prompt_chunks
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
    prompts: Prompts,
    texts: np.ndarray,
    *,
    knobs: Knobs,
    draft_length: int,
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
        sharing: texts that share a pool of experts, as they were decoded.
    Returns:
        The fields of `CycleStatistics`, over all texts; but for drafts with pools also `gained`, "text start": tokens that a
        cycle beginning there gains in expectation with a draft of `MAX_DRAFT_LENGTH` tokens.
    Raises:
        ValueError: an argument out of its range, or texts that are too short.
    """
    prompt_tokens, num_tokens, lengths = prompts.tokens.shape[1], prompts.num_tokens, prompts.known_lengths
    check_count("prompt_tokens", prompt_tokens)
    check_count("num_tokens", num_tokens)
    check_count("draft_length", draft_length, most=MAX_DRAFT_LENGTH)
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
        survival = _survival(target, draft, texts, before, knobs, decoding, config=config, first=prompt_tokens - 1)
        found = expected_cycles(survival, draft_length, num_tokens, ends=ends)
        return _AlongTexts(*found, gained=1.0 + jnp.sum(survival, axis=-1))

    # Generated tokens are in the same columns in all texts.
    return _in_chunks(target, *flush_right(texts, lengths + room), ends, renewed, advance)


def predict_trees(
    target: Params,
    draft: ReadyDraft,
    config: DecoderConfig,
    prompts: Prompts,
    texts: np.ndarray,
    tree: Tree,
    *,
    limits: TreeLimits,
    generated: np.ndarray,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, np.ndarray]:
    """Cycles of each text with a tree of a draft's likeliest tokens, replayed along it without decoding (see `replay_trees`).

    For drafts whose acceptance depends on earlier cycles; for others `record_ranks` covers all trees at once.

    Args:
        prompts, texts: as for `predict_cycles`. tree, limits: as for `decode`.
        generated: tokens that each text has after its prompt; fewer than there are places where it stopped.
    """
    room = texts.shape[1] - prompts.tokens.shape[1]
    ends = np.where(generated < room, generated, room + 1).astype(np.int32)

    def replay(tokens: Array, ids: Array, rows: Array, ends: Array):
        key, static = jax.random.key(prompts.seed), {"draft": draft.draft, "config": config}
        static |= {"prompt_tokens": prompts.tokens.shape[1], "limits": limits}
        known = ReplayedTexts(tokens, ids, rows, ends, jnp.asarray(prompts.num_tokens))
        return replay_trees(target, draft.params, known, tree, key, prompts.decoding.for_program(), **static)

    return _in_chunks(target, texts, prompts.known_lengths, ends, replay, advance, draft.sharing)


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
        block=MAX_DRAFT_LENGTH,
        decoding=decoding,
    )
