"""A draft that proposes nothing, for programs that time a verification alone."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.network.architecture import Architecture
from hwmodels.speculation.draft_cost import DraftCost
from jaxspec.models.config import DecoderConfig
from jaxspec.speculate.drafts.interface import Committed, Level, Root

__all__ = ["NoDraft"]


@dataclasses.dataclass(frozen=True)
class NoDraft:
    """A draft without parameters and memory, for trees without nodes; asked all the same, it holds all tokens equal."""

    vocab_size: int
    name: str = dataclasses.field(default="none", compare=False)

    def num_parameters(self, params: None) -> int:
        """See `Draft.num_parameters`."""
        del params
        return 0

    def cost(self, target: DecoderConfig, priced: Architecture, called: str) -> DraftCost:
        """See `Draft.cost`."""
        del target, priced, called
        return DraftCost(passes=0.0, statement="nothing is drafted")

    def empty(self, params: None, batch: int, slots: int, numbers: int) -> tuple[()]:
        """See `Draft.empty`."""
        del params, batch, slots, numbers
        return ()

    def commit(self, params: None, memory: tuple[()], committed: Committed) -> tuple[()]:
        """See `Draft.commit`."""
        del params, committed
        return memory

    def open(self, params: None, memory: tuple[()], root: Root) -> tuple[Float[Array, "batch vocab"], tuple[()]]:
        """See `Draft.open`."""
        del params
        return jnp.zeros((root.token.shape[0], self.vocab_size), jnp.float32), memory

    def extend(
        self, params: None, memory: tuple[()], root: Root, level: Level
    ) -> tuple[Float[Array, "batch token vocab"], tuple[()]]:
        """See `Draft.extend`."""
        del params, root
        return jnp.zeros((*level.tokens.shape, self.vocab_size), jnp.float32), memory
