"""Parameters in 16 bits inside programs that compute in 32: widened where they are used, a layer or a piece at a time.

XLA on CPUs has no arithmetic in bfloat16 but products, and these are fast on some processors alone: there `dot_rows` multiplies
matrices as they are stored. Where a loop reads a stack of bfloat16 layers, it widens the whole stack before the
loop: 53 GB for a network of 8 billion parameters. Of patterns, integers, it cannot know that they are wanted wide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float, Int

from jaxspec.formats.patterns import format_of, from_bits, to_bits
from jaxspec.models.apart import Apart, Columns, columns_first
from jaxspec.models.dots import dot_rows
from jaxspec.models.few_rows import dot_few_rows, is_few_rows
from jaxspec.models.rounded_inputs import rounded_input
from jaxspec.models.split_products import splits
from jaxspec.models.streamed import Stack, is_streamed
from jaxspec.settings.rounded_inputs import RoundedInputs

__all__ = [
    "SMALL",
    "OfLayer",
    "Stored",
    "as_computed",
    "as_stored",
    "biased_rows",
    "dot_stored",
    "in_pieces",
    "is_widened",
    "stack_of",
    "stored_dtypes",
]

#: Elements of a 16-bit matrix that are widened at once: 64 MB in float32. For products of few rows on a CPU, which take no
#: longer than reading the matrix, 4 MB: these are read back from the cache. Products that widen nothing take 8 MB as stored.
_PIECE, _FEW_ROWS_PIECE, _FEW_ROWS, _UNWIDENED_PIECE = 1 << 24, 1 << 20, 64, 1 << 22


#: Parameters up to which a network is widened once and for all, which costs 4 bytes each and saves widening them in every step.
SMALL = 1 << 26


@struct.dataclass
class Stored(Stack):
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


@struct.dataclass
class OfLayer(Stack):
    """One layer of a stack of layers, left where it lies: entries are taken out of the whole.

    A loop over layers that is given a layer's part of a stack copies it; of this, only the entries that are taken are read.

    Attributes:
        whole: leads with layers. layer: the place in it.
        own: the same layer as a loop gives it, for the gradient's sake: what reads entries sends their gradients there. It is
            not read, so nothing is copied.
    """

    whole: Stack
    layer: Int[Array, ""]
    own: Stack

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the layer."""
        return self.whole.shape[1:]

    @property
    def dtype(self) -> Any:
        """Of the elements."""
        return self.own.dtype  # pyright: ignore[reportAttributeAccessIssue] -- every stack has one

    def take(self, index: Int[Array, "*b"]) -> Stack:
        """Some entries of the layer."""
        return jax.tree.map(lambda leaf: jax.lax.stop_gradient(leaf)[self.layer, index], self.whole)

    def values(self) -> Array:
        """The whole layer, made here."""
        return self.own.values()

    def astype(self, dtype: Any) -> Array:
        """Likewise, in another type."""
        return self.values().astype(dtype)

    def rows(self, first: Int[Array, ""], size: int) -> Stack:
        """`size` rows of the layer's matrix, out of the whole; no gradient reaches them."""

        def taken(leaf: Array) -> Array:
            whole = jax.lax.stop_gradient(leaf)
            return jax.lax.dynamic_slice(whole, (self.layer, first, 0), (1, size, whole.shape[-1]))[0]

        return jax.tree.map(taken, self.whole)


def _patterns(array: Array) -> Array:
    """Of 16-bit values; the very memory of an array on a CPU, where a whole network must not be copied."""
    if isinstance(array, jax.core.Tracer) or any(device.platform != "cpu" for device in array.devices()):
        return to_bits(array)
    return jax.device_put(np.asarray(array).view(np.uint16), may_alias=True)


def stack_of(array: Array | Stack) -> Stack:
    """A parameter as loops over layers read it, whatever stands in its place."""
    return array if isinstance(array, Stack) else Stored.of(array)


