"""Stacks that stay in host memory, and come to the device an entry at a time, inside whatever program reads them.

A program holds references, which are numbers, in the place of a stack: it slices them and loops over them as it would over
layers, and calls the host for an entry where it needs one. So every program that runs a network runs one that is larger than
the device, `jax.lax.while_loop` and gradients included, with one entry at a time on the device.
"""

from __future__ import annotations

import dataclasses
import itertools
import weakref
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Int

from jaxspec.formats.patterns import format_of, from_bits
from jaxspec.models.matrix import Matrix

__all__ = ["Streamed", "fetched", "is_in_host", "is_streamed", "stays_in_host"]

#: Stacks by number, as long as somebody holds their references.
_STACKS: dict[int, Sequence[np.ndarray] | np.ndarray] = {}

_NUMBERS = itertools.count()


@struct.dataclass
class Streamed(Matrix):
    """A stack in host memory, or one entry of it, by reference.

    The arrays live as long as the references that `of` made: hold these until the programs that read them are done.

    Attributes:
        place: number of the stack, and of the entry in it.
        entry: shape of an entry.
        dtype: in which entries are read.
    """

    in_host: ClassVar[bool] = True

    place: Int[Array, "*b 2"]
    entry: tuple[int, ...] = struct.field(pytree_node=False)
    dtype: Any = struct.field(pytree_node=False)

    @classmethod
    def of(cls, entries: Sequence[np.ndarray] | np.ndarray, lead: tuple[int, ...] | None = None) -> Streamed:
        """Of arrays of one form, which may be memory-mapped; an array is the sequence of its rows.

        Args:
            lead: axes in front of an entry, as layers and experts; None: one axis.
        """
        number = next(_NUMBERS)
        count = jnp.arange(len(entries), dtype=jnp.int32).reshape(lead or -1)
        place = jnp.stack([jnp.full_like(count, number), count], axis=-1)
        _STACKS[number] = entries
        weakref.finalize(place, _STACKS.pop, number)
        return cls(place, entries[0].shape, entries[0].dtype)

    @classmethod
    def abstract(cls, shape: tuple[int, ...], dtype: Any) -> Streamed:
        """Of a shape alone, for programs that are lowered and not run."""
        return cls(jax.ShapeDtypeStruct((shape[0], 2), jnp.int32), shape[1:], np.dtype(dtype))  # pyright: ignore[reportArgumentType]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the stack."""
        return (*self.place.shape[:-1], *self.entry)

    def astype(self, dtype: Any) -> Streamed:
        """The stack, each entry rounded when it is read."""
        return dataclasses.replace(self, dtype=np.dtype(dtype))

    def part(self, index: tuple[slice, ...]) -> np.ndarray:
        """A part of the stack, in host memory."""
        places = np.asarray(self.place)
        entries, lead = _STACKS[int(places.flat[0])], places.ndim - 1
        chosen = places[..., 1][index[:lead]]
        found = np.stack([entries[entry][index[lead:]] for entry in chosen.flat])
        return found.reshape(*chosen.shape, *found.shape[1:]).astype(self.dtype, copy=False)

    def host_rows(self, first: int, last: int) -> np.ndarray:
        """See `Matrix`."""
        return self.part((slice(first, last),))

    def values(self) -> Array:
        """The entries themselves, on the device."""
        wide = jnp.dtype(self.dtype)
        # Patterns, for the reason given in `jaxspec.models.stored`.
        as_patterns = wide in (jnp.bfloat16, jnp.float16)
        form = jax.ShapeDtypeStruct(self.shape, np.uint16 if as_patterns else wide)

        def read(place: Any) -> np.ndarray:
            found = _read(np.asarray(place), wide).reshape(self.shape)
            return found.view(np.uint16) if as_patterns else found

        got = jax.pure_callback(read, form, self.place, vmap_method="sequential")
        return from_bits(got, format_of(wide)) if as_patterns else got


def _read(place: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Entries, one after another."""
    flat = place.reshape(-1, 2)
    entries = _STACKS[int(flat[0, 0])]
    if len(flat) == 1:  # not copied, where it has the type
        return np.ascontiguousarray(entries[int(flat[0, 1])]).astype(dtype, copy=False)
    return np.stack([entries[index] for index in flat[:, 1]]).astype(dtype, copy=False)


def stays_in_host(path: tuple[str, ...], shape: tuple[int, ...], *, tied: bool) -> bool:
    """Whether a parameter of a streamed network stays in host memory: layers' matrices, and an embedding that is no head.

    Args:
        path: place among the parameters. shape: of all layers together. tied: whether the embedding is the head.
    """
    return len(shape) > 2 if path[0] == "layers" else path == ("embed",) and not tied


def is_in_host(node: Any) -> bool:
    """Whether a node of a tree is a matrix that stays in host memory."""
    return getattr(node, "in_host", False)


def is_streamed(tree: Any) -> bool:
    """Whether anything of a tree stays in host memory."""
    return any(map(is_in_host, jax.tree.leaves(tree, is_leaf=is_in_host)))


def fetched(tree: Any) -> Any:
    """A tree with the entries in the place of references."""
    return jax.tree.map(lambda leaf: leaf.values() if is_in_host(leaf) else leaf, tree, is_leaf=is_in_host)
