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
from jaxspec.formats.container.codec import LEAST_BYTES, Balance, Chunk, Codec, CodedSize, Decoded, Raw, Selection
from jaxspec.formats.container.layout import (
    OLDEST_WRITTEN,
    PRELUDE_BYTES,
    SUFFIX,
    Section,
    alignment,
    compressed,
    damaged,
    directory_bytes,
    write_prelude,
)
from jaxspec.formats.container.opened import CODECS, Container, codec_of
from jaxspec.formats.container.source import BESIDE_SUFFIXES, WEIGHTS_SUFFIX, Checkpoint, WeightsFile
from jaxspec.formats.container.tensors import (
    StoredTensor,
    TensorForm,
    Whole,
    chunk_elements,
    inline_tensor,
    with_dtypes,
)
from jaxspec.partial_files import GGUF_SUFFIX, PartialFiles
from jaxspec.settings.schemes import SCHEME_FACTS

__all__ = [
    "INLINE_BYTES",
    "ContainerWriter",
    "DraftSplit",
    "Packed",
    "check_container_output",
    "check_unpacked_files",
    "default_container",
    "default_folder",
    "pack",
    "unpack",
]


# Names of what is written: defaults that keep apart what has different names, and no file over what it is made from.

#: Endings that loaders look for in a folder.
_READ_BY_LOADERS = (WEIGHTS_SUFFIX, *BESIDE_SUFFIXES, ".bin", ".pt", ".pth", ".ckpt")


def default_container(source: str | os.PathLike[str]) -> Path:
    """`NAME.jspk` in the working directory; a single file loses its ending `.safetensors` or `.gguf`, and nothing else is cut.

    Raises:
        InputError: a source without a name, such as the root of a file system.
    """
    source = Path(source)
    name = _name_of(source.parent if source.name.endswith(".index.json") and not os.path.isdir(source) else source)
    return Path(
        (name if os.path.isdir(source) else name.removesuffix(WEIGHTS_SUFFIX).removesuffix(GGUF_SUFFIX)) + SUFFIX
    )


def default_folder(container: str | os.PathLike[str]) -> Path:
    """`NAME` in the working directory, of `NAME.jspk`.

    Raises:
        InputError: the container has another ending, so that its own name would be left.
    """
    container = Path(container)
    name = _name_of(container).removesuffix(SUFFIX)
    if not name or name == container.name:
        raise InputError(
            f"{container} does not end in {SUFFIX}, so that no name is left for a folder: give one with --out"
        )
    return Path(name)


def _name_of(path: Path) -> str:
    """The last part of a path; of `.` and `..` that of the folder they stand for."""
    name = path.name if path.name not in ("", "..") else path.resolve().name
    if not name:
        raise InputError(f"{str(path)!r} has no name to call the result by: give one with --out")
    return name


def check_container_output(out: str | os.PathLike[str], checkpoint: Checkpoint) -> Path:
    """Where a container may be written: not over a file of its checkpoint, nor where a loader would take it for one.

    Args:
        out: as the user gave it; a slash at its end names a folder.
    Returns:
        the path.
    Raises:
        InputError: it may not, whether or not files are to be replaced.
    """
    given, path = os.fspath(out), Path(out)
    own = [*(file.path for file in checkpoint.files), *(checkpoint.folder / name for name in checkpoint.beside)]
    if (mine := _same(path, own)) is not None:
        raise InputError(
            f"{given!r} is {mine}, which is being packed; give another -o: a container does not replace its source"
        )
    if path.name.endswith(WEIGHTS_SUFFIX):
        raise InputError(f"{given!r} would look like a checkpoint; a container ends in {SUFFIX}: give another -o")
    if path.name.endswith(_READ_BY_LOADERS) and _same(path.parent, [checkpoint.folder]) is not None:
        raise InputError(
            f"{given!r} would be taken for a file of the checkpoint beside it; a container ends in {SUFFIX}"
        )
    if given.endswith(("/", os.sep)) and not os.path.isdir(path):
        raise InputError(f"{given!r} names a folder; give the name of a file as -o, such as {path.name}{SUFFIX}")
    return path


