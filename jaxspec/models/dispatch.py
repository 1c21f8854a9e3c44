"""Rows sent through the experts that they chose, and through no others.

Rows are sorted by expert into blocks of a fixed number of rows, each block of one expert. A loop over the blocks takes the
expert's parameters out of the stack, where they lie, and computes with them; blocks that nothing fills are passed over.
So the cost follows the experts that are chosen, and a row's result depends on nothing but the row and its expert: every block
is the same program, and what stands in its other rows enters no sum of this one's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxspec.models.matrix import is_matrix, matrix_of

__all__ = ["block_rows", "through_experts"]

#: One expert applied to rows: (its parameters, "row column") -> pytree with leaves "row ...".
Expert = Callable[[Any, Array], Any]

#: Rows of a block are a power of two up to this.
_LARGEST_BLOCK = 128


def block_rows(rows: int, num_experts: int) -> int:
    """Rows of a block, for so many rows that choose among so many experts: about as many as an expert is given."""
    size = 1
    while size < _LARGEST_BLOCK and size * num_experts < rows:
        size *= 2
    return size


class _Blocks(NamedTuple):
    """Where rows lie in blocks.

    Attributes:
        source: row of the input at each place.
        expert: of each block. filled: whether a block has any row.
        place: of each choice.
    """

    source: Int[Array, " place"]
    expert: Int[Array, " block"]
    filled: Bool[Array, " block"]
    place: Int[Array, "row chosen"]


def _blocks(expert: Int[Array, "row chosen"], num_experts: int, size: int) -> _Blocks:
    flat, pairs = expert.reshape(-1), expert.size
    most = (pairs + min(num_experts, pairs) * (size - 1)) // size
    flat = jnp.where(flat < 0, num_experts, flat)  # no expert: behind all others
    order = jnp.argsort(flat, stable=True)
    count = jnp.zeros(num_experts + 1, jnp.int32).at[flat].add(1)
    blocks = (count + size - 1) // size
    first_row, first_block = jnp.cumsum(count) - count, jnp.cumsum(blocks) - blocks
    by_expert = flat[order]
    sorted_place = first_block[by_expert] * size + jnp.arange(pairs, dtype=jnp.int32) - first_row[by_expert]
    sorted_place = jnp.where(by_expert == num_experts, most * size, sorted_place)  # out of range: dropped
    place = jnp.zeros(pairs, jnp.int32).at[order].set(sorted_place.astype(jnp.int32))
    source = (
        jnp.zeros(most * size, jnp.int32)
        .at[place]
        .set(jnp.arange(pairs, dtype=jnp.int32) // expert.shape[1], mode="drop")
    )
    of_block = jnp.zeros(most, jnp.int32).at[sorted_place // size].set(by_expert.astype(jnp.int32), mode="drop")
    filled = jnp.arange(most) < blocks[:num_experts].sum()
    return _Blocks(source, of_block, filled, place.reshape(expert.shape))


def through_experts(
    function: Expert,
    stacks: Any,
    rows: Float[Array, "row column"],
    expert: Int[Array, "row chosen"],
    num_experts: int,
) -> Any:
    """What each of a row's experts makes of it.

    Differentiable by the rows, and by stacks that are plain arrays; the cost of both follows the chosen experts too.

    Args:
        function: static; computes row by row.
        stacks: pytree of arrays or matrices that lead with experts.
        expert: by number, in [0, num_experts); negative: none, which gives zeros.
    Returns:
        pytree with leaves "row chosen ...".
    """
    stacks = jax.tree.map(matrix_of, stacks, is_leaf=is_matrix)
    own = jax.tree.map(lambda stack: stack.of_gradient(), stacks, is_leaf=is_matrix)
    size = block_rows(expert.size, num_experts)
    blocks = _blocks(expert, num_experts, size)
    rows_of = rows[blocks.source].reshape(-1, size, rows.shape[-1])
    made = _apply(function, stacks, own, rows_of, blocks.expert, blocks.filled)

    def of_choices(leaf: Array) -> Array:
        flat = leaf.reshape(-1, *leaf.shape[2:])
        return flat.at[blocks.place].get(mode="fill", fill_value=0)

    return jax.tree.map(of_choices, made)


def _taken(stacks: Any, index: Int[Array, ""]) -> Any:
    """The parameters of one expert."""
    return jax.tree.map(lambda stack: stack.take(index).values(), stacks, is_leaf=is_matrix)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _apply(function: Expert, stacks: Any, own: Any, rows: Array, expert: Array, filled: Array) -> Any:
    """The blocks one after the other, each through its expert: "block row column" -> leaves "block row ...".

    Args:
        stacks: read. own: the same values, which the gradient belongs to.
    """
    form = jax.eval_shape(lambda rows: function(_taken(stacks, expert[0]), rows), rows[0])

    def block(_, inputs):
        rows, expert, filled = inputs
        nothing = lambda: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), form)
        return None, jax.lax.cond(filled, lambda: function(_taken(stacks, expert), rows), nothing)

    return jax.lax.scan(block, None, (rows, expert, filled))[1]


def _apply_forward(function: Expert, stacks: Any, own: Any, rows: Array, expert: Array, filled: Array) -> Any:
    return _apply(function, stacks, own, rows, expert, filled), (own, rows, expert, filled)


def _apply_backward(function: Expert, saved: Any, cotangent: Any) -> Any:
    """Each block once more; what its expert's parameters get is added where they lie."""
    own, rows, expert, filled = saved
    inexact = all(jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in jax.tree.leaves(own))

    def block(total, inputs):
        rows, expert, filled, cotangent = inputs

        def pulled(total):
            # Of patterns and references there is no gradient.
            weights = _taken(own, expert)
            of_weights, of_rows = jax.vjp(function, weights, rows)[1](cotangent)
            if inexact:
                parts = jax.tree.leaves(of_weights)
                total = [whole.at[expert].add(part) for whole, part in zip(total, parts, strict=True)]
            return total, of_rows

        return jax.lax.cond(filled, pulled, lambda total: (total, jnp.zeros_like(rows)), total)

    leaves, form = jax.tree.flatten(own)
    zeros = [jnp.zeros_like(leaf) for leaf in leaves] if inexact else []
    total, of_rows = jax.lax.scan(block, zeros, (rows, expert, filled, cotangent))
    return None, jax.tree.unflatten(form, total) if inexact else None, of_rows, None, None


_apply.defvjp(_apply_forward, _apply_backward)
