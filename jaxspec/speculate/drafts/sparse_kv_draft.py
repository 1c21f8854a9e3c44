"""The target itself as a draft that reads a part of the KV cache: the first tokens and the latest ones."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hwmodels.network.architecture import Architecture
from hwmodels.speculation.draft_cost import DraftCost
from jaxspec.errors import InputError
from jaxspec.models.blocks import StepInput
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import ForwardResult, Params, forward
from jaxspec.models.hf_load import LoadedModel
from jaxspec.models.kv_cache import CachedKV, KVCache, empty_cache, write_cache
from jaxspec.models.stored import as_computed, as_stored
from jaxspec.speculate.drafts.interface import Blocks, Committed, Level, ReadyDraft, Root
from jaxspec.speculate.steps import slots_before

__all__ = [
    "SINKS",
    "CopyStep",
    "SparseKVDraft",
    "SparseKVParams",
    "TargetCopy",
    "check_sparse_kv",
    "forward_level",
    "sparse_kv_draft",
    "tree_slots",
    "visible_slots",
]

# Common part of drafts of the target's own shape: its vocabulary, and a KV cache that holds the target's at committed
# positions and the draft's own behind them.


class CopyStep(NamedTuple):
    """A draft step: what it computed, and the cache with what it wrote."""

    result: ForwardResult
    cache: KVCache


@dataclasses.dataclass(frozen=True)
class TargetCopy:
    """Base of drafts of the target's shape. Token number n of a cycle has the root's slot + n in their cache.

    Attributes:
        separate_weights: whether the draft's matrices are its own, beside the target's; else they are a part of those.
    """

    separate_weights: ClassVar[bool] = False

    config: DecoderConfig

    @property
    def vocab_size(self) -> int:
        """See `Draft.vocab_size`."""
        return self.config.vocab_size

    def num_parameters(self, params: Any) -> int:
        """See `Draft.num_parameters`: the matrices of the layers if they are stored apart; all else is the target's."""
        return (
            sum(math.prod(params["layers"][kind].shape) for kind in self.config.matrix_kinds)
            if self.separate_weights
            else 0
        )

    def empty_copy(self, params: Params, batch: int, slots: int, numbers: int) -> KVCache:
        """Cache of no text; arguments: of `Draft.empty`, the parameters those of the network alone."""
        return empty_cache(self.config, batch, slots + numbers, params=params)

    def committed_copy(self, cache: KVCache, committed: Committed, read: Callable[[KVCache], KVCache]) -> KVCache:
        """The cache with committed positions, as the draft reads the target's."""
        if committed.tokens.shape[1] == 0:
            return cache  # a prompt of one token
        return write_cache(cache, read(committed.cache), committed.start)

    def root_step(
        self,
        params: Params,
        cache: KVCache,
        root: Root,
        *,
        seen: Bool[Array, "batch slot"] | None = None,
        **options: Any,
    ) -> CopyStep:
        """A step of the root alone, which sees all that is committed, or of it the slots in `seen`. Options: of `StepInput`."""
        result = forward(
            params,
            self.config,
            root.token[:, None],
            StepInput(
                root.position[:, None],
                jnp.ones((len(root.token), 1, 1), bool),
                sources=[CachedKV(cache, _among(slots_before(root.position, 1, cache.num_slots), seen))],
                **options,
            ),
        )
        return CopyStep(result, write_cache(cache, result.cache, root.position, after=result.hidden))

    def level_step(self, params: Params, cache: KVCache, root: Root, level: Level, **options: Any) -> CopyStep:
        """A step of a level's tokens. Options: of `forward_level`."""
        result = forward_level(params, self.config, cache, root, level, **options)
        return CopyStep(result, write_cache(cache, result.cache, root.position + level.first, after=result.hidden))

    def blocks_step(
        self,
        params: Params,
        cache: KVCache,
        blocks: Blocks,
        *,
        seen: Bool[Array, "batch token slot"] | None = None,
    ) -> Float[Array, "batch token vocab"]:
        """Logits after the tokens of blocks: see `Follows`. Args: seen: slots that may be seen at all; None: all."""
        own = blocks.roots[:, :, None] == blocks.roots[:, None, :]
        committed = jnp.arange(cache.num_slots)[None, None] < blocks.roots[..., None]
        return forward(
            params,
            self.config,
            blocks.tokens,
            StepInput(
                blocks.positions,
                own & (blocks.positions[:, None, :] <= blocks.positions[:, :, None]),
                sources=[CachedKV(cache, committed if seen is None else committed & seen)],
            ),
        ).logits


def forward_level(
    params: Params,
    config: DecoderConfig,
    cache: KVCache,
    root: Root,
    level: Level,
    *,
    seen: Bool[Array, "batch slot"] | None = None,
    **options: Any,
) -> ForwardResult:
    """A step of a level's tokens, over a cache in which token number n of a cycle has the root's slot + n.

    Args:
        seen: slots that may be seen at all, those of the cycle among them; None: all.
        options: of `StepInput`.
    """
    batch, tokens = level.tokens.shape
    return forward(
        params,
        config,
        level.tokens,
        StepInput(
            root.position[:, None] + level.depth,
            # Tokens of one level are not above each other.
            jnp.broadcast_to(jnp.eye(tokens, dtype=bool), (batch, tokens, tokens)),
            sources=[CachedKV(cache, _among(tree_slots(root.position, level.ancestors, cache.num_slots), seen))],
            **options,
        ),
    )


def _among(mask: Bool[Array, "batch token slot"], seen: Bool[Array, "batch slot"] | None) -> Array:
    return mask if seen is None else mask & seen[:, None, :]


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
        seen = visible_slots(root.position, params.share, memory)
        result, cache = self.root_step(params.network, memory, root, seen=seen)
        return result.logits[:, 0], cache

    def extend(
        self, params: SparseKVParams, memory: KVCache, root: Root, level: Level
    ) -> tuple[Float[Array, "batch token vocab"], KVCache]:
        """See `Draft.extend`."""
        seen = visible_slots(root.position, params.share, memory)
        result, cache = self.level_step(params.network, memory, root, level, seen=seen)
        return result.logits, cache

    def follow(self, params: SparseKVParams, memory: KVCache, blocks: Blocks) -> Float[Array, "batch token vocab"]:
        """See `Follows`."""
        seen = visible_slots(blocks.roots, params.share, memory)
        return self.blocks_step(params.network, memory, blocks, seen=seen)


def visible_slots(root: Int[Array, "*b"], share: Float[Array, ""], cache: KVCache) -> Bool[Array, "*b slot"]:
    """The first `SINKS` slots, as many of the latest committed ones as make up the share, and all from the root's on.

    One committed token before the root is always seen.

    Args:
        root: position of each.
    """
    slot, position = jax.lax.broadcasted_iota(jnp.int32, (*root.shape, cache.num_slots), root.ndim), root[..., None]
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