def check_unpacked_files(files: list[Path], container: Path) -> None:
    """No file that is unpacked may be the container.

    Raises:
        InputError: one is, whether or not files are to be replaced.
    """
    if (mine := _same(container, files)) is not None:
        raise InputError(
            f"{mine} is the container {container}; give another --out: it would be replaced by its content"
        )


def _same(path: Path, others: list[Path]) -> Path | None:
    """The first of these that is the same file, by whatever name or link."""
    for other in others:
        try:
            if os.path.samefile(path, other):
                return other
        except (OSError, ValueError):
            if os.path.abspath(path) == os.path.abspath(other):
                return other
    return None


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


class DraftSplit(Protocol):
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
    split: DraftSplit | None = None,
    options: dict[str, Any] | None = None,
    on_bytes: Callable[[int, str], None] = lambda count, name: None,
) -> Packed:
    """Write a container, whole or not at all.

    Tensors are read from a memory map and written in pieces, so that no tensor is ever held whole. Each piece is decoded
    again and compared before it counts as written. A tensor that gains nothing is written once more, as it is; a short one
    stands in the directory, where it needs no digest, checksum or place of its own.

    Args:
        split: for schemes with a draft.
        options: noted in the container.
        on_bytes: called after each piece with its bytes and its tensor's name; every byte counts once.
    Raises:
        InputError: `out` is part of the checkpoint, or cannot be written; an unknown scheme.
    """
    codec = codec_of(scheme_name)
    place = check_container_output(out, checkpoint)
    entries, balance = list[StoredTensor](), Balance()
    chosen = split if SCHEME_FACTS[scheme_name].has_draft else None
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
        split: DraftSplit | None = None,
        selection: Selection | None = None,
        growth_bytes: int = 0,
    ):
        self.form = form
        self.selection = None if selection is None else selection._replace(growth_bytes=growth_bytes)
        self.step = chunk_elements(codec.unit(form))
        self._file, self._split, self._prunes = file, split, codec.prunes
        self._masks: dict[int, np.ndarray] = {}  # packed

    def __call__(self) -> Iterator[Chunk]:
        for first in range(0, self.form.elements, self.step):
            patterns = self._file.read(self.form, first, min(self.step, self.form.elements - first))
            yield Chunk(patterns, self._kept(patterns, first))
            self._file.release()

    def _kept(self, patterns: np.ndarray, first: int) -> np.ndarray | None:
        if self.selection is None or self._split is None or not self._prunes:
            return None
        if first not in self._masks:
            rows = patterns.reshape(-1, self.form.columns)
            self._masks[first] = np.packbits(self._split.keep(self.form, rows, self.selection.kept_per_row))
        return np.unpackbits(self._masks[first], count=patterns.size).view(bool)


class _BytesProgress:
    """Reports each byte of a tensor once, however often the tensor is gone through."""

    def __init__(self, name: str, on_bytes: Callable[[int, str], None]):
        self._name, self._on_bytes, self._reported = name, on_bytes, 0

    def __call__(self, done: int) -> None:
        if done > self._reported:
            self._on_bytes(done - self._reported, self._name)
            self._reported = done


