"""Copies of the target with matrices of their own form, which read the target's keys and values as they are."""

from __future__ import annotations

import dataclasses

from jaxtyping import Array, Float

from jaxspec.models.decoder import Params
from jaxspec.models.kv_cache import KVCache
from jaxspec.speculate.drafts.interface import Committed, Level, Root
from jaxspec.speculate.drafts.target_copy import TargetCopy

__all__ = ["PlainCopy"]


@dataclasses.dataclass(frozen=True)
class PlainCopy(TargetCopy):
    """Base of such drafts: their parameters are those of `forward`, their memory is their KV cache."""

    def empty(self, params: Params, batch: int, slots: int, numbers: int) -> KVCache:
        """See `Draft.empty`."""
        return self.empty_copy(params, batch, slots, numbers)

    def commit(self, params: Params, memory: KVCache, committed: Committed) -> KVCache:
        """See `Draft.commit`."""
        del params
        return self.committed_copy(memory, committed, lambda cache: cache)

    def open(self, params: Params, memory: KVCache, root: Root) -> tuple[Float[Array, "batch vocab"], KVCache]:
        """See `Draft.open`."""
        result, cache = self.root_step(params, memory, root)
        return result.logits[:, 0], cache

    def extend(
        self, params: Params, memory: KVCache, root: Root, level: Level
    ) -> tuple[Float[Array, "batch token vocab"], KVCache]:
        """See `Draft.extend`."""
        result, cache = self.level_step(params, memory, root, level)
        return result.logits, cache
