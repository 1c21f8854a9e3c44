"""The target's own nested copy as a draft: its routers choose among a pool of hot experts, which every cycle refreshes."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float

from hwmodels.network.architecture import Architecture
from hwmodels.speculation.draft_cost import DraftCost
from jaxspec.compress.expert_pool import has_pool, pool_sizes
from jaxspec.compress.knobs import Knobs
from jaxspec.compress.kv import compress_cache
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.kv_cache import KVCache
from jaxspec.speculate.drafts.interface import Committed, Level, ReadyDraft, Root
from jaxspec.speculate.drafts.self_draft import SelfDraft, SelfDraftParams
from jaxspec.speculate.drafts.sparse_kv_draft import CopyStep, TargetCopy
from jaxspec.speculate.hotness import RETENTION, count_choices, faded, hotness_rank, recency, shared_hotness

__all__ = [
    "ElasticDraft",
    "ElasticMemory",
    "compressed_copy",
]


@struct.dataclass
class ElasticMemory:
    """Memory of an elastic draft. Layers are those that have a router.

    Attributes:
        cache: as a compressed copy's.
        recorded: original choices of each expert by the tokens drafted since the last commitment.
        hotness: choices of each expert so far, weighted by age.
        pool: experts that drafted tokens may use.
    """

    cache: KVCache
    recorded: Float[Array, "layer batch expert"]
    hotness: Float[Array, "layer batch expert"]
    pool: Bool[Array, "layer batch expert"]


@dataclasses.dataclass(frozen=True)
class ElasticDraft(TargetCopy):
    """A compressed copy of a mixture of experts whose routers choose among the hottest experts, in the order of their scores.

    Draft steps record which experts the routers would have chosen among all (RecordHotness). A commitment adds these records to
    the hotness, and the hottest experts are the pool of the next cycle (UpdateCache): all that the pool needs is known before
    verification begins. Where nothing was drafted the target's own choices count: the first pool is that of the prompt.

    Attributes:
        sharing: consecutive sequences of a batch that share a pool; their choices are added up.
        retention: factor by which hotness falls per committed token.
        from_target: count the target's choices of the committed tokens instead of the draft's. They are known too late for a
            pool that is loaded during verification, but make pools a function of the text alone.
    Raises:
        ValueError: a network without experts.
    Source: ELMoE-3D (arXiv:2604.14626), 4.2 and Algorithm 1.
    """

    sharing: int = 1
    retention: float = RETENTION
    from_target: bool = False
    name: str = dataclasses.field(default="elastic", compare=False)

    def __post_init__(self) -> None:
        if self.config.experts is None:
            raise ValueError("the network has no experts; a draft without a pool is SelfDraft")

    def cost(self, target: DecoderConfig, priced: Architecture, called: str) -> DraftCost:
        """See `Draft.cost`."""
        del target, priced
        return DraftCost(statement=f"a part of {called}: upper bits of its weights, any of its experts")

    def empty(self, params: SelfDraftParams, batch: int, slots: int, numbers: int) -> ElasticMemory:
        """See `Draft.empty`."""
        none = jnp.zeros((self._routers, batch, self._experts), jnp.float32)
        cache = self.empty_copy(params.network, batch, slots, numbers)
        return ElasticMemory(cache=cache, recorded=none, hotness=none, pool=self._pool(params, none))

    def commit(self, params: SelfDraftParams, memory: ElasticMemory, committed: Committed) -> ElasticMemory:
        """See `Draft.commit`."""
        places = committed.tokens.shape[1]
        if places == 0:
            return memory  # a prompt of one token
        chosen = count_choices(
            committed.extras.original, recency(committed.valid, places, self.retention), self._experts
        )
        if not self.from_target:
            drafted = jnp.any(memory.recorded > 0, axis=-1, keepdims=True)
            chosen = jnp.where(drafted, memory.recorded, chosen)
        hotness = faded(committed.valid, self.retention)[None, :, None] * memory.hotness + chosen
        return ElasticMemory(
            cache=self.committed_copy(memory.cache, committed, lambda cache: compress_cache(cache, params.knobs)),
            recorded=jnp.zeros_like(memory.recorded),
            hotness=hotness,
            pool=self._pool(params, hotness),
        )

    def open(
        self, params: SelfDraftParams, memory: ElasticMemory, root: Root
    ) -> tuple[Float[Array, "batch vocab"], ElasticMemory]:
        """See `Draft.open`."""
        step = self.root_step(params.network, memory.cache, root, allowed_experts=memory.pool)
        there = jnp.ones(root.token.shape, bool)[:, None]
        return step.result.logits[:, 0], self._recorded(memory, step, there)

    def extend(
        self, params: SelfDraftParams, memory: ElasticMemory, root: Root, level: Level
    ) -> tuple[Float[Array, "batch token vocab"], ElasticMemory]:
        """See `Draft.extend`."""
        step = self.level_step(params.network, memory.cache, root, level, allowed_experts=memory.pool)
        there = jnp.any(level.ancestors, axis=-1)  # padding has none
        return step.result.logits, self._recorded(memory, step, there)

    def _recorded(self, memory: ElasticMemory, step: CopyStep, there: Bool[Array, "batch token"]) -> ElasticMemory:
        """The memory with what a draft step wrote and chose."""
        assert step.result.extras is not None
        counts = count_choices(step.result.extras.original, there.astype(jnp.float32), self._experts)
        return dataclasses.replace(memory, cache=step.cache, recorded=memory.recorded + counts)

    def _pool(
        self, params: SelfDraftParams, hotness: Float[Array, "layer batch expert"]
    ) -> Bool[Array, "layer batch expert"]:
        sizes = pool_sizes(params.knobs, self.config, None)
        if sizes is None:
            return jnp.ones(hotness.shape, bool)
        return hotness_rank(shared_hotness(hotness, self.sharing)) < sizes.low[:, None, None]

    @property
    def _experts(self) -> int:
        assert self.config.experts is not None
        return self.config.experts.num_experts

    @property
    def _routers(self) -> int:
        assert self.config.router is not None
        return self.config.router.num_layers


# The target's compressed copy as a draft: with a pool of experts where the network has experts and the scheme such a knob.


def compressed_copy(
    config: DecoderConfig, compressed: Params, knobs: Knobs, *, sharing: int = 1, name: str = ""
) -> ReadyDraft:
    """The target's compressed copy, ready to run.

    Args:
        compressed: its matrices, of the target's shapes. knobs: how it reads committed KV, and the size of its pools.
        sharing: consecutive sequences of a batch that share a pool of experts.
        name: what a user calls it; empty: its kind's.
    """
    draft = ElasticDraft(config, sharing) if has_pool(knobs, config) else SelfDraft(config)
    return ReadyDraft(dataclasses.replace(draft, name=name or draft.name), SelfDraftParams(compressed, knobs))
