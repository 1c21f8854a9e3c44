"""Packs a checkpoint into a container, chunk by chunk, and proves each chunk before the next."""

from __future__ import annotations

import errno
import hashlib
import os
import zlib
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Protocol

import numpy as np

from jaxspec.errors import InputError
from jaxspec.formats.container.codec import Chunk, Codec, Decoded, Raw, Selection
from jaxspec.formats.container.gain import LEAST_BYTES, Balance, CodedSize
from jaxspec.formats.container.header import with_dtypes
from jaxspec.formats.container.layout import (
    OLDEST_WRITTEN,
    PRELUDE_BYTES,
    Section,
    alignment,
    compressed,
    directory_bytes,
    write_prelude,
)
from jaxspec.formats.container.naming import check_container_output
from jaxspec.formats.container.schemes import CODECS, codec_of
from jaxspec.formats.container.source import Checkpoint, WeightsFile
from jaxspec.formats.container.tensors import StoredTensor, TensorForm, Whole, chunk_elements, inline_tensor
from jaxspec.partial_files import PartialFiles
from jaxspec.settings.schemes import SCHEME_FACTS

__all__ = ["INLINE_BYTES", "ContainerWriter", "Division", "Packed", "pack"]


class ContainerWriter:
    """A container that is being written; leaving the `with` block without `finish` leaves no file behind."""

    def __init__(self, path: Path):
        """Open a temporary file beside `path`, whose folder is made if need be.

        Raises:
            InputError: no file can be written there.
        """
        self._files = PartialFiles()
        try:
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            self._file: BinaryIO = self._files.add(path).open("wb")
        except OSError as error:
            self._files.discard()
            raise InputError(f"{path} cannot be written ({error.strerror}); give another --out") from error
        self._place = self._file.write(bytes(PRELUDE_BYTES))

    def __enter__(self) -> ContainerWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._file.close()  # which fails once more where the disk is full
        finally:
            self._files.discard()

    def add(self, content: Any) -> Section:
        """Append a section: bytes, or anything with a buffer of contiguous bytes."""
        view = memoryview(content).cast("B") if memoryview(content).nbytes else memoryview(b"")
        padding = -self._place % alignment(view.nbytes)
        self._file.write(bytes(padding))
        offset = self._place + padding
        self._file.write(view)
        self._place = offset + view.nbytes
        return Section(offset, view.nbytes, zlib.crc32(view))

    @property
    def place(self) -> int:
        """Where the next section may begin; see `rewind`."""
        return self._place

    def rewind(self, place: int) -> None:
        """Forget the sections that were added since the writer stood at `place`."""
        self._file.seek(place)
        self._file.truncate()
        self._place = place

    def finish(self, directory: dict[str, Any], version: int = OLDEST_WRITTEN) -> int:
        """Write the directory and the layout's version, give the file its name, and say how many bytes it has."""
        stored = compressed(directory_bytes(directory))
        offset = self._place
        self._file.write(stored)
        self._file.seek(0)
        self._file.write(write_prelude(stored, offset, version))
        self._file.close()
        self._files.commit()
        return offset + len(stored)


#: Shorter tensors that no codec makes shorter stand in the directory: digest, checksum and place of a section would be more
#: than 2 % of them.
INLINE_BYTES = 1536


class Division(Protocol):
    """Which values of a matrix its draft keeps; asked only by schemes with a draft."""

    def selection(self, form: TensorForm) -> Selection | None:
        """How much of a tensor the draft reads; None: all of it, as it is."""
        ...

    def keep(self, form: TensorForm, rows: np.ndarray, kept_per_row: int) -> np.ndarray:
        """ "row column" True where a value is kept, `kept_per_row` times in each row; from patterns "row column"."""
        ...


class Packed(NamedTuple):
    """What packing made.

    Attributes:
        file_bytes: of the container.
        tensor_bytes: of the tensors as they were.
    """

    file_bytes: int
    tensor_bytes: int


def pack(
    checkpoint: Checkpoint,
    out: str | os.PathLike[str],
    scheme_name: str,
    *,
    division: Division | None = None,
    options: dict[str, Any] | None = None,
    on_bytes: Callable[[int, str], None] = lambda count, name: None,
) -> Packed:
    """Write a container, whole or not at all.

    Tensors are read from a memory map and written in pieces, so that no tensor is ever held whole. Each piece is decoded
    again and compared before it counts as written. A tensor that gains nothing is written once more, as it is; a short one
    stands in the directory, where it needs no digest, checksum or place of its own.

    Args:
        division: for schemes with a draft.
        options: noted in the container.
        on_bytes: called after each piece with its bytes and its tensor's name; every byte counts once.
    Raises:
        InputError: `out` is part of the checkpoint, or cannot be written; an unknown scheme.
    """
    codec = codec_of(scheme_name)
    place = check_container_output(out, checkpoint)
    entries, balance = list[StoredTensor](), Balance()
    chosen = division if SCHEME_FACTS[scheme_name].has_draft else None
    with ContainerWriter(place) as writer:
        beside = {name: list(writer.add(content)) for name, content in checkpoint.beside.items()}
        for file, form in checkpoint.tensors():
            index = checkpoint.files.index(file)
            entries.append(_pack_tensor(writer, file, index, form, codec, chosen, balance, on_bytes))
        directory = {
            "scheme": scheme_name,
            "options": options or {},
            "jaxspec": version("jaxspec"),
            "files": [
                {"name": file.name, "header": _header(file, index, entries)}
                for index, file in enumerate(checkpoint.files)
            ],
            "beside": beside,
            "tensors": [entry.listed() for entry in entries],
        }
        layout = max((CODECS[entry.codec].version for entry in entries), default=OLDEST_WRITTEN)
        size = writer.finish(directory, layout)
    return Packed(size, sum(form.bytes for _, form in checkpoint.tensors()))


