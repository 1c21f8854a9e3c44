"""Cycles of speculative decoding, predicted from a text that the target put out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxspec.checks import check_count, check_lengths, check_sampling, check_tokens
from jaxspec.compress.expert_pool import has_pool
from jaxspec.compress.knobs import Knobs
from jaxspec.compress.kv import compress_cache, round_kv
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, causal_mask, forward
from jaxspec.models.mesh import split_rows
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.speculate.acceptance import TargetText, all_starts
from jaxspec.speculate.chunks import gather, prompt_chunks
from jaxspec.speculate.drafts.compressed_copy import compressed_copy
from jaxspec.speculate.expected_cycles import expected_cycles
from jaxspec.speculate.followed_cycles import follow_cycles
from jaxspec.speculate.ragged import ends_of, flush_right, generated_tokens
from jaxspec.speculate.sampling import Decoding

__all__ = ["predict_cycles"]


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

    A draft whose pools of experts depend on what it drafted before is followed along the text instead (see `follow_cycles`).

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
        The fields of `CycleStatistics`, over all texts.
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

    def in_chunks(texts: np.ndarray, rows: np.ndarray, predict: Callable) -> dict[str, np.ndarray]:
        parts = []
        for chunk in prompt_chunks(texts):
            these, of_rows, of_ends = split_rows(target, chunk.prompts, chunk.of(rows), chunk.of(ends))
            parts.append((jax.block_until_ready(predict(these, chunk.ids, of_rows, of_ends)), chunk.real))
            advance()
        return gather(parts)

    if has_pool(knobs, config):
        ready = compressed_copy(config, draft, knobs, sharing=sharing)

        def followed(texts: Array, ids: Array, lengths: Array, ends: Array):
            key, sizes = jax.random.key(seed), (jnp.asarray(draft_length), jnp.asarray(num_tokens))
            static = {"draft": ready.draft, "config": config}
            static |= {"prompt_tokens": prompt_tokens, "most_drafted": MAX_DRAFT_LENGTH}
            found = follow_cycles(target, ready.params, texts, ids, lengths, ends, *sizes, key, decoding, **static)
            return found._replace(survival=found.survival[:, :draft_length])

        return in_chunks(texts, np.asarray(lengths, np.int32), followed)

    def renewed(texts: Array, ids: Array, before: Array, ends: Array):
        del ids
        survival = _survival(target, draft, texts, before, knobs, decoding, config=config, first=prompt_tokens - 1)
        return expected_cycles(survival, draft_length, num_tokens, ends=ends)

    # What was generated stands in the same columns in all texts.
    return in_chunks(*flush_right(texts, lengths + room), renewed)


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
    place = jnp.arange(queries)
    result = forward(
        target,
        config,
        tokens=tokens[:, :-1],
        positions=jnp.maximum(place - before[:, None], 0),
        mask=causal_mask(tokens.shape[0], queries) & (place >= before[:, None])[:, None, :],
        kv_codec=round_kv,
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
