"""Work that most turns of a loop can leave out, also where `vmap` runs many such loops side by side.

A mapped `jax.lax.cond` computes both sides for every lane. Here one lane that needs the work has it done for all, and where
none does, nothing is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool

__all__ = ["change_if_needed"]

Kept = TypeVar("Kept")


def change_if_needed(needed: Bool[Array, ""], change: Callable[..., Kept], kept: Kept, *given: Any) -> Kept:
    """`change(kept, *given)` where it is needed, and `kept` as it is elsewhere.

    Args:
        needed: one truth value.
        change: gives a pytree in the form of `kept`. Where the work is not needed it gives `kept` back, since mapped lanes
            that do not need it go along with those that do. It uses no traced array but its arguments.
        given: pytrees of arrays.
    """

    @custom_vmap
    def changed(needed: Array, kept: Kept, given: tuple) -> Kept:
        return jax.lax.cond(needed, lambda: change(kept, *given), lambda: kept)

    @changed.def_vmap
    def _(size: int, mapped: list, needed: Array, kept: Kept, given: tuple) -> tuple[Kept, Any]:
        _, of_kept, of_given = mapped
        axes = jax.tree.map(lambda is_mapped: 0 if is_mapped else None, tuple(of_given))
        lanes = jax.tree.map(
            lambda leaf, is_mapped: leaf if is_mapped else jnp.broadcast_to(leaf, (size, *jnp.shape(leaf))),
            kept,
            of_kept,
        )
        found = change_if_needed(jnp.any(needed), jax.vmap(change, in_axes=(0, *axes)), lanes, *given)
        return found, jax.tree.map(lambda _: True, found)

    return changed(needed, kept, given)
