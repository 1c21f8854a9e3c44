"""A known text and the target's pass over it, cut into the windows that decoding would commit to a draft."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxspec.compress.kv import stored_kv
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import ForwardResult, Params, forward_text
from jaxspec.models.kv_cache import take_slots
from jaxspec.models.rope import text_lengths
from jaxspec.speculate.drafts.interface import Committed, Level, Root

__all__ = ["TargetTrace", "chain_level", "trace_target"]


class TargetTrace(NamedTuple):
    """Texts from place 0 on, and the target's pass over them.

    Attributes:
        tokens: "batch token"; more than the target has seen are padding.
        target: its forward pass over them.
    """

    tokens: Int[Array, "batch token"]
    target: ForwardResult

    def token_at(self, position: Int[Array, " batch"]) -> Int[Array, " batch"]:
        """The token at a position of each text, which must be there."""
        return jnp.take_along_axis(self.tokens, position[:, None], axis=1)[:, 0]

    def root(self, position: Int[Array, " batch"]) -> Root:
        """The last committed token, at these positions."""
        return Root(self.token_at(position), position)

    def committed(self, start: Int[Array, " batch"], places: int, valid: Int[Array, " batch"]) -> Committed:
        """A window of so many places (static) from `start` on, as decoding would commit it."""
        batch, slots = len(start), start[:, None] + jnp.arange(places)[None]
        at_slots = lambda x: jnp.take_along_axis(x, slots.reshape(batch, places, *[1] * (x.ndim - 2)), axis=1)
        return Committed(
            tokens=jnp.take_along_axis(self.tokens, slots + 1, axis=1),
            hidden=at_slots(self.target.for_draft),
            cache=take_slots(self.target.cache, slots),
            start=start,
            before=self.token_at(start),
            valid=valid,
            extras=jax.tree.map(at_slots, self.target.extras),
        )


def trace_target(
    params: Params,
    config: DecoderConfig,
    texts: Int[Array, "batch token"],
    lengths: Int[Array, " batch"],
    *,
    padding: int,
    beyond: int = 0,
    hidden_of: tuple[int, ...] | None = None,
) -> TargetTrace:
    """Run the target over texts once, each token rotated as decoding rotates it.

    Args:
        lengths: of the prompts that the texts begin with.
        padding: static; zeros behind the texts that the target does not see. beyond: static; zeros before these that it does.
        hidden_of: as for `forward`.
    """
    seen = jnp.pad(texts, ((0, 0), (0, beyond)))
    rotated_for = text_lengths(jnp.broadcast_to(jnp.arange(seen.shape[1]), seen.shape), lengths)
    result = forward_text(params, config, seen, kv_codec=stored_kv(config), lengths=rotated_for, hidden_of=hidden_of)
    return TargetTrace(jnp.pad(seen, ((0, 0), (0, padding))), result)


def chain_level(tokens: Int[Array, " batch"], depth: Int[Array, ""], numbers: int) -> Level:
    """One drafted token of a chain, at a depth of 1 or more; `numbers` as for `Draft.empty`."""
    batch = len(tokens)
    return Level(
        tokens=tokens[:, None],
        first=depth,
        depth=jnp.full((batch, 1), depth, jnp.int32),
        parent=jnp.full((batch, 1), depth - 1, jnp.int32),
        ancestors=jnp.broadcast_to(jnp.arange(numbers) < depth, (batch, 1, numbers)),
    )
