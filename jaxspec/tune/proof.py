"""The proof: held-out prompts decoded with and without speculation, counted, and predicted from the same prompts."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.checks import check_count, check_temperature, check_tokens
from jaxspec.compress.knobs import Knobs
from jaxspec.compress.kv import compress_cache, round_kv
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, forward_text
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.speculate.acceptance import TargetText, all_starts, expected_cycles
from jaxspec.speculate.chain import Decoded, decode, decode_autoregressively
from jaxspec.speculate.chunks import gather, prompt_chunks
from jaxspec.tune.hard import Decoding

#: Static width of every verification: whatever is drafted, and for autoregressive decoding too.
WIDTH = MAX_DRAFT_LENGTH + 1

#: A greedy difference on a GPU counts unless the two largest logits were closer than this.
TIE_MARGIN = 1e-3


def continuation_length(output_tokens: int) -> int:
    """Tokens to decode autoregressively so that drafts can be measured at every start within `output_tokens`."""
    return output_tokens + WIDTH


def decode_prompts(
    target: Params,
    draft: Params | None,
    config: DecoderConfig,
    prompts: np.ndarray,
    *,
    knobs: Knobs,
    draft_length: int = 0,
    num_tokens: int,
    decoding: Decoding,
    seed: int,
    room: int | None = None,
    advance=lambda: None,
) -> dict[str, np.ndarray]:
    """Decode all prompts; without a draft, autoregressively through the same step.

    Args:
        knobs: of the draft; without a draft any of the same scheme, which share the compilation.
        prompts: one or more.
        room: see `decode`.

    Returns:
        The fields of `Decoded`, over all prompts.
    Raises:
        ValueError: see `decode`.
    """
    check_tokens("prompts", prompts, vocab_size=config.vocab_size)
    check_temperature(decoding.temperature, decoding.greedy)
    key = jax.random.key(seed)
    temperature = jnp.asarray(decoding.temperature, jnp.float32)
    shape: dict[str, Any] = {"config": config, "num_tokens": num_tokens, "room": room, "width": WIDTH}
    parts: list[tuple[Decoded, int]] = []
    for chunk, ids, count in prompt_chunks(prompts):
        if draft is None:
            result = decode_autoregressively(
                target, chunk, ids, knobs, key, temperature, greedy=decoding.greedy, **shape
            )
        else:
            length = jnp.asarray(draft_length)
            result = decode(target, draft, chunk, ids, knobs, length, key, temperature, greedy=decoding.greedy, **shape)
        parts.append((jax.block_until_ready(result), count))
        advance()
    return gather(parts)


@partial(jax.jit, static_argnames=("config", "first", "greedy"))
def _survival(target: Params, draft: Params, tokens, knobs: Knobs, temperature, *, config, first: int, greedy: bool):
    result = forward_text(target, config, tokens[:, :-1], kv_codec=round_kv, logits_from=first)
    return all_starts(
        draft,
        config,
        TargetText(tokens=tokens, logits=result.logits),
        compress_cache(result.cache, knobs),
        block=MAX_DRAFT_LENGTH,
        temperature=temperature,
        greedy=greedy,
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
    advance=lambda: None,
) -> dict[str, np.ndarray]:
    """Expected cycles of each text without decoding it: acceptance at every position, then the renewal of cycles.

    Args:
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
    check_temperature(decoding.temperature, decoding.greedy)
    parts = []
    for chunk, _, count in prompt_chunks(texts):
        temperature = jnp.asarray(max(decoding.temperature, 1e-6), jnp.float32)
        survival = _survival(
            target, draft, chunk, knobs, temperature, config=config, first=prompt_tokens - 1, greedy=decoding.greedy
        )
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
