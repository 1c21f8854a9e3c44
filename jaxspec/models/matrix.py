"""What stands in the place of an array among parameters: one interface, whatever form a matrix is held in.

Members: `Dense`, an array; `Stored`, 16-bit patterns; `OfLayer`, a layer left in its stack; `Columns` and `Apart`, transposed;
`Streamed`, in host memory; `Made`, computed from others, as drafts of a scheme are; `Coded`, as a quantized release stores it:
its codes and scales are the leaves, and `values` makes the matrix of them inside the product.

XLA on CPUs has no arithmetic in bfloat16 but products, and these are fast on some processors alone: there `dot_rows` multiplies
matrices as they are stored. Where a loop reads a stack of bfloat16 layers, it widens the whole stack before the
loop: 53 GB for a network of 8 billion parameters. Of patterns, integers, it cannot know that they are wanted wide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float, Int

from jaxspec.formats.patterns import format_of, from_bits, to_bits
from jaxspec.models.dots import dot_rows, splits

__all__ = [
    "Dense",
    "Made",
    "Matrix",
    "OfLayer",
    "Stored",
    "is_matrix",
    "is_widened",
    "made",
    "matrix_of",
    "stack_of",
]


#: Elements of a 16-bit matrix that are widened at once: 64 MB in float32. For products of few rows on a CPU, which take no
#: longer than reading the matrix, 4 MB: these are read back from the cache. Products that widen nothing take 8 MB as stored.
_PIECE, _FEW_ROWS_PIECE, _FEW_ROWS, _UNWIDENED_PIECE = 1 << 24, 1 << 20, 64, 1 << 22


class Matrix:
    """A matrix (output row, input column), or a stack of them: a pytree whose leaves lead with the same axes as the array.

    A member gives `shape`, `dtype` and `values`; all else has a way that is right for any, and a faster one where there is one.

    Attributes:
        dtype: of the elements that `values` has.
        in_host: its values stay in host memory until a program reads them.
        in_codes: it is held in codes of fewer than 16 bits, so that no bits of a 16-bit number are there.
    """

    in_host: ClassVar[bool] = False
    in_codes: ClassVar[bool] = False
    dtype: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array."""
        raise NotImplementedError

    def values(self) -> Array:
        """The array itself, made here."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def bits_per_value(self) -> float:
        """Bits that are held of an element, in whatever the leaves hold."""
        leaves = jax.tree.leaves(self)
        return sum(leaf.size * leaf.dtype.itemsize * 8 for leaf in leaves) / self.size

    def of_gradient(self) -> Matrix:
        """What the gradient by it belongs to."""
        return self

    def take(self, index: Int[Array, "*b"]) -> Matrix:
        """Some entries of the first axis: a layer of a stack, rows of a matrix."""
        return jax.tree.map(lambda leaf: leaf[index], self)

    def in_loop(self) -> Any:
        """What a layer computes with, in a loop that was given an entry of a stack: an array, or a matrix that is faster."""
        return self.values()

    def to_decode(self) -> Any:
        """What decoding holds of it in float32: an array, or the matrix where it is read fastest as it is."""
        return self.values().astype(jnp.float32)

    def in_pieces(self, rows: int) -> bool:
        """Whether products of so many rows by one of its matrices read this piece by piece."""
        del rows
        return False

    def host_rows(self, first: int, last: int) -> np.ndarray:
        """Some entries of the first axis, on the host."""
        return np.asarray(self.take(jnp.arange(first, last)).values())

    def astype(self, dtype: Any) -> Any:
        """The values in another type."""
        return self.values().astype(dtype)

    def dot(self, x: Float[Array, "*b column"], dot_dtype: Any = None) -> Float[Array, "*b row"]:
        """x W^T in the type of x; `dot_dtype` as for `dot_rows`."""
        return dot_rows(x, self.values(), dot_dtype)


@struct.dataclass
class Dense(Matrix):
    """An array of any type."""

    array: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array."""
        return self.array.shape

    @property
    def dtype(self) -> Any:
        """Of the array."""
        return self.array.dtype

    def values(self) -> Array:
        """The array."""
        return self.array

    def take(self, index: Array) -> Dense:
        """See `Matrix`."""
        if index.ndim == 0:
            return Dense(jax.lax.dynamic_index_in_dim(self.array, index, keepdims=False))
        return Dense(self.array[index])


