"""Search of the blocks of a network that a draft should run: sequential floating elimination by acceptance on calibration text.

From the whole network on, the block whose absence is the best for speed is left out, then one block that was left out before
may come back where that beats the best known draft of as many blocks. What stays is the best draft that was met.

Source: Pudil et al. 1994, Floating search methods in feature selection; the question is that of Draft & Verify,
    arXiv:2309.08168.
Departs: Bayesian optimisation over 2^n subsets takes 1000 measurements there; this takes about n^2 / 2 of n blocks, ends when
    nothing has got better for a while, and needs no random draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxspec.compress.kv import stored_kv
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, forward_text
from jaxspec.models.kv_cache import KVCache
from jaxspec.models.mesh import filled_rows, mesh_of, on_host, split_rows
from jaxspec.models.rope import text_lengths
from jaxspec.models.skipped_blocks import BLOCKS, block_parameters, without_blocks
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.speculate.acceptance import TargetText, block_pass
from jaxspec.speculate.sampling import GREEDY, Decoding

__all__ = ["CalibrationText", "FoundBlocks", "block_weights", "eliminate", "search_blocks"]

#: Texts that candidates are measured on, at most.
_TEXTS = 32

#: Roots are this many tokens apart in the two passes of a measurement.
_OFFSETS = (0, MAX_DRAFT_LENGTH // 2)


class CalibrationText(NamedTuple):
    """Text that a draft is chosen on.

    Attributes:
        tokens: "text token"; prompts, and what the target put out after them.
        prompt_tokens: of each.
        decoding: how tokens are chosen.
    """

    tokens: np.ndarray
    prompt_tokens: int
    decoding: Decoding = GREEDY


class FoundBlocks(NamedTuple):
    """Result of a search.

    Attributes:
        run: 0 or 1 for attention (row 0) and feed-forward network (row 1) of each layer, at least one of them 0.
        speed: of drafting so, over decoding alone, if steps take the time of the weights that they read.
        evaluations: candidates that were measured.
    """

    run: np.ndarray
    speed: float
    evaluations: int


def search_blocks(params: Params, config: DecoderConfig, text: CalibrationText) -> FoundBlocks:
    """Search the blocks that a draft should run.

    Candidates are judged by tokens per cycle at their best draft length over the cycle's time, where a step takes the time of
    the weights that it reads: no device is asked, so that one draft serves all of them.

    Args:
        params: of the target, as they are computed with.
    """
    texts = jnp.asarray(text.tokens[:_TEXTS])
    (tokens,) = split_rows(params, filled_rows(mesh_of(params), texts)[0])
    target_text, cache = _target_text(params, config, tokens, first=text.prompt_tokens - 1)
    weights = block_weights(config)
    total = weights.sum() + config.vocab_size * config.hidden_size  # the head is read by all
    block = min(MAX_DRAFT_LENGTH, target_text.hidden.shape[1] // 2)

    def speed(run: np.ndarray) -> float:
        share = 1.0 - float((weights * (1.0 - run)).sum() / total)
        candidate, decoding = jnp.asarray(run, jnp.float32), text.decoding.for_program()
        survivals = _survival(params, config, target_text, cache, candidate, decoding, block=block, texts=len(texts))
        survival = np.asarray(on_host(survivals), np.float64)
        gained, length = 1.0 + np.cumsum(survival), np.arange(1, block + 1)
        return float(np.max(gained / (1.0 + length * share)))

    return eliminate(speed, (len(BLOCKS), config.num_layers))


def eliminate(speed: Callable[[np.ndarray], float], shape: tuple[int, int]) -> FoundBlocks:
    """Sequential floating elimination from all ones.

    Args:
        speed: of an array of 0 and 1; what is made as large as can be.
        shape: of such an array.
    """
    count = math.prod(shape)
    measured: dict[bytes, float] = {}

    def of(run: np.ndarray) -> float:
        key = run.tobytes()
        if key not in measured:
            measured[key] = speed(run.reshape(shape).astype(np.float32))
        return measured[key]

    def best_flip(run: np.ndarray, places: np.ndarray) -> np.ndarray:
        candidates = [np.where(np.arange(count) == place, 1 - run, run).astype(np.uint8) for place in places]
        return max(candidates, key=of)

    best_of_size: dict[int, np.ndarray] = {}
    run, patience, since = np.ones(count, np.uint8), max(2, count // 4), 0
    best: np.ndarray | None = None
    while run.sum() > 1 and since < patience:
        run = best_flip(run, np.flatnonzero(run))
        while True:  # a block that went may come back, if that is better than all drafts of that size
            size = int(run.sum())
            if size not in best_of_size or of(run) > of(best_of_size[size]):
                best_of_size[size] = run
            if size >= count - 2:
                break
            back = best_flip(run, np.flatnonzero(run == 0))
            if of(back) <= of(best_of_size.get(size + 1, back)):
                break
            run = back
        run = best_of_size[int(run.sum())]
        since = 0 if best is None or of(run) > of(best) else since + 1
        best = max([run] if best is None else [best, run], key=of)
    assert best is not None, "a network has a block to skip"
    return FoundBlocks(best.reshape(shape), of(best), len(measured))


def block_weights(config: DecoderConfig) -> Float[np.ndarray, "2 layer"]:
    """Weights that one token reads of each block; of routed experts those that it chooses."""
    weights = np.zeros((len(BLOCKS), config.num_layers))
    for block in range(len(BLOCKS)):
        for name in block_parameters(config, block):
            parameter = config.layer_parameters[name]
            share = (
                1.0
                if config.experts is None or len(parameter.shape) < 3
                else config.experts.per_token / parameter.shape[0]
            )
            weights[block, list(parameter.layers())] += share * math.prod(parameter.shape)
    return weights


@partial(jax.jit, static_argnames=("config", "first"))
def _target_text(params: Params, config: DecoderConfig, tokens: Array, *, first: int) -> tuple[TargetText, KVCache]:
    """The text with the target's hidden states from the first root on, and its KV."""
    text = tokens[:, :-1]
    # As decoding processes a prompt that ends with the first root.
    lengths = text_lengths(jnp.broadcast_to(jnp.arange(text.shape[1]), text.shape), jnp.full(1, first + 1))
    result = forward_text(params, config, text, kv_codec=stored_kv(config), logits_from=text.shape[1], lengths=lengths)
    return TargetText(tokens, result.hidden[:, first:]), result.cache


@partial(jax.jit, static_argnames=("config", "block", "texts"))
def _survival(
    params: Params,
    config: DecoderConfig,
    text: TargetText,
    cache: KVCache,
    run: Float[Array, "2 layer"],
    decoding: Any,
    *,
    block: int,
    texts: int,
) -> Float[Array, " depth"]:
    """P(first d tokens accepted) of the draft of some blocks, mean over the first texts: others fill places alone."""
    draft = without_blocks(params, config, run)
    at = lambda offset: (
        block_pass(draft, config, text, cache, target=params, offset=offset, block=block, decoding=decoding).survival
    )
    passes = [jnp.mean(at(min(offset, block - 1))[:texts], axis=(0, 1)) for offset in _OFFSETS]
    return jnp.mean(jnp.stack(passes), axis=0)
