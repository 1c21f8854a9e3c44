"""What every scheme object says of itself, read from its entry in the registry."""

from __future__ import annotations

import dataclasses
from typing import Self, cast

from jaxspec.compress.schemes.interface import Scheme
from jaxspec.formats.container import Codec, codec_of
from jaxspec.settings.knobs import KnobSpec, StoredDtype
from jaxspec.settings.schemes import SchemeFacts

__all__ = ["Described"]


@dataclasses.dataclass(frozen=True)
class Described:
    """A scheme's facts under the names of the `Scheme` protocol.

    Attributes:
        apart: kinds of matrix with the schemes by which they are stored instead, of the same knobs; the LM head has its own.
        stored_dtype: type in which networks are stored whose KV cache, and whose cuts, these are; see `of_dtype`.
    """

    facts: SchemeFacts
    apart: tuple[tuple[str, Scheme], ...] = dataclasses.field(default=(), kw_only=True)
    stored_dtype: StoredDtype = dataclasses.field(default="bfloat16", kw_only=True)

    def of_dtype(self, dtype: StoredDtype) -> Self:
        """See `Scheme.of_dtype`."""
        if dtype == self.stored_dtype:
            return self
        apart = tuple((kind, scheme.of_dtype(dtype)) for kind, scheme in self.apart)
        return dataclasses.replace(self, apart=apart, stored_dtype=dtype)

    def of_kind(self, kind: str) -> Scheme:
        """See `Scheme.of_kind`."""
        return dict(self.apart).get(kind, cast("Scheme", self))

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
