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
    "eliminate_in_order",
    "layer_skip_draft",
    "num_searched",
    "search_blocks",
    "search_layer_skip",
]

# Search of the blocks of a network that a draft should run, by acceptance on calibration text: sequential floating elimination
# of few blocks; of many, elimination in the order of what each alone changes.

#: Blocks up to which every removal is measured again after each removal: about n² / 2 measurements, a thousand for 60 blocks.
MOST_FLOATING = 24

#: Texts on which each block alone is left out.
_FEW_TEXTS = 4

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
    decoding, weights = text.decoding.for_program(), block_weights(config)

    def passes_on(texts: int, offsets: tuple[int, ...]) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
        """What is measured of a candidate on the first so many texts."""
        known = jnp.asarray(text.tokens[:texts])
        (tokens,) = split_rows(params, filled_rows(mesh_of(params), known)[0])
        target_text, cache = _target_text(params, config, tokens, first=text.prompt_tokens - 1)
        block = min(MAX_DRAFT_LENGTH, target_text.hidden.shape[1] // 2)
        how = {"block": block, "texts": len(known), "offsets": tuple(min(offset, block - 1) for offset in offsets)}
        return lambda run: on_host(
            _measured(params, config, target_text, cache, jnp.asarray(run, jnp.float32), decoding, **how)
        )

    on_all = passes_on(_TEXTS, _OFFSETS)
    total = weights.sum() + config.vocab_size * config.hidden_size  # the head is read by all

    def speed(run: np.ndarray) -> float:
        share = 1.0 - float((weights * (1.0 - run)).sum() / total)
        survival = np.asarray(on_all(run)["survival"], np.float64)
        gained, length = 1.0 + np.cumsum(survival), np.arange(1, len(survival) + 1)
        return float(np.max(gained / (1.0 + length * share)))

    if weights.size <= MOST_FLOATING:
        return eliminate(speed, weights.shape)
    on_few = passes_on(_FEW_TEXTS, _OFFSETS[:1])
    without = np.ones((weights.size, *weights.shape), np.float32)
    without.reshape(weights.size, -1)[np.diag_indices(weights.size)] = 0.0
    changed = np.array([float(on_few(without[place])["kl"]) for place in range(weights.size)])
    return eliminate_in_order(speed, changed / np.maximum(weights.reshape(-1), 1.0), weights.shape)


def eliminate_in_order(
    speed: Callable[[np.ndarray], float], costs: Float[np.ndarray, " place"], shape: tuple[int, int]
) -> FoundBlocks:
    """Elimination from all ones in a fixed order, until several removals in a row bring nothing.

    Args:
        speed, shape: as for `eliminate`.
        costs: of removing each place alone, which were measured too; the cheapest goes first.
    """
    run, best, best_speed, since = np.ones(len(costs), np.uint8), None, -math.inf, 0
    evaluations = len(costs)
    for place in np.argsort(costs, kind="stable")[:-1]:
        run[place] = 0
        evaluations += 1
        here = speed(run.reshape(shape).astype(np.float32))
        since += 1
        if here > best_speed:
            best, best_speed, since = run.copy(), here, 0
        if since >= max(2, len(costs) // 8):
            break
    assert best is not None, "a network has a block to skip"
    return FoundBlocks(best.reshape(shape), best_speed, evaluations)


def num_searched(config: DecoderConfig) -> int:
    """Candidates that a search measures on all texts, roughly."""
    blocks = len(BLOCKS) * config.num_layers
    return blocks**2 // 2 if blocks <= MOST_FLOATING else blocks // 4


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


@partial(jax.jit, static_argnames=("config", "block", "texts", "offsets"))
def _measured(
    params: Params,
    config: DecoderConfig,
    text: TargetText,
    cache: KVCache,
    run: Float[Array, "2 layer"],
    decoding: Any,
    *,
    block: int,
    texts: int,
    offsets: tuple[int, ...],
) -> dict[str, Array]:
    """P(first d tokens accepted) of the draft of some blocks, and its KL from the target; means over the first texts, since
    others only fill places."""
    draft = without_blocks(params, config, run)
    how = {"target": params, "block": block, "decoding": decoding}
    passes = [block_pass(draft, config, text, cache, offset=offset, **how) for offset in offsets]
    mean = lambda parts, axes: jnp.mean(jnp.stack(parts)[:, :texts], axis=axes)
    return {
        "survival": mean([each.survival for each in passes], (0, 1, 2)),
        "kl": mean([each.kl for each in passes], None),
    }


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
