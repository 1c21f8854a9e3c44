"""The target itself as a draft that reads a part of the KV cache: the first tokens and the latest ones."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from hwmodels.network.architecture import Architecture
from hwmodels.speculation.draft_cost import DraftCost
from jaxspec.errors import InputError
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.hf_load import LoadedModel
from jaxspec.models.kv_cache import KVCache
from jaxspec.models.stored import as_computed, as_stored
from jaxspec.speculate.drafts.interface import Committed, Level, ReadyDraft, Root
from jaxspec.speculate.drafts.target_copy import TargetCopy

__all__ = ["SINKS", "SparseKVDraft", "SparseKVParams", "check_sparse_kv", "sparse_kv_draft", "visible_slots"]

#: First tokens of a text that every token sees (StreamingLLM's attention sinks).
SINKS = 4


class SparseKVParams(NamedTuple):
    """The target's parameters, and which share of the committed tokens the draft sees, (0, 1]."""

    network: Params
    share: Float[Array, ""]


@dataclasses.dataclass(frozen=True)
class SparseKVDraft(TargetCopy):
    """A draft with all of the target's weights. Its memory is its KV cache.

    The tokens that it sees are a share of those committed, not a number, so that a network measured on short texts stands for
    one priced at a long context. Drafted tokens see each other.

    Attributes:
        share: of the committed tokens that are seen, for the cost.
    Source: MagicDec, Sadhukhan et al. 2024, arXiv:2408.11049 (self-speculation with a sparse cache); StreamingLLM, Xiao et al.
        2023, arXiv:2309.17453 (first and latest tokens).
    """

    share: float = dataclasses.field(default=0.25, compare=False)
    name: str = dataclasses.field(default="sparse-kv", compare=False)

    def cost(self, target: DecoderConfig, priced: Architecture, called: str) -> DraftCost:
        """See `Draft.cost`."""
        del target, priced
        return DraftCost(
            visible_share=self.share, statement=f"{called} itself, which reads {self.share:.0%} of its KV cache"
        )

    def empty(self, params: SparseKVParams, batch: int, slots: int, numbers: int) -> KVCache:
        """See `Draft.empty`."""
        return self.empty_copy(params.network, batch, slots, numbers)

    def commit(self, params: SparseKVParams, memory: KVCache, committed: Committed) -> KVCache:
        """See `Draft.commit`."""
        del params
        return self.committed_copy(memory, committed, lambda cache: cache)

    def open(self, params: SparseKVParams, memory: KVCache, root: Root) -> tuple[Float[Array, "batch vocab"], KVCache]:
        """See `Draft.open`."""
        result, cache = self.root_step(params.network, memory, root, seen=visible_slots(root, params.share, memory))
        return result.logits[:, 0], cache

    def extend(
        self, params: SparseKVParams, memory: KVCache, root: Root, level: Level
    ) -> tuple[Float[Array, "batch token vocab"], KVCache]:
        """See `Draft.extend`."""
        seen = visible_slots(root, params.share, memory)
        result, cache = self.level_step(params.network, memory, root, level, seen=seen)
        return result.logits, cache


def visible_slots(root: Root, share: Float[Array, ""], cache: KVCache) -> Bool[Array, "batch slot"]:
    """The first `SINKS` slots, as many of the latest committed ones as make up the share, and all from the root's on.

    One committed token before the root is always seen.
    """
    slot = jnp.arange(cache.num_slots)[None, :]
    position = root.position[:, None]
    latest = jnp.maximum(jnp.round(share * position.astype(jnp.float32)).astype(jnp.int32) - SINKS, 1)
    return (slot < SINKS) | (slot >= position - latest)


def sparse_kv_draft(name: str, target: LoadedModel) -> ReadyDraft:
    """The target as a draft that sees as many percent of the committed tokens as its name ends in.

    Raises:
        InputError: see `check_sparse_kv`.
    """
    check_sparse_kv(name, target.config, None)
    share = int(name.rpartition("-")[2]) / 100
    params = SparseKVParams(as_computed(as_stored(target.params)), jnp.asarray(share, jnp.float32))
    return ReadyDraft(SparseKVDraft(target.config, share, name), params)


def check_sparse_kv(name: str, target: DecoderConfig, model: str | None) -> None:
    """Raise InputError for a network with linear attention, whose updates follow from all tokens before."""
    del model
    if target.mixed_layers is not None:
        raise InputError(
            f"draft {name!r} reads a part of the cached tokens, and the network has linear attention, which has no such part; "
            "allowed are networks without: give another draft"
        )
