"""Acceptance of elastic drafts on a network's own continuations of held-out prompts, for any pools of experts."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxspec.compress.expert_pool import PoolSizes
from jaxspec.compress.kv import stored_kv
from jaxspec.compress.schemes.elastic import ELASTIC
from jaxspec.compress.weights import target_network
from jaxspec.errors import InputError
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, forward_text
from jaxspec.models.expert_sizes import ExpertSizes
from jaxspec.models.hf_load import LoadedModel
from jaxspec.models.kv_cache import KVCache
from jaxspec.models.stored import as_computed
from jaxspec.speculate.acceptance import TargetText, block_pass
from jaxspec.speculate.hotness import RETENTION, hotness_before, hotness_rank, shared_hotness
from jaxspec.speculate.proof import continue_texts
from jaxspec.speculate.sampling import SAMPLING, Decoding
from jaxspec.speculate.text_pools import TextPools
from jaxspec.text import load_text
from jaxspec.tuning.calibration import target_params

__all__ = [
    "Length",
    "Measured",
    "Settings",
    "accepted_tokens",
    "hot_pools",
    "length_of",
    "measured_network",
    "random_pools",
]


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is measured."""

    prompts: int = 48
    prompt_tokens: int = 48
    output_tokens: int = 64
    draft_length: int = 8  # deepest drafted token
    shifts: int = 2  # passes over a text whose roots lie at other places
    temperature: float = 0.0  # 0: greedy; above, texts are drawn from the target and drafts are judged as samplers
    seed: int = 0

    @property
    def decoding(self) -> Decoding:
        """How tokens are chosen."""
        return dataclasses.replace(SAMPLING, greedy=self.temperature == 0, temperature=self.temperature or 1.0)


class Measured(NamedTuple):
    """A network with its text.

    Attributes:
        stored: in 16 bits. target: in INT8, which wrote the text.
        chosen: experts that its routers choose at each token.
    """

    config: DecoderConfig
    stored: Params
    target: Params
    text: TargetText
    cache: KVCache
    chosen: Int[Array, "batch token layer chosen"]

    @property
    def experts(self) -> ExpertSizes:
        """Sizes of its mixture."""
        assert self.config.experts is not None
        return self.config.experts


class Length(NamedTuple):
    """Drafted tokens accepted after a root, in the mean over evenly spread roots, and its standard error over texts."""

    mean: float
    standard_error: float


def measured_network(loaded: LoadedModel, settings: Settings) -> Measured:
    """The INT8 form of a network, what it makes of held-out prompts, and what its routers choose there.

    Raises:
        InputError: a network without experts.
    """
    config = loaded.config
    if config.experts is None:
        raise InputError("the model has no experts; give a mixture of experts")
    stored = target_params(loaded.params)
    target = as_computed(target_network(ELASTIC, stored))
    text = load_text("stdlib", loaded.tokenizer)
    prompts = text.held_out_windows(settings.prompts, settings.prompt_tokens, settings.seed)
    length = settings.prompt_tokens + settings.output_tokens + 1
    decoded = continue_texts(
        target, config, prompts, num_tokens=settings.output_tokens + 1, decoding=settings.decoding, seed=settings.seed
    )
    tokens = jnp.asarray(decoded["tokens"][:, :length])
    result = forward_text(target, config, tokens[:, :-1], kv_codec=stored_kv(config), logits_from=length - 1)
    assert result.extras is not None
    text = TargetText(tokens, result.hidden[:, settings.prompt_tokens - 1 :])
    return Measured(config, as_computed(stored), target, text, result.cache, result.extras.original)


def hot_pools(
    network: Measured, *, sharing: int = 1, retention: float = RETENTION
) -> Int[Array, "layer batch query expert"]:
    """Rank of each expert by hotness at each query, of its own text or of so many texts together."""
    hotness = hotness_before(network.chosen, network.experts.num_experts, retention)
    return hotness_rank(shared_hotness(hotness, sharing))[:, :, network.text.first :]


def random_pools(network: Measured, seed: int) -> Int[Array, "layer batch query expert"]:
    """Ranks that have nothing to do with the text, others in each layer and text."""
    layers, batch = network.chosen.shape[2], len(network.chosen)
    queries, experts = network.text.hidden.shape[1], network.experts.num_experts
    order = np.random.default_rng(seed).random((layers, batch, 1, experts)).argsort(axis=-1)
    return jnp.broadcast_to(jnp.asarray(order), (layers, batch, queries, experts))


def length_of(accepted: Float[np.ndarray, " batch"]) -> Length:
    """Acceptance length over texts."""
    return Length(float(accepted.mean()), float(accepted.std(ddof=1) / np.sqrt(len(accepted))))


def accepted_tokens(
    network: Measured, draft: Params, ranks: Int[Array, "layer batch query expert"], size: int, settings: Settings
) -> Float[np.ndarray, " batch"]:
    """Acceptance length in each text.

    Args:
        draft: its parameters.
        ranks: of experts; size: of the pools, all experts with a rank below it.
    """
    per_text = _accepted(
        network.target,
        draft,
        network.text,
        network.cache,
        ranks,
        jnp.full(ranks.shape[0], size),
        config=network.config,
        block=settings.draft_length,
        shifts=settings.shifts,
        decoding=settings.decoding.for_program(),
    )
    return np.asarray(per_text, np.float64)


@partial(jax.jit, static_argnames=("config", "block", "shifts"))
def _accepted(
    target: Params,
    draft: Params,
    text: TargetText,
    cache: KVCache,
    ranks: Array,
    sizes: Array,
    *,
    config: DecoderConfig,
    block: int,
    shifts: int,
    decoding: Decoding,
) -> Float[Array, " batch"]:
    pools = TextPools(ranks, PoolSizes(sizes, None, jnp.zeros(sizes.shape)))

    def one(offset: Array) -> Array:
        passed = block_pass(
            draft, config, text, cache, target=target, offset=offset, block=block, decoding=decoding, pools=pools
        )
        return jnp.mean(jnp.sum(passed.survival, axis=-1), axis=-1)

    return jnp.mean(jax.lax.map(one, jnp.arange(shifts) * block // shifts), axis=0)
