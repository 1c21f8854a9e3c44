"""What the backward pass keeps of making a soft draft: a few numbers per row, never a matrix.

A soft matrix, its mask and its margins take 20 bytes per weight; for a whole network that is ten times its file. Making them
anew takes a few operations per weight, where the products that they go into take two per token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Shaped

__all__ = ["KEPT", "made_in_blocks", "save_for_backward"]

#: Values of a block of rows: few enough for a core's cache, many enough that a loop over blocks costs nothing; on a GPU, whose
#: kernels need more to be busy with, 64 MB in float32.
_BLOCK, _GPU_BLOCK = 1 << 20, 1 << 24

Sums = TypeVar("Sums")

_NAME = "saved for backward"

#: Policy for `jax.checkpoint`: keep what `save_for_backward` marks.
KEPT = jax.checkpoint_policies.save_only_these_names(_NAME)


def save_for_backward(x: Array) -> Array:
    """The same array, kept for the backward pass: few numbers that take long to find."""
    return checkpoint_name(x, _NAME)


def made_in_blocks(
    make: Callable[..., tuple[Array, Sums]], rows: Shaped[Array, "row column"], *beside: Shaped[Array, " row"]
) -> tuple[Float[Array, "row column"], Sums]:
    """A matrix from stored rows, a block of them at a time, each made again in the backward pass.

    Args:
        make: stored rows, and what stands beside them -> rows to compute with, and sums over them: a pytree.
        beside: of each row, for `make`.
    Returns:
        all rows, and the sums of all blocks.
    """
    count, columns = rows.shape
    again = jax.checkpoint(make, policy=KEPT)
    wanted = max(1, count * columns // (_BLOCK if jax.default_backend() == "cpu" else _GPU_BLOCK))
    # Blocks of equal size, so that one program serves them all; of a count that no number near divides, a few rows are left.
    blocks = next((number for number in range(wanted, min(2 * wanted, count) + 1) if count % number == 0), wanted)
    if blocks == 1:
        return again(rows, *beside)
    size = count // blocks
    whole = count // size * size
    of_blocks = [part[:whole].reshape(-1, size, *part.shape[1:]) for part in (rows, *beside)]
    made, parts = jax.lax.map(lambda given: again(*given), of_blocks)
    values, sums = made.reshape(whole, columns), jax.tree.map(lambda part: jnp.sum(part, axis=0), parts)
    if whole == count:
        return values, sums
    rest, sums_of_rest = again(*(part[whole:] for part in (rows, *beside)))
    return jnp.concatenate([values, rest]), jax.tree.map(jnp.add, sums, sums_of_rest)
