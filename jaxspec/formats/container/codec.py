"""What a codec of tensors is, and the codec that leaves bytes as they are."""

from __future__ import annotations

import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from jaxspec.formats.container.layout import OLDEST_WRITTEN, Section
from jaxspec.formats.container.tensors import TensorForm, Whole

__all__ = [
    "ENTRY_BYTES",
    "LEAST_BYTES",
    "MASK_ROLE",
    "Balance",
    "Chunk",
    "Codec",
    "CodecError",
    "CodedSize",
    "Decoded",
    "Part",
    "Raw",
    "SameDtype",
    "Selection",
    "Undivided",
]


#: Which part of a tensor a section belongs to: what a draft reads, or what only the target reads.
Part = Literal["draft", "target"]


#: The section that says which values of a chunk a draft keeps.
MASK_ROLE = "bitmap"


class CodecError(ValueError):
    """Sections that do not fit their tensor; readers say in which file."""


class Chunk(NamedTuple):
    """Consecutive elements of a tensor.

    Attributes:
        patterns: "element" unsigned integers (see `PATTERN_DTYPES`).
        kept: "element" True where a draft keeps a value; None for codecs without a draft.
    """

    patterns: np.ndarray
    kept: np.ndarray | None = None


class Decoded(NamedTuple):
    """Patterns of a chunk.

    Attributes:
        target, draft: what each computes with; one array where they are the same.
    """

    target: np.ndarray
    draft: np.ndarray


class Selection(NamedTuple):
    """What of a matrix its draft reads.

    Attributes:
        kept_per_row: values of each row that the draft keeps; codecs that prune nothing do not look at it.
        cut_bits: low mantissa bits that it does without.
        growth_bytes: that the matrix may take beyond its own, so that there is such a draft.
        codec: that divides it; None: that of the container's scheme.
    """

    kept_per_row: int
    cut_bits: int
    growth_bytes: int = 0
    codec: str | None = None


class Codec(Protocol):
    """Codes the chunks of one tensor. What `plan` returns is stored as JSON and given back to every other method."""

    #: As the directory names it.
    name: str
    #: Whether `decode` gives back the patterns that `encode` was given.
    lossless: bool
    #: Data types, as safetensors spells them, of the tensors that it codes; all others stay as they are.
    dtypes: tuple[str, ...]
    #: Data type of the tensors that it gives back; empty: that of the tensor. Methods that read are given a form in this type.
    gives: str
    #: Whether chunks must say which values a draft keeps.
    prunes: bool
    #: Layout version from which on readers know it.
    version: int

    def unit(self, form: TensorForm) -> int:
        """Elements that a chunk must hold a multiple of."""
        ...

    def plan(
        self, form: TensorForm, chunks: Callable[[], Iterable[Chunk]], selection: Selection | None
    ) -> dict[str, Any] | Whole:
        """Code tables and parameters for a tensor, or why it is left as it is."""
        ...

    def packed_form(self, coding: dict[str, Any], form: TensorForm) -> TensorForm:
        """What a tensor that is given back was before it was packed; of a plan that was checked."""
        ...

    def check(self, coding: dict[str, Any], form: TensorForm) -> None:
        """Check a plan that may come from a damaged file.

        Raises:
            CodecError: it is not one, or not of such a tensor.
        """
        ...

    def code_tables(self, coding: dict[str, Any], form: TensorForm) -> dict[str, dict[int, int]]:
        """Bits of each symbol's codeword, by what is coded; of a plan that was checked."""
        ...

    def encode(self, coding: dict[str, Any], form: TensorForm, chunk: Chunk) -> dict[str, np.ndarray]:
        """Sections of a chunk by role."""
        ...

    def decode(self, coding: dict[str, Any], form: TensorForm, count: int, sections: dict[str, bytes]) -> np.ndarray:
        """The patterns of a chunk of `count` elements.

        Raises:
            CodecError: the sections do not fit.
        """
        ...

    def draft(self, coding: dict[str, Any], form: TensorForm, count: int, sections: dict[str, bytes]) -> np.ndarray:
        """The patterns that a draft computes with, from the sections of the draft's part alone.

        Raises:
            CodecError: the sections do not fit.
        """
        ...

    def both(
        self,
        coding: dict[str, Any],
        form: TensorForm,
        count: int,
        drafted: dict[str, bytes],
        sections: dict[str, bytes],
    ) -> Decoded:
        """What `decode` gives of all sections and `draft` of the draft's, with what they share done once.

        Args:
            drafted: sections of the draft's part.
            sections: of both parts.
        Raises:
            CodecError: the sections do not fit.
        """
        ...

    def part(self, role: str) -> Part:
        """Which part a section of this role belongs to."""
        ...