def _pack_tensor(
    writer: ContainerWriter,
    file: WeightsFile,
    index: int,
    form: TensorForm,
    codec: Codec,
    split: DraftSplit | None,
    balance: Balance,
    on_bytes: Callable[[int, str], None],
) -> StoredTensor:
    """Write a tensor by its codec, or as it is where that gains nothing."""
    progress, whole = _BytesProgress(form.name, on_bytes), None
    if not isinstance(codec, Raw):
        selection = split.selection(form) if split else None
        if selection is not None and selection.codec is not None:
            codec = CODECS[selection.codec]
        pieces = _Pieces(file, form, codec, split, selection, balance.allowed(form))
        tiny = 0 < form.bytes < LEAST_BYTES
        planned = Whole("gain") if tiny else codec.plan(form, pieces, pieces.selection)
        outcome = (
            planned if isinstance(planned, Whole) else _coded(writer, pieces, index, codec, planned, progress, balance)
        )
        if isinstance(outcome, StoredTensor):
            return outcome
        whole = outcome
    if form.bytes < INLINE_BYTES:
        progress(form.bytes)
        balance.book(form, form.bytes)
        return inline_tensor(form, index, file.read(form).tobytes(), whole)
    balance.book_raw(form)
    plain = _coded(writer, _Pieces(file, form, Raw()), index, Raw(), {}, progress, Balance())
    assert isinstance(plain, StoredTensor)
    return plain._replace(whole=whole)


def _coded(
    writer: ContainerWriter,
    pieces: _Pieces,
    index: int,
    codec: Codec,
    coding: dict[str, Any],
    progress: _BytesProgress,
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
        read = _proved(codec, coding, given_back, chunk, sections)
        whole.update(np.ascontiguousarray(read.target).view(np.uint8).data)
        if read.draft is not read.target:
            divided = True
            draft.update(np.ascontiguousarray(read.draft).view(np.uint8).data)
        done += chunk.patterns.nbytes
        progress(done)
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
    read = codec.both(coding, form, chunk.patterns.size, drafted, stored)
    if codec.lossless and not np.array_equal(read.target, chunk.patterns):
        raise AssertionError(f"tensor {form.name!r} does not survive the codec {codec.name}; this is a bug in it")
    return read


# Unpacks a container into the files that were packed, byte for byte where the scheme is lossless.


def unpack(
    container: Container,
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    on_bytes: Callable[[int, str], None] = lambda count, name: None,
) -> list[Path]:
    """Write the checkpoint, each file whole or none at all: all are written beside their names, then renamed.

    Args:
        out: a folder; or, if it ends in .safetensors and the container holds one file of weights, that file alone.
        force: replace files that are there.
        on_bytes: called after each piece with its bytes and its tensor's name.
    Returns:
        the files written.
    Raises:
        InputError: the container is damaged, a file is there already, or one would replace the container itself.
    """
    out = Path(out)
    single = out.suffix == ".safetensors"
    if single and len(container.files) != 1:
        raise InputError(f"{container.path} holds {len(container.files)} files of weights; give a folder as --out")
    folder = out.parent if single else out
    weights = [out] if single else [folder / name for name, _ in container.files]
    others = [] if single else list(container.beside)
    targets = weights + [folder / name for name in others]
    if len(set(targets)) != len(targets):
        raise InputError(damaged(container.path, "two of its files have one name"))
    check_unpacked_files(targets, container.path)
    if not force and (there := [path for path in targets if os.path.exists(path)]):
        raise InputError(f"{there[0]} is there already; give another --out, or --force to replace it")
    if folders := [path for path in targets if os.path.isdir(path)]:
        raise InputError(f"{folders[0]} is a folder, where a file would be written; give another --out")
    with PartialFiles() as files:
        try:
            files.make_folder(folder)
        except OSError as error:
            raise InputError(f"{folder} cannot be made a folder ({error.strerror}); give another --out") from error
        for index, path in enumerate(weights):
            with files.add(path).open("wb") as file:
                _write_weights(container, index, file, on_bytes)
        for name in others:
            files.add(folder / name).write_bytes(container.read_file(name) or b"")
        files.commit()
    return targets


def _write_weights(container: Container, index: int, file: BinaryIO, on_bytes: Callable[[int, str], None]) -> None:
    """Header, then the tensors in the order of their data, which is the directory's."""
    file.write(container.read_header(index))
    for name, tensor in container.tensors.items():
        if tensor.file != index:
            continue
        for patterns in container.chunks(name):
            file.write(np.ascontiguousarray(patterns).view(np.uint8).data)
            on_bytes(patterns.nbytes, name)
