"""Whether a coded tensor gains anything over its bytes as they are, by the sizes that it really has."""

from __future__ import annotations

import json
import zlib
from typing import Any

from jaxspec.formats.container.codec import MASK_ROLE, Codec
from jaxspec.formats.container.layout import Section
from jaxspec.formats.container.tensors import TensorForm, Whole

__all__ = ["LEAST_BYTES", "CodedSize"]

#: Shorter tensors are not tried: plan and sections take more than that in the directory.
LEAST_BYTES = 128


class CodedSize:
    """What a tensor takes as its chunks are coded one after the other.

    Attributes:
        stored, drafted: bytes of all its sections, and of the draft's part.
    """

    def __init__(self, form: TensorForm, codec: Codec):
        """Args: codec: the one that codes it."""
        self.stored = self.drafted = self._mask = 0
        self._form, self._codec = form, codec

    def add(self, sections: dict[str, Section]) -> None:
        """Count a chunk."""
        for role, section in sections.items():
            self.stored += section.length
            self.drafted += section.length if self._codec.part(role) == "draft" else 0
            self._mask += section.length if role == MASK_ROLE else 0

    @property
    def _divided(self) -> bool:
        return self.drafted < self.stored

    def hopeless(self) -> bool:
        """Whether the tensor gains nothing whatever the chunks to come are."""
        # No mask is two bits per element long; see `verdict`.
        return self.stored > self._form.bytes + self._form.elements // 4

    def verdict(self, coding: dict[str, Any], chunks: list[dict[str, Section]]) -> Whole | None:
        """Why the tensor is better stored as it is; None if coding it gains something.

        It does if the target gets smaller, tables and entry in the directory included. It does, too, if the draft alone gets
        smaller and the target grows by no more than the mask that divides them: a draft of few values costs that bit.
        """
        listing = len(zlib.compress(json.dumps([coding, chunks], sort_keys=True).encode()))
        target, draft, plain = self.stored + listing, self.drafted + listing, self._form.bytes
        if target < plain or (self._divided and draft < plain and self.stored <= plain + self._mask):
            return None
        return Whole("gain", target, draft if self._divided else None)
