"""A storage scheme: its facts, and the codecs that it is made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Self

import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels import Footprint
from jaxspec.compress.footprint import BitsPerValue
from jaxspec.compress.schemes.interface import CompressedKV, KVCodec, MatrixCodec, OwnKnobs
from jaxspec.formats.container import Codec, codec_of
from jaxspec.settings.knobs import KnobSpec, StoredDtype
from jaxspec.settings.schemes import SchemeFacts

__all__ = ["KV_BITS", "PlainKV", "Scheme"]

#: Bits read per element of a KV cache as it is, by draft and target alike.
KV_BITS = 16.0


@dataclasses.dataclass(frozen=True)
class PlainKV:
    """A `KVCodec`: keys and values that draft and target read as the target wrote them, in 16 bits."""

    def of_dtype(self, dtype: StoredDtype) -> Self:
        """Itself."""
        del dtype
        return self

    def prepare(self, rows: Float[Array, "*b slot column"]) -> Float[Array, "*b slot column"]:
        """The cache as it is."""
        return rows

    def soft(
        self,
        prepared: Float[Array, "*b slot column"],
        knobs: OwnKnobs,
        temperature: Float[Array, ""] | float,
        counted: Float[Array, " batch"] | None = None,
    ) -> CompressedKV:
        """The cache as it is."""
        del temperature
        return self.hard(prepared, knobs, counted)

    def hard(
        self, prepared: Float[Array, "*b slot column"], knobs: OwnKnobs, counted: Float[Array, " batch"] | None = None
    ) -> CompressedKV:
        """The cache as it is."""
        del knobs, counted
        read = jnp.full((), KV_BITS)
        return CompressedKV(prepared, BitsPerValue(read, read))

    def encode(self, rows: Float[Array, "*b column"], knobs: OwnKnobs) -> Float[Array, "*b column"]:
        """The cache as it is."""
        del knobs
        return rows


@dataclasses.dataclass(frozen=True)
class Scheme:
    """A way to store a network so that a draft is a part of it: what is known of it, and the codecs that it is made of.

    Attributes:
        facts: its entry in the registry, `jaxspec.settings.schemes`.
        footprint: from knobs, one number each, and the type that the network is stored in to the bits read on Gaussian rows
            (see `gaussian_patterns`), the same knobs everywhere; experts as other matrices.
        matrix_codec: of weights; None: a scheme that can be priced and packed, but not run.
        kv: of keys and values.
        apart: kinds of matrix with the schemes by which they are stored instead, of the same knobs; the LM head has its own.
        stored_dtype: type in which networks are stored whose KV cache, and whose cuts, these are; see `of_dtype`.
    """

    facts: SchemeFacts
    footprint: Callable[[Mapping[str, float], StoredDtype], Footprint] = dataclasses.field(repr=False)
    matrix_codec: MatrixCodec | None = None
    kv: KVCodec = PlainKV()
    apart: tuple[tuple[str, Scheme], ...] = dataclasses.field(default=(), kw_only=True)
    stored_dtype: StoredDtype = dataclasses.field(default="bfloat16", kw_only=True)

    def of_dtype(self, dtype: StoredDtype) -> Self:
        """The same scheme of networks stored in a 16-bit type: knobs that cut mantissa bits range over those that it has,
        KV caches are in it, and so is what the expected footprint counts. The registry's are of bfloat16.

        A matrix has the type that it is stored in, whichever this is.
        """
        if dtype == self.stored_dtype:
            return self
        apart = tuple((kind, scheme.of_dtype(dtype)) for kind, scheme in self.apart)
        return dataclasses.replace(self, kv=self.kv.of_dtype(dtype), apart=apart, stored_dtype=dtype)

    def of_kind(self, kind: str) -> Scheme:
        """The scheme by which a kind of matrix is stored: itself, unless `apart` names another.

        Args:
            kind: of a network, see `MATRIX_KINDS`; "lm_head" where the scheme's facts say that it compresses the head.
        """
        return dict(self.apart).get(kind, self)

    @property
    def matrix(self) -> MatrixCodec:
        """The codec of weights.

        Raises:
            NotImplementedError: a scheme that cannot be run.
        """
        if self.matrix_codec is None:
            raise NotImplementedError(
                f"scheme {self.name}: drafts of this form are not run on a network yet, only priced and packed"
            )
        return self.matrix_codec

    @property
    def name(self) -> str:
        """As users give it."""
        return self.facts.name

    @property
    def title(self) -> str:
        """One line."""
        return self.facts.title

    @property
    def lossless(self) -> bool:
        """Whether the target is the uncompressed network's, bit for bit."""
        return self.facts.lossless

    @property
    def knob_specs(self) -> tuple[KnobSpec, ...]:
        """What may be set, in the range that the type has in which networks are stored."""
        # Elements of blocks that share exponents are the same whatever they are made of; the LM head is in none.
        in_blocks = self.facts.shared_exponents is not None
        return tuple(
            spec if in_blocks and spec.per != "head" else spec.of_dtype(self.stored_dtype)
            for spec in self.facts.knob_specs
        )

    @property
    def codec(self) -> Codec | None:
        """The container's, or None where no file of this scheme can be written yet."""
        return codec_of(self.name) if self.facts.packs else None

    def expected_footprint(self, knobs: Mapping[str, float]) -> Footprint:
        """Bits read on Gaussian rows.

        Args:
            knobs: one number for each of `knob_specs`.
        """
        return self.footprint(knobs, self.stored_dtype)