def stored_dtypes(params: Any) -> set[str]:
    """Names of the number formats of parameters as they were loaded."""
    return {str(leaf.dtype) for leaf in jax.tree.leaves(params, is_leaf=_is_stack)}


def as_stored(params: Any) -> Any:
    """Parameters with stacks in the place of matrices and stacked vectors; single vectors stay arrays."""
    return jax.tree.map(lambda leaf: stack_of(leaf) if len(leaf.shape) > 1 else leaf, params, is_leaf=_is_stack)


def as_computed(params: Any) -> Any:
    """Parameters to decode with: float32 values of a small network, in the form that products of few rows read fastest; those
    of a large or streamed one as they are stored."""
    if is_streamed(params) or sum(leaf.size for leaf in jax.tree.leaves(params)) > SMALL:
        return params
    return _widened(params)


@jax.jit
def _widened(params: Any) -> Any:
    wide = jax.tree.map(_wide, params, is_leaf=_is_stack)
    return columns_first(wide)


def _wide(leaf: Array | Stack) -> Array | Stack:
    return leaf if isinstance(leaf, Apart | Columns) else stack_of(leaf).values().astype(jnp.float32)


def _is_stack(node: Any) -> bool:
    return isinstance(node, Stack)


def is_widened(rows: Any, matrix: Any) -> bool:
    """Whether products of rows of one type by a matrix stored in another are taken piece by piece, each widened."""
    # A GPU that splits rows widens nothing, and has no use for pieces.
    return matrix != rows and not (jax.default_backend() != "cpu" and splits(rows, matrix))


def dot_stored(
    x: Float[Array, "*b column"], w: Float[Array, "row column"] | Stack, dot_dtype: Any = None
) -> Float[Array, "*b row"]:
    """`dot_rows` of a matrix of another type than `x`, which never exists whole in that type.

    A large matrix is widened piece by piece, in the backward pass too; no gradient reaches it then.
    """
    if isinstance(w, Columns) and dot_dtype is None and is_few_rows(x, w.array):
        return dot_few_rows(x, w.array)
    rows, columns = w.shape
    stored = w if isinstance(w, Stored | OfLayer) else Stored.of(w.values() if isinstance(w, Stack) else w)
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


def biased_rows(
    x: Float[Array, "*b column"],
    weights: Mapping[str, Any],
    kind: str,
    biased: bool,
    dot_dtype: Any = None,
    rounded: RoundedInputs | None = None,
) -> Float[Array, "*b row"]:
    """Product of `x` and a layer's matrix, in the dtype of `x`, plus its bias.

    Args:
        weights: of one layer, arrays or `OfLayer`; the bias of `kind` is called `<kind>_bias`.
        biased: static; whether there is one.
        rounded: static; form to which `x` is rounded first (see `rounded_input`).
    """
    matrix, x = weights[kind], rounded_input(x, rounded, weights, kind)
    inside = isinstance(matrix, Stack)
    product = dot_stored(x, matrix, dot_dtype) if inside else dot_rows(x, matrix, dot_dtype)
    if not biased:
        return product
    return product + jax.lax.broadcast_to_rank(weights[f"{kind}_bias"].astype(x.dtype), product.ndim)


def in_pieces(stack: Stack, rows: int) -> bool:
    """Whether products of some rows read a stack's matrices in pieces: few rows, and large matrices held in 16 bits."""
    if not isinstance(stack, Stored) or stack.array.dtype == stack.dtype:
        return False
    return _is_few(rows) and math.prod(stack.shape[1:]) > _few_rows_piece(stack.dtype)


def _few_rows_piece(dtype: Any) -> int:
    """Elements of a matrix of this type that a product of few float32 rows takes at once."""
    return _UNWIDENED_PIECE if splits(jnp.float32, dtype) else _FEW_ROWS_PIECE


def _is_few(rows: int) -> bool:
    # On GPUs a mesh may split what pieces would be taken of.
    return rows <= _FEW_ROWS and jax.default_backend() == "cpu"
