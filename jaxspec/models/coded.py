"""Matrices held as quantized files store them: codes and scales, of which each product makes the values it multiplies."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float, Int, UInt8

from jaxspec.formats.codes import Codes
from jaxspec.models.dots import dot_rows
from jaxspec.models.matrix import Dense, Matrix

__all__ = ["Coded", "CodedForms", "coded"]

#: Elements of a single matrix whose values are made at once; those of a layer are made whole.
_PIECE = 1 << 24


@struct.dataclass
class Coded(Matrix):
    """A matrix, or a stack of them, as `Codes`; the values of one exist while it is multiplied.

    Attributes:
        codes: elements in E4M3 as patterns, since XLA on CPUs would widen a whole stack before a loop over it.
        dtype: to which values are rounded.
    """

    in_codes: ClassVar[bool] = True

    codes: Codes
    dtype: Any = struct.field(pytree_node=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the matrix."""
        return (*self.codes.codes.shape[:-1], self.codes.columns)

    def values(self) -> Array:
        """The matrix, in `dtype`."""
        found = self.codes.values(jnp)
        # The barrier keeps XLA from dropping the rounding where products widen the values again.
        return found if self.dtype == jnp.float32 else jax.lax.optimization_barrier(found.astype(self.dtype))

    def take(self, index: Array) -> Matrix:
        """See `Matrix`; rows of one matrix are taken of its values where they share scales."""
        if len(self.shape) > 2:
            return super().take(index)
        rows = self.codes.rows(index)
        return Dense(self.values()[index] if rows is None else dataclasses.replace(self, codes=rows).values())

    def to_decode(self) -> Coded:
        """See `Matrix`."""
        return self

    def dot(self, x: Float[Array, "*b column"], dot_dtype: Any = None) -> Float[Array, "*b row"]:
        """See `Matrix`; of a large matrix outside the layers, values of some rows are made at a time."""
        rows, columns = self.shape
        size = max(1, _PIECE // columns)
        if rows < 2 * size or not self.codes.rows_apart:
            return super().dot(x, dot_dtype)
        # The last piece ends where the matrix does; what it repeats of the one before is left out.
        first = jnp.minimum(jnp.arange(-(-rows // size)) * size, rows - size)
        found = jax.lax.map(lambda start: dot_rows(x, self.take(start + jnp.arange(size)).values(), dot_dtype), first)
        flat = jnp.moveaxis(found, 0, -2)
        whole, last = flat[..., :-1, :].reshape(*x.shape[:-1], -1), flat[..., -1, :]
        return jnp.concatenate([whole, last[..., whole.shape[-1] - rows :]], axis=-1)


class _RowForm(NamedTuple):
    """How the bytes of a row are the parts of `Codes`: their tree, and bytes and type of each."""

    tree: Any
    parts: tuple[tuple[int, np.dtype], ...]


@struct.dataclass
class CodedForms(Matrix):
    """A stack of matrices in codes of several forms, as GGUF files have them layer by layer: of each row, its bytes.

    Attributes:
        rows: zeros follow the bytes of narrower forms. form: of each matrix, by its number.
        forms: all of them. shape_of_one: of a matrix.
        dtype: of the values.
    """

    in_codes: ClassVar[bool] = True

    rows: UInt8[Array, "*lead row byte"]
    form: Int[Array, "*lead"]
    forms: tuple[_RowForm, ...] = struct.field(pytree_node=False)
    columns: int = struct.field(pytree_node=False)
    dtype: Any = struct.field(pytree_node=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the stack."""
        return (*self.rows.shape[:-1], self.columns)

    def values(self) -> Array:
        """The matrices, in `dtype`."""

        def one(given: tuple[Array, Array]) -> Array:
            rows, form = given
            make = [lambda rows, form=form: Coded(_of_bytes(rows, form), self.dtype).values() for form in self.forms]
            return jax.lax.switch(form, make, rows)

        if self.form.ndim == 0:
            return one((self.rows, self.form))
        flat = self.rows.reshape(-1, *self.rows.shape[-2:]), self.form.reshape(-1)
        return jax.lax.map(one, flat).reshape(self.shape)

    def to_decode(self) -> CodedForms:
        """See `Matrix`."""
        return self


def coded(found: Sequence[Codes], lead: tuple[int, ...] | None, dtype: Any) -> Matrix | None:
    """A stack of matrices, or of stacks of them; None: their parts have different forms, and rows share some of them.

    Args:
        found: on the host. lead: axes before a matrix; None: it is the only one.
        dtype: to which values are rounded.
    """
    if any(each.groups is not None for each in found):
        # Where some have an order of columns, the others have the plain one.
        plain = lambda each: np.arange(each.columns, dtype=np.int32) // each.share[1]
        found = [each if each.groups is not None else dataclasses.replace(each, groups=plain(each)) for each in found]
    lead, dtype = lead or (), np.dtype(dtype)
    forms = [_form(each) for each in found]
    before = 1 + found[0].codes.ndim - 2
    if len(set(forms)) == 1:
        put = lambda *parts: _put(_stacked(parts, lead, before))
        return Coded(jax.tree.map(put, *found), dtype)
    if before > 1 or any(not each.rows_apart or each.groups is not None for each in found):
        return None
    rows = list(map(_row_form, found))
    known = tuple(dict.fromkeys(rows))
    width = max(sum(size for size, _ in form.parts) for form in known)
    padded = [_bytes_of(each, width) for each in found]
    number = np.array([known.index(form) for form in rows], np.int32).reshape(lead)
    return CodedForms(_put(_stacked(padded, lead, before)), _put(number), known, found[0].columns, dtype)


def _form(codes: Codes) -> Any:
    leaves, tree = jax.tree.flatten(codes)
    return tree, tuple((leaf.shape, leaf.dtype) for leaf in leaves)


def _row_form(codes: Codes) -> _RowForm:
    leaves, tree = jax.tree.flatten(codes)
    return _RowForm(tree, tuple((leaf.shape[-1] * leaf.dtype.itemsize, leaf.dtype) for leaf in leaves))


def _bytes_of(codes: Codes, width: int) -> np.ndarray:
    """Bytes of each row, one part after the other; what all rows have in common is in each."""
    out = np.zeros((len(codes.codes), width), np.uint8)
    first = 0
    for leaf in jax.tree.leaves(codes):
        part = np.ascontiguousarray(leaf).view(np.uint8)
        out[:, first : first + part.shape[1]] = part
        first += part.shape[1]
    return out


def _of_bytes(rows: Array, form: _RowForm) -> Codes:
    leaves, first = [], 0
    for size, dtype in form.parts:
        part = rows[:, first : first + size]
        if dtype.itemsize > 1:
            part = part.reshape(len(part), -1, dtype.itemsize)
        leaves.append(part if dtype == np.uint8 else jax.lax.bitcast_convert_type(part, dtype))
        first += size
    return jax.tree.unflatten(form.tree, leaves)


def _stacked(parts: Sequence[np.ndarray], lead: tuple[int, ...], before: int) -> np.ndarray:
    """Parts along a new first axis, whose first axes, `before` of them, then become `lead`."""
    out = aligned((len(parts), *parts[0].shape), parts[0].dtype)
    for place, part in enumerate(parts):
        out[place] = part
    return out.reshape(*lead, *out.shape[before:])


def _put(part: np.ndarray) -> Array:
    """On the device; a CPU keeps the memory of what is aligned."""
    return jax.device_put(part, may_alias=True)


_ALIGNMENT = 64


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array that JAX takes as it is on a CPU, where others are copied: it begins at a multiple of 64 bytes."""
    size = math.prod(shape) * dtype.itemsize
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)
