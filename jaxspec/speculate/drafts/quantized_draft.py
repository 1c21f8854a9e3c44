"""A separate copy of the target in 4 bits as a draft (Quant-SD), held beside it; it reads the target's keys and values."""

from __future__ import annotations

import dataclasses

import jax

from hwmodels.network.architecture import Architecture
from hwmodels.speculation.draft_cost import DraftCost
from jaxspec.compress.schemes.quantized import Q4_0
from jaxspec.compress.weights import target_network
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.hf_load import LoadedModel
from jaxspec.models.matrix import Matrix, stack_of
from jaxspec.models.stored import as_computed, as_stored
from jaxspec.models.streamed import is_streamed
from jaxspec.speculate.drafts.interface import ReadyDraft
from jaxspec.speculate.drafts.plain_copy import PlainCopy

__all__ = ["QuantizedDraft", "quantized_copy", "quantized_draft"]


@jax.jit
def _in_q4_0(stack: Matrix) -> Matrix:
    """Layer after layer, so that what it takes to quantize exists of one layer at a time."""
    return jax.lax.map(lambda layer: stack_of(Q4_0.matrix.target(layer.values())), stack)


@dataclasses.dataclass(frozen=True)
class QuantizedDraft(PlainCopy):
    """A draft of the target's shape with matrices of its own.

    Source: ELMoE-3D (arXiv:2604.14626), 7, Quant-SD; Georganas et al. 2025 (ML-SpecQD).
    """

    stored_apart = True

    name: str = dataclasses.field(default="q4", compare=False)

    def cost(self, target: DecoderConfig, priced: Architecture, called: str) -> DraftCost:
        """See `Draft.cost`."""
        del target, priced
        return DraftCost(stored_apart=1.0, statement=f"a separate 4-bit copy of {called}")


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
