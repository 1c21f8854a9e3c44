"""Keys and values that draft and target read as the target wrote them, in 16 bits."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxspec.compress.footprint import BitsPerValue
from jaxspec.compress.schemes.described import Described
from jaxspec.compress.schemes.interface import CompressedKV, OwnKnobs

__all__ = ["KV_BITS", "PlainKV"]

#: Bits read per element of the KV cache, by draft and target alike.
KV_BITS = 16.0


@dataclasses.dataclass(frozen=True)
class PlainKV(Described):
    """The part of a scheme (see `Scheme`) that leaves the cache as it is."""

    def prepare_kv(self, rows: Float[Array, "*b slot column"]) -> Float[Array, "*b slot column"]:
        """The cache as it is."""
        return rows

    def soft_kv(
        self,
        prepared: Float[Array, "*b slot column"],
        knobs: OwnKnobs,
        temperature: Float[Array, ""] | float,
        counted: Float[Array, " batch"] | None = None,
    ) -> CompressedKV:
        """The cache as it is."""
        del temperature
        return self.hard_kv(prepared, knobs, counted)

    def hard_kv(
        self,
        prepared: Float[Array, "*b slot column"],
        knobs: OwnKnobs,
        counted: Float[Array, " batch"] | None = None,
    ) -> CompressedKV:
        """The cache as it is."""
        del knobs, counted
        read = jnp.full((), KV_BITS)
        return CompressedKV(prepared, BitsPerValue(read, read))

    def encode_kv(self, rows: Float[Array, "*b column"], knobs: OwnKnobs) -> Float[Array, "*b column"]:
        """The cache as it is."""
        del knobs
        return rows