#: Values that are counted at once.
_COUNTED = 1 << 18


def occurrences(values: np.ndarray, num_values: int) -> np.ndarray:
    """How often each of 0 to num_values - 1 occurs, int64; in pieces, since NumPy counts a copy in 64 bits."""
    counts = np.zeros(num_values, np.int64)
    for first in range(0, values.size, _COUNTED):
        counts += np.bincount(values[first : first + _COUNTED], minlength=num_values)
    return counts


def take(sections: dict[str, bytes], role: str, dtype: np.dtype | type | str, count: int | None = None) -> np.ndarray:
    """A section as a vector of little-endian numbers.

    Raises:
        CodecError: it is missing, or has another length.
    """
    content = sections.get(role)
    size = np.dtype(dtype).itemsize
    if content is None or len(content) % size or (count is not None and len(content) != count * size):
        have = "none" if content is None else f"{len(content)} bytes"
        raise CodecError(
            f"section {role!r} should hold {'whole numbers' if count is None else count * size}, has {have}"
        )
    return np.frombuffer(content, dtype)


class SameDtype:
    """The part of a codec that gives tensors back in their own type."""

    gives = ""
    version = OLDEST_WRITTEN

    def packed_form(self, coding: dict[str, Any], form: TensorForm) -> TensorForm:
        """The same."""
        del coding
        return form


class Undivided(SameDtype, ABC):
    """A codec of tensors whose draft is their target."""

    prunes = False

    @abstractmethod
    def decode(self, coding: dict[str, Any], form: TensorForm, count: int, sections: dict[str, bytes]) -> np.ndarray:
        """See `Codec`."""

    def draft(self, coding: dict[str, Any], form: TensorForm, count: int, sections: dict[str, bytes]) -> np.ndarray:
        """The patterns, of all sections."""
        return self.decode(coding, form, count, sections)

    def both(
        self,
        coding: dict[str, Any],
        form: TensorForm,
        count: int,
        drafted: dict[str, bytes],
        sections: dict[str, bytes],
    ) -> Decoded:
        """The patterns, for either."""
        patterns = self.decode(coding, form, count, sections)
        return Decoded(patterns, patterns)

    def part(self, role: str) -> Part:
        """A tensor that is not divided belongs to the draft, which needs it whole; the target reads the draft's part too."""
        return "draft"


class Raw(Undivided):
    """Bytes as they are; both parts read all of them."""

    name = "raw"
    lossless = True
    dtypes: tuple[str, ...] = ()

    def unit(self, form: TensorForm) -> int:
        """Any number of elements."""
        return 1

    def plan(
        self, form: TensorForm, chunks: Callable[[], Iterable[Chunk]], selection: Selection | None
    ) -> dict[str, Any]:
        """Nothing to plan."""
        return {}

    def check(self, coding: dict[str, Any], form: TensorForm) -> None:
        """Nothing to check: a plan is not looked at."""

    def code_tables(self, coding: dict[str, Any], form: TensorForm) -> dict[str, dict[int, int]]:
        """None."""
        return {}

    def encode(self, coding: dict[str, Any], form: TensorForm, chunk: Chunk) -> dict[str, np.ndarray]:
        """One section."""
        return {"bytes": chunk.patterns}

    def decode(self, coding: dict[str, Any], form: TensorForm, count: int, sections: dict[str, bytes]) -> np.ndarray:
        """The section."""
        return take(sections, "bytes", form.pattern_dtype, count)


# Whether a coded tensor gains anything over its bytes as they are, by the sizes that it really has.

#: Shorter tensors are not tried: plan and sections take more than that in the directory.
LEAST_BYTES = 128

#: A container may be longer than what it holds by one part in so many, and by a few bytes for small files: a split that
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
