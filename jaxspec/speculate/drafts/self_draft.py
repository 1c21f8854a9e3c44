"""The target's own compressed copy as a draft: it reads the target's KV, compressed, at all committed positions."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hwmodels.network.architecture import Architecture
from hwmodels.speculation.draft_cost import DraftCost
from jaxspec.compress.knobs import Knobs
from jaxspec.compress.kv import compress_cache
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import ForwardResult, Params, forward
from jaxspec.models.kv_cache import CachedKV, KVCache, empty_cache, write_cache
from jaxspec.speculate.drafts.interface import Committed, Level, ReadyDraft, Root
from jaxspec.speculate.steps import slots_before

__all__ = ["SelfDraft", "SelfDraftParams", "forward_level", "forward_root", "self_draft", "tree_slots"]


class SelfDraftParams(NamedTuple):
    """The compressed matrices, and how committed KV is read (only the knobs' KV part is used)."""

    network: Params
    knobs: Knobs


@dataclasses.dataclass(frozen=True)
class SelfDraft:
    """A draft of the target's own shape. Its memory is a KV cache in which token number n of a cycle has the root's slot + n.

    Source: Cassandra (self-speculative decoding); what uncommitted tokens see is decided in
        docs/decisions/0001-uncommitted-draft-kv.md.
    """

    config: DecoderConfig
    name: str = dataclasses.field(default="self", compare=False)

    @property
    def vocab_size(self) -> int:
        """See `Draft.vocab_size`."""
        return self.config.vocab_size

    def num_parameters(self, params: SelfDraftParams) -> int:
        """See `Draft.num_parameters`."""
        del params
        return 0

    def cost(self, target: DecoderConfig, priced: Architecture, called: str) -> DraftCost:
        """See `Draft.cost`."""
        del target, priced
        return DraftCost(statement=f"a compressed copy of {called}")

    def empty(self, params: SelfDraftParams, batch: int, slots: int, numbers: int) -> KVCache:
        """See `Draft.empty`."""
        del params
        return empty_cache(self.config, batch, slots + numbers)

    def commit(self, params: SelfDraftParams, memory: KVCache, committed: Committed) -> KVCache:
        """See `Draft.commit`."""
        if committed.tokens.shape[1] == 0:
            return memory  # a prompt of one token
        return write_cache(memory, compress_cache(committed.cache, params.knobs), committed.start)

    def open(self, params: SelfDraftParams, memory: KVCache, root: Root) -> tuple[Float[Array, "batch vocab"], KVCache]:
        """See `Draft.open`."""
        result = forward_root(params.network, self.config, memory, root)
        return result.logits[:, 0], write_cache(memory, result.cache, root.position)

    def extend(
        self, params: SelfDraftParams, memory: KVCache, root: Root, level: Level
    ) -> tuple[Float[Array, "batch token vocab"], KVCache]:
        """See `Draft.extend`."""
        result = forward_level(params.network, self.config, memory, root, level)
        return result.logits, write_cache(memory, result.cache, root.position + level.first)


def self_draft(config: DecoderConfig, compressed: Params, knobs: Knobs) -> ReadyDraft:
    """The target's compressed copy, ready to run.

    Args:
        compressed: its matrices, of the target's shapes. knobs: how it reads committed KV.
    """
    return ReadyDraft(SelfDraft(config), SelfDraftParams(compressed, knobs))


def forward_root(params: Params, config: DecoderConfig, cache: KVCache, root: Root, **options: Any) -> ForwardResult:
    """A step of the root alone, which sees all that is committed. Options: of `forward`."""
    return forward(
        params,
        config,
        tokens=root.token[:, None],
        positions=root.position[:, None],
        mask=jnp.ones((len(root.token), 1, 1), bool),
        sources=[CachedKV(cache, slots_before(root.position, 1, cache.num_slots))],
        **options,
    )


def forward_level(
    params: Params, config: DecoderConfig, cache: KVCache, root: Root, level: Level, **options: Any
) -> ForwardResult:
    """A step of a level's tokens, over a cache in which token number n of a cycle has the root's slot + n. Options: of
    `forward`."""
    batch, tokens = level.tokens.shape
    return forward(
        params,
        config,
        tokens=level.tokens,
        positions=root.position[:, None] + level.depth,
        # Tokens of one level are not above each other.
        mask=jnp.broadcast_to(jnp.eye(tokens, dtype=bool), (batch, tokens, tokens)),
        sources=[CachedKV(cache, tree_slots(root.position, level.ancestors, cache.num_slots))],
        **options,
    )


def tree_slots(
    root_position: Int[Array, " batch"], ancestors: Bool[Array, "batch token number"], slots: int
) -> Bool[Array, "batch token slot"]:
    """Slots that a level's tokens see in a cache where token number n has slot root_position + n.

    Those below the root's are committed and seen by all.
    """
    batch, tokens, numbers = ancestors.shape
    number = jnp.arange(slots)[None, :] - root_position[:, None]
    inside = (number >= 0) & (number < numbers)
    place = jnp.broadcast_to(jnp.clip(number, 0, numbers - 1)[:, None, :], (batch, tokens, slots))
    above = jnp.take_along_axis(ancestors, place, axis=2) & inside[:, None, :]
    return above | slots_before(root_position, tokens, slots)
