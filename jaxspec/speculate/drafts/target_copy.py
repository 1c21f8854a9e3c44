"""Common part of drafts of the target's own shape: its vocabulary, and a KV cache that holds the target's at committed
positions and the draft's own behind them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from jaxspec.models.blocks import StepInput
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import ForwardResult, Params, forward
from jaxspec.models.kv_cache import CachedKV, KVCache, empty_cache, write_cache
from jaxspec.speculate.drafts.interface import Committed, Level, Root
from jaxspec.speculate.steps import slots_before

__all__ = ["CopyStep", "TargetCopy", "forward_level", "tree_slots"]


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
