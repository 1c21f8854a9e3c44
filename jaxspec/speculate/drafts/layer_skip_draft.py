"""The target without some of its blocks as a draft: which ones is searched on calibration text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.network.architecture import Architecture
from hwmodels.speculation.draft_cost import DraftCost
from jaxspec.compress.kv import stored_kv
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, forward_text
from jaxspec.models.hf_load import LoadedModel
from jaxspec.models.kv_cache import KVCache
from jaxspec.models.layer_loops import BLOCKS, block_parameters, without_blocks
from jaxspec.models.mesh import filled_rows, mesh_of, on_host, split_rows
from jaxspec.models.rope import text_lengths
from jaxspec.models.stored import as_computed, as_stored
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.speculate.acceptance import TargetText, block_pass
from jaxspec.speculate.drafts.interface import ReadyDraft
from jaxspec.speculate.drafts.quantized_draft import PlainCopy
from jaxspec.speculate.sampling import GREEDY, Decoding

__all__ = [
    "CalibrationText",
    "FoundBlocks",
    "LayerSkipDraft",
    "block_weights",
    "eliminate",
    "layer_skip_draft",
    "search_blocks",
    "search_layer_skip",
]

# Search of the blocks of a network that a draft should run: sequential floating elimination by acceptance on calibration
# text.

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


@dataclasses.dataclass(frozen=True)
class LayerSkipDraft(PlainCopy):
    """A draft of some of the target's attention blocks and feed-forward networks, which reads the target's keys and values.

    Attributes:
        attention_share, feed_forward_share: of the layers' blocks that it runs, for the cost.
    Source: Draft & Verify, Zhang et al. 2024, arXiv:2309.08168 (which searches by Bayesian optimisation).
    """

    attention_share: float = dataclasses.field(default=1.0, compare=False)
    feed_forward_share: float = dataclasses.field(default=1.0, compare=False)
    name: str = dataclasses.field(default="layer-skip", compare=False)

    def cost(self, target: DecoderConfig, priced: Architecture, called: str) -> DraftCost:
        """See `Draft.cost`."""
        del target, priced
        return DraftCost(
            attention_share=self.attention_share,
            feed_forward_share=self.feed_forward_share,
            statement=(
                f"{called} with {self.attention_share:.0%} of its attention blocks and {self.feed_forward_share:.0%} of its "
                "feed-forward networks"
            ),
        )


def search_layer_skip(name: str, target: LoadedModel, text: CalibrationText) -> dict[str, np.ndarray]:
    """The blocks that are worth running, and how many candidates were measured: see `search_blocks`."""
    del name
    search = search_blocks(as_computed(as_stored(target.params)), target.config, text)
    return {"run": search.run, "speed": np.asarray(search.speed), "evaluations": np.asarray(search.evaluations)}


def layer_skip_draft(name: str, target: LoadedModel, blocks: Mapping[str, np.ndarray]) -> ReadyDraft:
    """The draft without the blocks that a search leaves out ("run": 0 or 1, "2 layer")."""
    run = np.asarray(blocks["run"], np.float32)
    shares = dict(zip((f"{block}_share" for block in BLOCKS), run.mean(axis=1).tolist(), strict=True))
    network = as_computed(without_blocks(as_stored(target.params), target.config, jnp.asarray(run)))
    return ReadyDraft(LayerSkipDraft(target.config, name=name, **shares), network)
