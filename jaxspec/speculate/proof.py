"""The proof: prompts decoded with and without speculation, counted, and predicted from the same prompts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.checks import check_count, check_sampling, check_tokens
from jaxspec.compress.knobs import Knobs
from jaxspec.compress.kv import compress_cache, round_kv
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, forward_text
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.speculate.acceptance import TargetText, all_starts
from jaxspec.speculate.candidates import CandidateLaw
from jaxspec.speculate.chunks import gather, prompt_chunks
from jaxspec.speculate.drafts.interface import ReadyDraft
from jaxspec.speculate.engine import decode
from jaxspec.speculate.expansion import TreeLimits, chain_limits
from jaxspec.speculate.expected_cycles import expected_cycles
from jaxspec.speculate.growing_tree import GrowingTree
from jaxspec.speculate.measured_ranks import measure_ranks
from jaxspec.speculate.sampling import Decoding
from jaxspec.trees.public_trees import chain_tree
from jaxspec.trees.rank_traces import RankTraces
from jaxspec.trees.topology import Tree

__all__ = [
    "TIE_MARGIN",
    "WIDTH",
    "continuation_length",
    "count_mismatches",
    "decode_chains",
    "decode_prompts",
    "predict_cycles",
    "record_ranks",
]

#: Static width of every verification of a chain: whatever is drafted, and for autoregressive decoding too.
WIDTH = MAX_DRAFT_LENGTH + 1

#: A greedy difference on a GPU counts unless the two largest logits were closer than this.
TIE_MARGIN = 1e-3


def _nothing() -> None:
    """No progress is shown."""


def continuation_length(output_tokens: int) -> int:
    """Tokens to decode autoregressively so that drafts can be measured at every start within `output_tokens`."""
    return output_tokens + WIDTH


def decode_prompts(
    target: Params,
    config: DecoderConfig,
    draft: ReadyDraft,
    prompts: np.ndarray,
    tree: Tree | GrowingTree,
    *,
    num_tokens: int,
    decoding: Decoding,
    seed: int,
    law: CandidateLaw = "top",
    limits: TreeLimits | None = None,
    room: int | None = None,
    advance: Callable[[], None] = _nothing,
) -> dict[str, np.ndarray]:
    """`decode` over all prompts, of which there is one or more, chunk by chunk.

    Args:
        advance: called after each chunk.
        others: as for `decode`.
    Returns:
        The fields of `Decoded`, over all prompts.
    Raises:
        ValueError: see `decode`.
    """
    check_tokens("prompts", prompts, vocab_size=config.vocab_size)
    check_sampling(decoding)
    decoding = dataclasses.replace(decoding, temperature=jnp.asarray(decoding.temperature, jnp.float32))
    options = {"config": config, "num_tokens": num_tokens, "law": law, "limits": limits, "room": room}
    parts = []
    for chunk, ids, count in prompt_chunks(prompts):
        key = jax.random.key(seed)
        result = decode(target, draft.params, chunk, ids, tree, key, decoding, draft=draft.draft, **options)
        parts.append((jax.block_until_ready(result), count))
        advance()
    return gather(parts)


def decode_chains(
    target: Params,
    config: DecoderConfig,
    draft: ReadyDraft,
    prompts: np.ndarray,
    draft_length: int,
    *,
    num_tokens: int,
    decoding: Decoding,
    seed: int,
    room: int | None = None,
    advance: Callable[[], None] = _nothing,
) -> dict[str, np.ndarray]:
    """`decode_prompts` with chains of 0 to MAX_DRAFT_LENGTH tokens, all at one static width; 0 decodes autoregressively.

    Decoding with any lengths and any parameters of one draft shares one compilation. The draft samples when the target does.
    """
    return decode_prompts(
        target,
        config,
        draft,
        prompts,
        chain_tree(draft_length, WIDTH),
        num_tokens=num_tokens,
        decoding=decoding,
        seed=seed,
        law="top" if decoding.greedy else "sampled",
        limits=chain_limits(WIDTH),
        room=room,
        advance=advance,
    )


def record_ranks(
    target: Params,
    config: DecoderConfig,
    draft: ReadyDraft,
    texts: np.ndarray,
    *,
    prompt_tokens: int,
    depth: int,
    advance: Callable[[], None] = _nothing,
) -> RankTraces:
    """`measure_ranks` over all texts, of which there is one or more, chunk by chunk."""
    check_tokens("texts", texts, vocab_size=config.vocab_size)
    parts = []
    for chunk, _, count in prompt_chunks(texts):
        traces = measure_ranks(
            target, draft.params, chunk, draft=draft.draft, config=config, prompt_tokens=prompt_tokens, depth=depth
        )
        parts.append(jax.tree.map(lambda x, count=count: np.asarray(x)[:count], traces))
        advance()
    return jax.tree.map(lambda *x: jnp.asarray(np.concatenate(x)), *parts)


@partial(jax.jit, static_argnames=("config", "first"))
def _survival(target: Params, draft: Params, tokens, knobs: Knobs, decoding: Decoding, *, config, first: int):
    result = forward_text(target, config, tokens[:, :-1], kv_codec=round_kv, logits_from=tokens.shape[1] - 1)
    return all_starts(
        draft,
        config,
        TargetText(tokens=tokens, hidden=result.hidden[:, first:]),
        compress_cache(result.cache, knobs),
        target=target,
        block=MAX_DRAFT_LENGTH,
        decoding=decoding,
    )


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
    advance: Callable[[], None] = _nothing,
) -> dict[str, np.ndarray]:
    """Expected cycles of each text without decoding it: acceptance at every position, then the renewal of cycles.

    Args:
        draft: the matrices of the target's compressed copy; knobs: how it reads committed KV.
        texts: prompts and their autoregressive continuation of `continuation_length(num_tokens)` tokens.
    Returns:
        "cycles" and "survival" of `CycleStatistics`, over all texts.
    Raises:
        ValueError: an argument out of its range, or texts that are too short.
    """
    check_count("prompt_tokens", prompt_tokens)
    check_count("num_tokens", num_tokens)
    check_count("draft_length", draft_length, most=MAX_DRAFT_LENGTH)
    check_tokens("texts", texts, vocab_size=config.vocab_size, least=prompt_tokens + num_tokens)
    check_sampling(decoding)
    decoding = dataclasses.replace(decoding, temperature=jnp.asarray(decoding.temperature, jnp.float32)).for_program()
    parts = []
    for chunk, _, count in prompt_chunks(texts):
        survival = _survival(target, draft, chunk, knobs, decoding, config=config, first=prompt_tokens - 1)
        parts.append((jax.block_until_ready(expected_cycles(survival, draft_length, num_tokens)), count))
        advance()
    return gather(parts)


def count_mismatches(
    speculative: dict[str, np.ndarray], autoregressive: dict[str, np.ndarray], prompt_tokens: int, num_tokens: int
) -> dict[str, int | float]:
    """Greedy outputs compared token by token.

    Returns:
        prompts, tokens (compared), mismatches (prompts' tokens after a first difference count too), ties (differences at a
        margin below TIE_MARGIN, told apart only off CPUs), smallest_margin.
    """
    part = slice(prompt_tokens, prompt_tokens + num_tokens)
    differs = speculative["tokens"][:, part] != autoregressive["tokens"][:, part]
    tied = np.minimum(speculative["margin"], autoregressive["margin"]) < TIE_MARGIN
    excused = differs & tied[:, None] if jax.default_backend() != "cpu" else np.zeros_like(differs)
    return {
        "prompts": int(differs.shape[0]),
        "tokens": int(differs.size),
        "mismatches": int(np.sum(differs & ~excused)),
        "ties": int(np.sum(excused)),
        "smallest_margin": float(np.min(speculative["margin"])),
    }
