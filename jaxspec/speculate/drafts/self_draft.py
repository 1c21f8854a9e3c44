"""The target's own compressed copy as a draft: it reads the target's KV, compressed, at all committed positions."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from jaxtyping import Array, Float

from hwmodels.network.architecture import Architecture
from hwmodels.speculation.draft_cost import DraftCost
from jaxspec.compress.knobs import Knobs
from jaxspec.compress.kv import compress_cache
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.kv_cache import KVCache
from jaxspec.speculate.drafts.interface import Blocks, Committed, Level, ReadyDraft, Root
from jaxspec.speculate.drafts.sparse_kv_draft import TargetCopy

__all__ = ["SelfDraft", "SelfDraftParams", "self_draft"]


class SelfDraftParams(NamedTuple):
    """The compressed matrices, and how committed KV is read (only the knobs' KV part is used)."""

    network: Params
    knobs: Knobs


@dataclasses.dataclass(frozen=True)
class SelfDraft(TargetCopy):
    """A draft that is a part of its target. Its memory is its KV cache.

    Source: Cassandra (self-speculative decoding); what uncommitted tokens see is decided in
        docs/decisions/0002-acceptance.md.
    """

    name: str = dataclasses.field(default="self", compare=False)

    def cost(self, target: DecoderConfig, priced: Architecture, called: str) -> DraftCost:
        """See `Draft.cost`."""
        del target, priced
        return DraftCost(statement=f"a compressed copy of {called}")

    def empty(self, params: SelfDraftParams, batch: int, slots: int, numbers: int) -> KVCache:
        """See `Draft.empty`."""
        return self.empty_copy(params.network, batch, slots, numbers)

    def commit(self, params: SelfDraftParams, memory: KVCache, committed: Committed) -> KVCache:
        """See `Draft.commit`."""
        return self.committed_copy(memory, committed, lambda cache: compress_cache(cache, params.knobs))

    def open(self, params: SelfDraftParams, memory: KVCache, root: Root) -> tuple[Float[Array, "batch vocab"], KVCache]:
        """See `Draft.open`."""
        result, cache = self.root_step(params.network, memory, root)
        return result.logits[:, 0], cache

    def extend(
        self, params: SelfDraftParams, memory: KVCache, root: Root, level: Level
    ) -> tuple[Float[Array, "batch token vocab"], KVCache]:
        """See `Draft.extend`."""
        result, cache = self.level_step(params.network, memory, root, level)
        return result.logits, cache

    def follow(self, params: SelfDraftParams, memory: KVCache, blocks: Blocks) -> Float[Array, "batch token vocab"]:
        """See `Follows`."""
        return self.blocks_step(params.network, memory, blocks)


def self_draft(config: DecoderConfig, compressed: Params, knobs: Knobs) -> ReadyDraft:
    """The target's compressed copy, ready to run.

    Args:
        compressed: its matrices, of the target's shapes. knobs: how it reads committed KV.
    """
    return ReadyDraft(SelfDraft(config), SelfDraftParams(compressed, knobs))