def _header(file: WeightsFile, index: int, entries: list[StoredTensor]) -> str:
    """The header of a file as its tensors are given back."""
    own = [entry for entry in entries if entry.file == index]
    return with_dtypes(
        file.header_text, {entry.form.name: gives for entry in own if (gives := CODECS[entry.codec].gives)}
    )


class _Pieces:
    """The chunks of a tensor, as often as they are asked for; which values a draft keeps is asked once.

    Attributes:
        form: of the tensor.
        selection: what its draft reads; None where it is not divided.
        step: elements per chunk.
    """

    def __init__(
        self,
        file: WeightsFile,
        form: TensorForm,
        codec: Codec,
        division: Division | None = None,
        selection: Selection | None = None,
        growth_bytes: int = 0,
    ):
        self.form = form
        self.selection = None if selection is None else selection._replace(growth_bytes=growth_bytes)
        self.step = chunk_elements(codec.unit(form))
        self._file, self._division, self._prunes = file, division, codec.prunes
        self._masks: dict[int, np.ndarray] = {}  # packed

    def __call__(self) -> Iterator[Chunk]:
        for first in range(0, self.form.elements, self.step):
            patterns = self._file.read(self.form, first, min(self.step, self.form.elements - first))
            yield Chunk(patterns, self._kept(patterns, first))
            self._file.release()

    def _kept(self, patterns: np.ndarray, first: int) -> np.ndarray | None:
        if self.selection is None or self._division is None or not self._prunes:
            return None
        if first not in self._masks:
            rows = patterns.reshape(-1, self.form.columns)
            self._masks[first] = np.packbits(self._division.keep(self.form, rows, self.selection.kept_per_row))
        return np.unpackbits(self._masks[first], count=patterns.size).view(bool)


class _Told:
    """Reports each byte of a tensor once, however often the tensor is gone through."""

    def __init__(self, name: str, on_bytes: Callable[[int, str], None]):
        self._name, self._on_bytes, self._told = name, on_bytes, 0

    def __call__(self, done: int) -> None:
        if done > self._told:
            self._on_bytes(done - self._told, self._name)
            self._told = done


def _pack_tensor(
    writer: ContainerWriter,
    file: WeightsFile,
    index: int,
    form: TensorForm,
    codec: Codec,
    division: Division | None,
    balance: Balance,
    on_bytes: Callable[[int, str], None],
) -> StoredTensor:
    """Write a tensor by its codec, or as it is where that gains nothing."""
    told, whole = _Told(form.name, on_bytes), None
    if not isinstance(codec, Raw):
        selection = division.selection(form) if division else None
        if selection is not None and selection.codec is not None:
            codec = CODECS[selection.codec]
        pieces = _Pieces(file, form, codec, division, selection, balance.allowed(form))
        tiny = 0 < form.bytes < LEAST_BYTES
        planned = Whole("gain") if tiny else codec.plan(form, pieces, pieces.selection)
        found = planned if isinstance(planned, Whole) else _coded(writer, pieces, index, codec, planned, told, balance)
        if isinstance(found, StoredTensor):
            return found
        whole = found
    if form.bytes < INLINE_BYTES:
        told(form.bytes)
        balance.book(form, form.bytes)
        return inline_tensor(form, index, file.read(form).tobytes(), whole)
    balance.book_raw(form)
    plain = _coded(writer, _Pieces(file, form, Raw()), index, Raw(), {}, told, Balance())
    assert isinstance(plain, StoredTensor)
    return plain._replace(whole=whole)


def _coded(
    writer: ContainerWriter,
    pieces: _Pieces,
    index: int,
    codec: Codec,
    coding: dict[str, Any],
    told: _Told,
    balance: Balance,
) -> StoredTensor | Whole:
    """Write a tensor by this codec; if that turns out to gain nothing, nothing is written and the reason returned."""
    form, place, size = pieces.form, writer.place, CodedSize(pieces.form, codec, balance.allowed(pieces.form))
    given_back = form.in_dtype(codec.gives)
    whole, draft, done = hashlib.sha256(), hashlib.sha256(), 0
    listed: list[dict[str, Section]] = []
    divided = False
    for chunk in pieces():
        sections = codec.encode(coding, form, chunk)
        listed.append({role: writer.add(content) for role, content in sections.items()})
        found = _proved(codec, coding, given_back, chunk, sections)
        whole.update(np.ascontiguousarray(found.target).view(np.uint8).data)
        if found.draft is not found.target:
            divided = True
            draft.update(np.ascontiguousarray(found.draft).view(np.uint8).data)
        done += chunk.patterns.nbytes
        told(done)
        size.add(listed[-1])
        if size.hopeless():
            break
    if not isinstance(codec, Raw) and (reason := size.verdict(coding, listed, writer.place - place - size.stored)):
        writer.rewind(place)
        return reason
    balance.book(form, size.stored + size.listing)
    digests = whole.hexdigest(), (draft if divided else whole).hexdigest()
    return StoredTensor(given_back, index, *digests, codec.name, coding, pieces.step, listed)


def _proved(
    codec: Codec, coding: dict[str, Any], form: TensorForm, chunk: Chunk, sections: dict[str, np.ndarray]
) -> Decoded:
    """What a reader will get from these sections: the target's patterns and the draft's."""
    stored = {role: content.tobytes() for role, content in sections.items()}
    drafted = {role: content for role, content in stored.items() if codec.part(role) == "draft"}
    found = codec.both(coding, form, chunk.patterns.size, drafted, stored)
    if codec.lossless and not np.array_equal(found.target, chunk.patterns):
        raise AssertionError(f"tensor {form.name!r} does not survive the codec {codec.name}; this is a bug in it")
    return found
