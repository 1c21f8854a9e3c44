"""What every scheme object says of itself, read from its entry in the registry."""

from __future__ import annotations

import dataclasses
from typing import cast

from jaxspec.compress.schemes.interface import Scheme
from jaxspec.formats.container import Codec, codec_of
from jaxspec.settings.knobs import KnobSpec
from jaxspec.settings.schemes import SchemeFacts

__all__ = ["Described"]


@dataclasses.dataclass(frozen=True)
class Described:
    """A scheme's facts under the names of the `Scheme` protocol.

    Attributes:
        apart: kinds of matrix with the schemes by which they are stored instead, of the same knobs; the LM head has its own.
    """

    facts: SchemeFacts
    apart: tuple[tuple[str, Scheme], ...] = dataclasses.field(default=(), kw_only=True)

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
        """What may be set."""
        return self.facts.knob_specs

    @property
    def codec(self) -> Codec | None:
        """The container's, or None where no file of this scheme can be written yet."""
        return codec_of(self.name) if self.facts.packs else None
