"""A separate copy of the target in 4 bits as a draft (Quant-SD), held beside it; it reads the target's keys and values."""

from __future__ import annotations

import dataclasses

import jax
from jaxtyping import Array, Float

from hwmodels.network.architecture import Architecture
from hwmodels.speculation.draft_cost import DraftCost
from jaxspec.compress.schemes.quantized import Q4_0
from jaxspec.compress.weights import target_network
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.hf_load import LoadedModel
from jaxspec.models.kv_cache import KVCache
from jaxspec.models.matrix import Matrix, stack_of
from jaxspec.models.stored import as_computed, as_stored
from jaxspec.models.streamed import is_streamed
from jaxspec.speculate.drafts.interface import Blocks, Committed, Level, ReadyDraft, Root
from jaxspec.speculate.drafts.sparse_kv_draft import TargetCopy

__all__ = ["PlainCopy", "QuantizedDraft", "quantized_copy", "quantized_draft"]


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

    def follow(self, params: Params, memory: KVCache, blocks: Blocks) -> Float[Array, "batch token vocab"]:
        """See `Follows`."""
        return self.blocks_step(params, memory, blocks)


@jax.jit
def _in_q4_0(stack: Matrix) -> Matrix:
    """Layer after layer, so that what it takes to quantize exists of one layer at a time."""
    return jax.lax.map(lambda layer: stack_of(Q4_0.matrix.target(layer.values())), stack)


@dataclasses.dataclass(frozen=True)
class QuantizedDraft(PlainCopy):
    """A draft of the target's shape with matrices of its own.

    Source: ELMoE-3D (arXiv:2604.14626), 7, Quant-SD; Georganas et al. 2025 (ML-SpecQD).
    """

    separate_weights = True

    name: str = dataclasses.field(default="q4", compare=False)

    def cost(self, target: DecoderConfig, priced: Architecture, called: str) -> DraftCost:
        """See `Draft.cost`."""
        del target, priced
        return DraftCost(separate_weights=1.0, statement=f"a separate 4-bit copy of {called}")


def quantized_copy(params: Params, config: DecoderConfig) -> Params:
    """Parameters with the matrices of the layers in Q4_0: groups of 32 along a row, the last one filled up with zeros.

    Of a network whose layers stream, each is made where it is used.
    """
    if is_streamed(params):
        return target_network(Q4_0, params)
    made = {kind: _in_q4_0(stack_of(params["layers"][kind])) for kind in config.matrix_kinds}
    return as_computed(as_stored(params | {"layers": params["layers"] | made}))


def quantized_draft(name: str, target: LoadedModel) -> ReadyDraft:
    """The 4-bit copy of a loaded target."""
    return ReadyDraft(QuantizedDraft(target.config, name), quantized_copy(target.params, target.config))
