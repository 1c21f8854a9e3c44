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
from jaxspec.models.kv_cache import KVCache, empty_cache, write_cache
from jaxspec.models.stored import as_computed, stack_of
from jaxspec.speculate.drafts.interface import Committed, Level, ReadyDraft, Root
from jaxspec.speculate.drafts.self_draft import forward_level, forward_root

__all__ = ["QuantizedDraft", "quantized_copy", "quantized_draft"]

_in_q4_0 = jax.jit(Q4_0.target)


@dataclasses.dataclass(frozen=True)
class QuantizedDraft:
    """A draft of the target's shape with matrices of its own; its parameters are those of `forward`.

    Its memory is a KV cache in which committed positions hold the target's keys and values.

    Source: ELMoE-3D (arXiv:2604.14626), 7, Quant-SD; Georganas et al. 2025 (ML-SpecQD).
    """

    config: DecoderConfig
    name: str = dataclasses.field(default="q4", compare=False)

    @property
    def vocab_size(self) -> int:
        """See `Draft.vocab_size`."""
        return self.config.vocab_size

    def num_parameters(self, params: Params) -> int:
        """See `Draft.num_parameters`: the matrices of the layers; all else is the target's."""
        return sum(params["layers"][kind].size for kind in self.config.matrix_kinds)

    def cost(self, target: DecoderConfig, priced: Architecture, called: str) -> DraftCost:
        """See `Draft.cost`."""
        del target, priced
        return DraftCost(stored_apart=1.0, statement=f"a separate 4-bit copy of {called}")

    def empty(self, params: Params, batch: int, slots: int, numbers: int) -> KVCache:
        """See `Draft.empty`."""
        del params
        return empty_cache(self.config, batch, slots + numbers)

    def commit(self, params: Params, memory: KVCache, committed: Committed) -> KVCache:
        """See `Draft.commit`."""
        del params
        if committed.tokens.shape[1] == 0:
            return memory  # a prompt of one token
        return write_cache(memory, committed.cache, committed.start)

    def open(self, params: Params, memory: KVCache, root: Root) -> tuple[Float[Array, "batch vocab"], KVCache]:
        """See `Draft.open`."""
        result = forward_root(params, self.config, memory, root)
        return result.logits[:, 0], write_cache(memory, result.cache, root.position)

    def extend(
        self, params: Params, memory: KVCache, root: Root, level: Level
    ) -> tuple[Float[Array, "batch token vocab"], KVCache]:
        """See `Draft.extend`."""
        result = forward_level(params, self.config, memory, root, level)
        return result.logits, write_cache(memory, result.cache, root.position + level.first)


def quantized_copy(params: Params, config: DecoderConfig) -> Params:
    """Parameters with the matrices of the layers in Q4_0: groups of 32 along a row, the last one filled up with zeros."""
    made = {kind: _in_q4_0(stack_of(params["layers"][kind]).values()) for kind in config.matrix_kinds}
    return as_computed(params | {"layers": params["layers"] | made})


def quantized_draft(name: str, target: LoadedModel) -> ReadyDraft:
    """The 4-bit copy of a loaded target."""
    return ReadyDraft(QuantizedDraft(target.config, name), quantized_copy(target.params, target.config))
