"""Whether a coded tensor gains anything over its bytes as they are, by the sizes that it really has."""

from __future__ import annotations

import json
import zlib
from typing import Any

from jaxspec.formats.container.codec import MASK_ROLE, Codec
from jaxspec.formats.container.layout import Section
from jaxspec.formats.container.tensors import TensorForm, Whole

__all__ = ["ENTRY_BYTES", "LEAST_BYTES", "Balance", "CodedSize"]

#: Shorter tensors are not tried: plan and sections take more than that in the directory.
LEAST_BYTES = 128

#: A container may be longer than what it holds by one part in so many, and by a few bytes for small files: a division that
#: makes a matrix longer is kept as long as it is not.
GROWTH_PARTS = 64
FREE_BYTES = 512

#: Entry of a tensor that is stored as it is in a section: place, checksum, digest, zeros before it.
_RAW_ENTRY_BYTES = 64

#: About what a divided matrix takes in the directory.
ENTRY_BYTES = 300

#: Bytes of a digest; a tensor with a draft has two.
_DIGEST_BYTES = 32


class Balance:
    """What a container may still grow by, tensor after tensor: what some of them save, others may take.

    Attributes:
        left: bytes; below 0 where raw tensors took more.
    """

    def __init__(self):
        self.left = FREE_BYTES

    def allowed(self, form: TensorForm) -> int:
        """Bytes that a tensor may take beyond its own."""
        return self.left + form.bytes // GROWTH_PARTS

    def book(self, form: TensorForm, taken: int) -> None:
        """Note what a tensor took."""
        self.left = self.allowed(form) - (taken - form.bytes)

    def book_raw(self, form: TensorForm) -> None:
        """Note a tensor that is stored as it is, in a section."""
        self.book(form, form.bytes + _RAW_ENTRY_BYTES)


class CodedSize:
    """What a tensor takes as its chunks are coded one after the other.

    Attributes:
        stored, drafted: bytes of all its sections, and of the draft's part.
        listing: bytes that it takes in the directory and between sections; 0 before the verdict.
    """

    def __init__(self, form: TensorForm, codec: Codec, growth_bytes: int):
        """Args: codec: the one that codes it; growth_bytes: that it may take beyond its own for a smaller draft."""
        self.stored = self.drafted = self.listing = self._mask = 0
        self._form, self._codec, self._growth = form, codec, growth_bytes

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
        return self.stored > self._form.bytes + min(max(self._growth, 0), self._form.elements // 4)

    def verdict(self, coding: dict[str, Any], chunks: list[dict[str, Section]], between: int) -> Whole | None:
        """Why the tensor is better stored as it is; None if coding it gains something.

        It does if the target gets smaller, tables, digests and all it takes in the directory included. It does, too, if the
        draft alone gets smaller, the target grows by no more than the mask that divides them, and the container may grow by
        what the target takes.

        Args:
            between: bytes that its sections leave between them.
        """
        text = zlib.compress(json.dumps([coding, chunks], sort_keys=True).encode())
        self.listing = len(text) + between + _DIGEST_BYTES * (2 if self._divided else 1)
        target, draft, plain = self.stored + self.listing, self.drafted + self.listing, self._form.bytes
        pays = self._divided and draft < plain and self.stored <= plain + self._mask
        if target < plain or (pays and target <= plain + self._growth):
            return None
        return Whole("gain", target, draft if self._divided else None)
