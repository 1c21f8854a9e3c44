"""A separate copy of the target in 4 bits as a draft (Quant-SD), held beside it; it reads the target's keys and values."""

from __future__ import annotations

import dataclasses

import jax
from jaxtyping import Array, Float

from hwmodels.network.architecture import Architecture
from hwmodels.speculation.draft_cost import DraftCost
from jaxspec.compress.schemes.quantized import Q4_0
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.hf_load import LoadedModel
from jaxspec.models.kv_cache import KVCache
from jaxspec.models.stored import as_computed, stack_of
from jaxspec.speculate.drafts.interface import Committed, Level, ReadyDraft, Root
from jaxspec.speculate.drafts.target_copy import TargetCopy

__all__ = ["QuantizedDraft", "quantized_copy", "quantized_draft"]

_in_q4_0 = jax.jit(Q4_0.target)


@dataclasses.dataclass(frozen=True)
class QuantizedDraft(TargetCopy):
    """A draft of the target's shape with matrices of its own; its parameters are those of `forward`.

    Its memory is its KV cache.

    Source: ELMoE-3D (arXiv:2604.14626), 7, Quant-SD; Georganas et al. 2025 (ML-SpecQD).
    """

    stored_apart = True

    name: str = dataclasses.field(default="q4", compare=False)

    def cost(self, target: DecoderConfig, priced: Architecture, called: str) -> DraftCost:
        """See `Draft.cost`."""
        del target, priced
        return DraftCost(stored_apart=1.0, statement=f"a separate 4-bit copy of {called}")

    def empty(self, params: Params, batch: int, slots: int, numbers: int) -> KVCache:
        """See `Draft.empty`."""
        del params
        return self.empty_copy(batch, slots, numbers)

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


def quantized_copy(params: Params, config: DecoderConfig) -> Params:
    """Parameters with the matrices of the layers in Q4_0: groups of 32 along a row, the last one filled up with zeros."""
    made = {kind: _in_q4_0(stack_of(params["layers"][kind]).values()) for kind in config.matrix_kinds}
    return as_computed(params | {"layers": params["layers"] | made})


def quantized_draft(name: str, target: LoadedModel) -> ReadyDraft:
    """The 4-bit copy of a loaded target."""
    return ReadyDraft(QuantizedDraft(target.config, name), quantized_copy(target.params, target.config))
