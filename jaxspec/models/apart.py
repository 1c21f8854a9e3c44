"""Matrices as products of few rows read them fastest: each an array of its own, with the input columns first; and layers' KV,
each layer's an array of its own.

XLA on CPUs copies a layer out of its stack in each turn of a loop before it multiplies, and reads (output row, input column)
slower than its transpose where there are 2 to 16 rows. Decoding does nothing else than such products. Measured on two cores
with the embedded network: 0.16 ms instead of 0.57 for the products of one row, 0.5 instead of 1.4 for those of five.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from jaxspec.models.dots import dot_few_rows, is_few_rows
from jaxspec.models.matrix import Matrix, Stored, is_matrix

__all__ = [
    "LAYERS",
    "Apart",
    "Columns",
    "Parts",
    "columns_first",
    "entries_between",
    "is_apart",
    "layers_apart",
    "only_layer",
    "over_layers",
]

#: Matrices outside the layers: the LM head, and what a draft head mixes its inputs with.
_MULTIPLIED = ("lm_head", "fc")

#: Layers up to which a network is kept apart: each is compiled by itself then.
LAYERS = 8


@struct.dataclass
class Columns(Matrix):
    """A matrix, or a stack of them, by its transpose.

    Attributes:
        array: "*lead column row", in place of "*lead row column".
    """

    array: Array

    @classmethod
    def of(cls, matrix: Array) -> Columns:
        """Of a matrix of (output row, input column)."""
        return cls(jnp.swapaxes(matrix, -1, -2))

    @property
    def dtype(self) -> Any:
        """Of the elements."""
        return self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the matrix, output rows first."""
        *lead, column, row = self.array.shape
        return (*lead, row, column)

    def take(self, index: Array) -> Matrix:
        """Some output rows of one matrix; some matrices of a stack."""
        if self.array.ndim > 2:
            return super().take(index)
        raise NotImplementedError("rows of a transposed matrix are not looked up")

    def values(self) -> Array:
        """The matrix: products read through the transposition, so that nothing is moved."""
        return jnp.swapaxes(self.array, -1, -2)

    def in_loop(self) -> Columns:
        """See `Matrix`."""
        return self

    def to_decode(self) -> Columns:
        """See `Matrix`."""
        return self

    def dot(self, x: Float[Array, "*b column"], dot_dtype: Any = None) -> Float[Array, "*b row"]:
        """See `Matrix`."""
        if dot_dtype is None and is_few_rows(x, self.array):
            return dot_few_rows(x, self.array)
        return Stored.of(self.values()).dot(x, dot_dtype)


@struct.dataclass
class Parts:
    """Entries of a first axis, each an array of its own; `over_layers` takes them one by one.

    Attributes:
        parts: of equal shape.
    """

    parts: tuple[Any, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all entries together."""
        return (len(self.parts), *self.parts[0].shape)


@struct.dataclass
class Apart(Parts, Matrix):
    """A stack of matrices in parts."""

    parts: tuple[Columns, ...]

    @classmethod
    def of(cls, stack: Array) -> Apart:
        """Of "layer row column"."""
        return cls(tuple(map(Columns.of, stack)))

    @property
    def dtype(self) -> Any:
        """Of the elements."""
        return self.parts[0].dtype

    def take(self, index: Array) -> Matrix:
        """Entries of the first axis, gathered into one array."""
        return Columns(jnp.stack([part.array for part in self.parts])[index])

    def to_decode(self) -> Apart:
        """See `Matrix`."""
        return self

    def values(self) -> Array:
        """All parts in one array."""
        return jnp.stack([part.values() for part in self.parts])


def is_apart(node: Any) -> bool:
    """Whether entries of a first axis are kept apart here."""
    return isinstance(node, Parts)


def columns_first(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters of a network with its matrices as products read them fastest; what has this form already keeps it.

    Only what is multiplied alone changes: not embeddings, which are looked up too, and no network with experts, of which a step
    reads those that it needs, or of more than `LAYERS` layers, which would compile for long.
    """
    layers = params.get("layers", {})
    stacks = jax.tree.leaves(layers, is_leaf=is_matrix)
    if any(len(leaf.shape) > 3 or leaf.shape[0] > LAYERS for leaf in stacks):
        return params
    apart = lambda leaf: Apart.of(leaf) if not is_matrix(leaf) and leaf.ndim == 3 else leaf
    outside = {name: Columns.of(params[name]) for name in _MULTIPLIED if name in params and not is_matrix(params[name])}
    return params | {"layers": {name: apart(leaf) for name, leaf in layers.items()}} | outside


def layers_apart(params: dict[str, Any]) -> bool:
    """Whether the layers of a network are kept apart, in which case its KV is read fastest in parts too."""
    return any(map(is_apart, jax.tree.leaves(params["layers"], is_leaf=is_apart)))


def only_layer(layers: dict[str, Any]) -> dict[str, Array | Matrix]:
    """The parameters of a network's only layer, without the layer axis."""
    return jax.tree.map(lambda node: _entry(node, 0), layers, is_leaf=is_apart)


class _Within(NamedTuple):
    """Entries of an array from a place on, left where they lie."""

    array: Array
    first: Any

    def entry(self, place: Any) -> Array:
        """One of them."""
        return jax.lax.dynamic_index_in_dim(self.array, self.first + place, keepdims=False)


def _is_within(node: Any) -> bool:
    return isinstance(node, _Within)


def _is_entries(node: Any) -> bool:
    return is_apart(node) or _is_within(node)


def _entry(node: Any, place: Any) -> Any:
    """An entry of the first axis, however entries are kept."""
    if is_apart(node):
        return node.parts[place]
    return node.entry(place) if _is_within(node) else node[place]


def entries_between(tree: Any, first: Any, count: int, *, in_place: bool = False) -> Any:
    """`count` entries of the first axis of all arrays and stacks in a tree.

    Args:
        first: of them; may be traced if `in_place`.
        in_place: for `over_layers` alone, which takes them out of the arrays one by one. XLA copies a part of an array before
            a loop over it begins, in each step of decoding. (A gradient by what is left in place is as large as all of it in
            each turn of the loop.)
    """

    def between(node: Any) -> Any:
        if is_apart(node):
            return node.replace(parts=node.parts[first : first + count])
        if len(node) == count:
            return node
        return _Within(node, first) if in_place else node[first : first + count]

    return jax.tree.map(between, tree, is_leaf=is_apart)


def over_layers(body: Callable[[Any, Any], tuple[Any, Any]], carry: Any, inputs: Any, layers: int) -> tuple[Any, Any]:
    """`jax.lax.scan` over the first axis of `inputs`; a Python loop where stacks of them are apart."""
    nodes, form = jax.tree.flatten(inputs, is_leaf=_is_entries)
    if not any(map(_is_entries, nodes)):
        return jax.lax.scan(body, carry, inputs)
    if not any(map(is_apart, nodes)):
        looped = [None if _is_within(node) else node for node in nodes]

        def turn(carry: Any, inputs: tuple[Array, list[Any]]) -> tuple[Any, Any]:
            place, given = inputs
            taken = [_entry(node, place) if _is_within(node) else own for node, own in zip(nodes, given, strict=True)]
            return body(carry, form.unflatten(taken))

        return jax.lax.scan(turn, carry, (jnp.arange(layers), looped))
    made = []
    for place in range(layers):
        carry, made_here = body(carry, form.unflatten([_entry(node, place) for node in nodes]))
        made.append(made_here)
    return carry, jax.tree.map(lambda *entries: jnp.stack(entries), *made)