@struct.dataclass
class Made(Matrix):
    """Matrices or vectors that a function makes of stored ones, and of arrays beside them, where they are used.

    Attributes:
        stored: of the same shape. beside: leaves lead with the same axes but the last `axes`.
        make: static, and equal to another one that makes the same: (values of one, what is beside it) -> values.
    """

    stored: Matrix
    beside: Any
    make: Callable[[Array, Any], Array] = struct.field(pytree_node=False)
    axes: int = struct.field(pytree_node=False, default=2)

    @classmethod
    def of(cls, stored: Matrix, make: Callable[[Array, Any], Array], beside: Any = ()) -> Made:
        """Of all layers; entries of experts can be taken too, so what a layer's experts share is repeated for each.

        Args:
            beside: leaves lead with layers.
        """
        axes = min(2, len(stored.shape) - 1)
        between = stored.shape[1:-axes]
        repeat = lambda leaf: jnp.broadcast_to(
            leaf.reshape(len(leaf), *[1] * len(between), *leaf.shape[1:]), (len(leaf), *between, *leaf.shape[1:])
        )
        return cls(stored, jax.tree.map(repeat, beside), make, axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the stored ones."""
        return self.stored.shape

    @property
    def dtype(self) -> Any:
        """Of what is made."""
        return jax.eval_shape(self.values).dtype

    def values(self) -> Array:
        """The matrices."""
        if not jax.tree.leaves(self.beside):
            return self.make(self.stored.values(), self.beside)
        make = lambda stored, beside: self.make(stored.values(), beside)
        for _ in self.shape[: -self.axes]:
            make = jax.vmap(make)
        return make(self.stored, self.beside)


@struct.dataclass
class Stored(Matrix):
    """An array as loops over layers shall read it: patterns of 16-bit floating point, anything else as it is."""

    array: Array
    dtype: Any = struct.field(pytree_node=False)

    @classmethod
    def of(cls, array: Array) -> Stored:
        """Of an array of any type."""
        return cls(_patterns(array) if array.dtype in (jnp.bfloat16, jnp.float16) else array, array.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array."""
        return self.array.shape

    def values(self) -> Array:
        """The array itself."""
        return self.array if self.array.dtype == self.dtype else from_bits(self.array, format_of(self.dtype))

    def rows(self, first: Int[Array, ""], size: int) -> Stored:
        """`size` entries of the first axis; no gradient reaches them."""
        return Stored(jax.lax.dynamic_slice_in_dim(jax.lax.stop_gradient(self.array), first, size), self.dtype)

    def in_pieces(self, rows: int) -> bool:
        """See `Matrix`: of few rows, large matrices in 16 bits."""
        narrow = self.array.dtype != self.dtype
        return narrow and _is_few(rows) and math.prod(self.shape[1:]) > _few_rows_piece(self.dtype)

    def dot(self, x: Float[Array, "*b column"], dot_dtype: Any = None) -> Float[Array, "*b row"]:
        """See `_dot_stored`."""
        return _dot_stored(x, self, dot_dtype)


@struct.dataclass
class OfLayer(Matrix):
    """One layer of a stack of layers, left where it lies: entries are taken out of the whole.

    A loop over layers that is given a layer's part of a stack copies it; of this, only the entries that are taken are read.

    Attributes:
        whole: leads with layers. layer: the place in it.
        own: the same layer as a loop gives it, for the gradient's sake: what reads entries sends their gradients there. It is
            not read, so nothing is copied.
    """

    whole: Matrix
    layer: Int[Array, ""]
    own: Matrix

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the layer."""
        return self.whole.shape[1:]

    @property
    def dtype(self) -> Any:
        """Of the elements."""
        return self.own.dtype

    def take(self, index: Int[Array, "*b"]) -> Matrix:
        """Some entries of the layer."""
        return jax.tree.map(lambda leaf: jax.lax.stop_gradient(leaf)[self.layer, index], self.whole)

    def values(self) -> Array:
        """The whole layer, made here."""
        return self.own.values()

    def of_gradient(self) -> Matrix:
        """See `Matrix`."""
        return self.own

    def rows(self, first: Int[Array, ""], size: int) -> Matrix:
        """`size` rows of the layer's matrix, out of the whole; no gradient reaches them."""

        def taken(leaf: Array) -> Array:
            whole = jax.lax.stop_gradient(leaf)
            return jax.lax.dynamic_slice(whole, (self.layer, first, 0), (1, size, whole.shape[-1]))[0]

        return jax.tree.map(taken, self.whole)

    def dot(self, x: Float[Array, "*b column"], dot_dtype: Any = None) -> Float[Array, "*b row"]:
        """See `_dot_stored`."""
        return _dot_stored(x, self, dot_dtype)


def _patterns(array: Array) -> Array:
    """Of 16-bit values; the very memory of an array on a CPU, where a whole network must not be copied."""
    if isinstance(array, jax.core.Tracer) or any(device.platform != "cpu" for device in array.devices()):
        return to_bits(array)
    return jax.device_put(np.asarray(array).view(np.uint16), may_alias=True)


def is_matrix(node: Any) -> bool:
    """Whether a node of a tree is a matrix in any form but that of an array."""
    return isinstance(node, Matrix)


def matrix_of(node: Any) -> Matrix:
    """A parameter as a matrix, whatever stands in its place."""
    return node if is_matrix(node) else Dense(node)


def made(tree: Any) -> Any:
    """A tree with arrays in the place of all matrices."""
    return jax.tree.map(lambda leaf: matrix_of(leaf).values(), tree, is_leaf=is_matrix)


def stack_of(array: Array | Matrix) -> Matrix:
    """A parameter as loops over layers read it, whatever stands in its place."""
    return array if isinstance(array, Matrix) else Stored.of(array)


def is_widened(rows: Any, matrix: Any) -> bool:
    """Whether products of rows of one type by a matrix stored in another are taken piece by piece, each widened."""
    # A GPU that splits rows widens nothing, and has no use for pieces.
    return matrix != rows and not (jax.default_backend() != "cpu" and splits(rows, matrix))


def _dot_stored(
    x: Float[Array, "*b column"], stored: Stored | OfLayer, dot_dtype: Any = None
) -> Float[Array, "*b row"]:
    """`dot_rows` of a matrix of another type than `x`, which never exists whole in that type.

    A large matrix is widened piece by piece, in the backward pass too; no gradient reaches it then.
    """
    rows, columns = stored.shape
    size = max(1, (_few_rows_piece(stored.dtype) if _is_few(math.prod(x.shape[:-1])) else _PIECE) // columns)
    pieces = rows // size
    if not is_widened(x.dtype, stored.dtype) or pieces < 2 or not x.size:
        return dot_rows(x, stored.values(), dot_dtype)

    @jax.checkpoint
    def one(first: Array) -> Array:
        return dot_rows(flat, stored.rows(first, size).values(), dot_dtype)

    flat = x.reshape(math.prod(x.shape[:-1]), columns)
    # The last piece begins where a whole one ends the matrix; what it has in common with the one before is computed twice.
    first = jnp.minimum(jnp.arange(pieces + (rows % size > 0)) * size, rows - size)
    found = jax.lax.map(one, first)  # "piece flat row"
    whole = found[:pieces].transpose(1, 0, 2).reshape(len(flat), pieces * size)
    rest = found[-1, :, size - (rows - pieces * size) :] if rows % size else found[-1, :, :0]
    return jnp.concatenate([whole, rest], axis=-1).reshape(*x.shape[:-1], rows)


def _few_rows_piece(dtype: Any) -> int:
    """Elements of a matrix of this type that a product of few float32 rows takes at once."""
    return _UNWIDENED_PIECE if splits(jnp.float32, dtype) else _FEW_ROWS_PIECE


def _is_few(rows: int) -> bool:
    # On GPUs a mesh may split what pieces would be taken of.
    return rows <= _FEW_ROWS and jax.default_backend() == "cpu"
