"""Medusa heads as a draft: every token of a cycle is predicted from the target's state before the root, none from another."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.network.architecture import Architecture
from hwmodels.speculation.draft_cost import DraftCost, medusa_head
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.embedded import model_place
from jaxspec.models.hf_load import LoadedModel
from jaxspec.models.matrix import is_matrix
from jaxspec.models.medusa_heads import medusa_in, medusa_logits
from jaxspec.models.norms import NORMS
from jaxspec.models.special_tokens import head_input
from jaxspec.models.stored import as_computed, as_stored
from jaxspec.speculate.drafts.interface import Committed, Level, ReadyDraft, Root

__all__ = ["MedusaDraft", "MedusaParams", "check_medusa", "medusa_draft"]

#: The name that stands for heads beside the target's own weights.
OWN = "medusa"


class MedusaParams(NamedTuple):
    """The heads' own parameters, and the target's final norm."""

    heads: Params
    norm: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class MedusaDraft:
    """Heads that each predict one token of a cycle. Memory: their logits at the root, "batch head vocab".

    Tokens of one depth have the same logits, whatever is above them; behind the last head all tokens are equally likely.

    Attributes:
        config: of the target. heads, blocks: see `MedusaHeads`.
    Source: see `jaxspec.models.medusa_heads`.
    """

    config: DecoderConfig
    heads: int
    blocks: int
    name: str = dataclasses.field(default=OWN, compare=False)

    @property
    def vocab_size(self) -> int:
        """See `Draft.vocab_size`."""
        return self.config.vocab_size

    def num_parameters(self, params: MedusaParams) -> int:
        """See `Draft.num_parameters`."""
        return sum(leaf.size for leaf in jax.tree.leaves(params.heads, is_leaf=is_matrix))

    def cost(self, target: DecoderConfig, priced: Architecture, called: str) -> DraftCost:
        """See `Draft.cost`."""
        del target
        cost = medusa_head(priced, float(self.blocks))
        return dataclasses.replace(cost, statement=f"{cost.statement}, as wide as {called}")

    def empty(self, params: MedusaParams, batch: int, slots: int, numbers: int) -> Array:
        """See `Draft.empty`."""
        del params, slots, numbers
        return jnp.zeros((batch, self.heads, self.vocab_size), jnp.float32)

    def commit(self, params: MedusaParams, memory: Array, committed: Committed) -> Array:
        """See `Draft.commit`."""
        if committed.tokens.shape[1] == 0:
            return memory  # a prompt of one token: no hidden state is known
        there = committed.valid[:, None, None] > 0
        last = jnp.maximum(committed.valid, 1)[:, None, None] - 1
        state = jnp.where(there, jnp.take_along_axis(committed.hidden, last, axis=1), 0)[:, 0]
        states = head_input(state[:, None], params.norm, self.config)[:, 0]
        return jnp.where(there, medusa_logits(params.heads, states, self.heads, self.blocks), memory)

    def open(self, params: MedusaParams, memory: Array, root: Root) -> tuple[Float[Array, "batch vocab"], Array]:
        """See `Draft.open`."""
        del params, root
        return memory[:, 0], memory

    def extend(
        self, params: MedusaParams, memory: Array, root: Root, level: Level
    ) -> tuple[Float[Array, "batch token vocab"], Array]:
        """See `Draft.extend`."""
        del params, root
        head = level.depth[..., None]
        logits = jnp.take_along_axis(memory, jnp.minimum(head, self.heads - 1), axis=1)
        return jnp.where(head < self.heads, logits, 0), memory


def _folder(name: str, model: Path) -> Path:
    return model if name == OWN else Path(name)


def check_medusa(name: str, target: DecoderConfig, model: str | None) -> None:
    """Raise InputError for heads that cannot be used, without reading their weights."""
    if name != OWN or model is not None:
        medusa_in(_folder(name, model_place(model or name)), target)


def medusa_draft(name: str, target: LoadedModel) -> ReadyDraft:
    """Heads from a directory, or `medusa`: those beside the target's own weights.

    Raises:
        InputError: see `medusa_in`.
    """
    found = medusa_in(_folder(name, target.directory), target.config)
    norm = {part: target.params[part] for part in NORMS[target.config.norm].vectors("final_norm")}
    params = MedusaParams(as_computed(as_stored(found.loaded())), norm)
    return ReadyDraft(MedusaDraft(target.config, found.heads, found.blocks, name), params)
