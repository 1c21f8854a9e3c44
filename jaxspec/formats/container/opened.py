"""An open container: its tensors as target or as draft, and the small files that came with them."""

from __future__ import annotations

import hashlib
import os
import reprlib
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import numpy as np

from jaxspec.errors import InputError
from jaxspec.formats.container.codec import CodecError, Part
from jaxspec.formats.container.layout import Section, damaged
from jaxspec.formats.container.reader import ContainerReader
from jaxspec.formats.container.schemes import CODECS, SCHEMES
from jaxspec.formats.container.tensors import StoredTensor, parse_tensor

__all__ = ["Container"]


class Container:
    """A container file, opened and checked.

    Attributes:
        path: of the file.
        scheme: that it was packed with.
        lossless: whether the target is the checkpoint that was packed, bit for bit.
        tensors: name -> entry, in the order of the data.
        files: name and header section of each file of weights.
        beside: name -> section of each small file.
    """

    def __init__(self, path: str | os.PathLike[str]):
        """Open a file.

        Raises:
            InputError: it does not exist, is no container, or is damaged.
        """
        self._reader = ContainerReader(path)
        self.path = self._reader.path
        try:
            self._parse(self._reader.directory)
        except BaseException:
            self._reader.__exit__(None, None, None)
            raise

    def _parse(self, directory: dict[str, Any]) -> None:
        section = self._reader.section
        try:
            self.scheme, self.options = directory["scheme"], directory["options"]
            self.files: list[tuple[str, Section]] = [
                (self._plain_name(entry["name"]), section(entry["header"])) for entry in directory["files"]
            ]
            self.beside = {self._plain_name(name): section(where) for name, where in directory["beside"].items()}
            entries = directory["tensors"]
            if self.scheme not in SCHEMES or not isinstance(entries, list) or not isinstance(self.options, dict):
                raise ValueError(f"scheme {self.scheme!r} is unknown, or there is no list of tensors")
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(damaged(self.path, f"its directory cannot be read ({error!r})")) from error
        self.lossless = SCHEMES[self.scheme].codec.lossless
        self.tensors: dict[str, StoredTensor] = {}
        for entry in entries:
            tensor = parse_tensor(entry, len(self.files), section, self.path)
            if tensor.form.name in self.tensors or tensor.codec not in CODECS:
                raise InputError(
                    damaged(self.path, f"tensor {tensor.form.name!r} is listed twice, or by {tensor.codec!r}")
                )
            self.tensors[tensor.form.name] = tensor
        # Sections that overlap could make a small file unpack to a large one.
        total = sum(where.length for where in self.sections())
        if total > self._reader.file_bytes:
            raise InputError(damaged(self.path, "its sections overlap"))

    def _plain_name(self, name: Any) -> str:
        """A file name that cannot leave the folder it is written to."""
        # No surrogate and no control character is printable.
        good = isinstance(name, str) and name.isprintable() and 0 < len(name.encode()) < 256
        if not good or name != os.path.basename(name) or name in (".", "..") or "\\" in name:
            raise InputError(damaged(self.path, f"it names a file {reprlib.repr(name)}"))
        return name

    def __enter__(self) -> Container:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.__exit__(kind, error, trace)

    @property
    def bytes_read(self) -> int:
        """Of the file so far, prelude and directory included."""
        return self._reader.bytes_read

    @property
    def has_draft(self) -> bool:
        """Whether a draft can be read that is smaller than the target."""
        return SCHEMES[self.scheme].has_draft

    def sections(self, part: Part | None = None) -> Iterator[Section]:
        """All sections, or those of one part (`beside` and headers belong to both)."""
        if part is None:
            yield from self.beside.values()
            yield from (header for _, header in self.files)
        for tensor in self.tensors.values():
            for chunk in tensor.chunks:
                for role, where in chunk.items():
                    if part is None or CODECS[tensor.codec].part(role) == part:
                        yield where

    def read_file(self, name: str) -> bytes | None:
        """A small file that was packed along, None if there is none of this name."""
        return self._reader.read(self.beside[name]) if name in self.beside else None

    def read_header(self, file: int) -> bytes:
        """The header of a file of weights."""
        return self._reader.read(self.files[file][1])

    def chunks(self, name: str, part: Part = "target") -> Iterator[np.ndarray]:
        """The patterns of a tensor, piece by piece.

        Args:
            part: "draft" reads the sections of the draft's part and no others.
        Raises:
            InputError: a checksum is wrong, or the sections do not fit the tensor.
        """
        tensor = self.tensors[name]
        codec = CODECS[tensor.codec]
        digest = hashlib.sha256()
        for count, listed in zip(tensor.counts(), tensor.chunks):
            wanted = {r: where for r, where in listed.items() if part == "target" or codec.part(r) == "draft"}
            if not wanted and codec.name == "raw":
                raise InputError(damaged(self.path, f"tensor {name!r} lacks its bytes"))
            sections = {role: self._reader.read(where) for role, where in wanted.items()}
            decode = codec.decode if part == "target" else codec.draft
            try:
                patterns = decode(tensor.coding, tensor.form, count, sections)
            except CodecError as error:
                raise InputError(damaged(self.path, f"tensor {name!r}: {error}")) from error
            digest.update(np.ascontiguousarray(patterns).view(np.uint8).data)
            yield patterns
        expected = tensor.sha256 if part == "target" else tensor.draft_sha256
        if digest.hexdigest() != expected:
            raise InputError(damaged(self.path, f"tensor {name!r} has another SHA-256 than it was packed with"))

    def read(self, name: str, part: Part = "target") -> np.ndarray:
        """A whole tensor: patterns, or bytes where its dtype is not a known number format.

        Raises:
            InputError: as `chunks`.
        """
        form, place = self.tensors[name].form, 0
        whole: np.ndarray | None = None
        for patterns in self.chunks(name, part):
            # Allocated once the first piece has proved that the file has the bytes for it.
            whole = np.empty(form.elements, form.pattern_dtype) if whole is None else whole
            whole[place : place + patterns.size] = patterns
            place += patterns.size
        return np.empty(0, form.pattern_dtype) if whole is None else whole
