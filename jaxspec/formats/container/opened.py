"""An open container: its tensors as target or as draft, and the small files that came with them."""

from __future__ import annotations

import hashlib
import os
import reprlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from jaxspec.errors import InputError
from jaxspec.formats.container.cassandra_codec import CassandraCodec
from jaxspec.formats.container.codec import Codec, CodecError, Part, Raw
from jaxspec.formats.container.field_codec import FieldCodec, partitions
from jaxspec.formats.container.layout import PRELUDE_BYTES, Section, damaged, parse_directory, read_prelude
from jaxspec.formats.container.slice_codec import SliceCodec
from jaxspec.formats.container.tensors import (
    HeaderError,
    StoredTensor,
    TensorForm,
    header_of_text,
    is_text,
    parse_header,
    parse_tensor,
)
from jaxspec.registries import Registry, lacking
from jaxspec.settings.schemes import OWN_SCHEMES, SCHEME_FACTS

__all__ = ["CODECS", "Container", "ContainerReader", "codec_of", "drafted_bytes", "packed_form"]


# The codecs of tensors by name; which one a scheme has, and what else is said of a scheme, is the registry's.

_HUFFMAN = FieldCodec(
    "huffman",
    partitions(
        {
            "BF16": ("1-8-7", (1,)),
            "F16": ("1-5-10", (1,)),
            # The two low bytes of float32 are zeros where the values were bfloat16 once.
            "F32": ("1-8-7-8-8", (1, 3, 4)),
            "F8_E4M3": ("1-4-3", (1,)),
            "F8_E5M2": ("1-5-2", (1,)),
        }
    ),
)
_HUFFLLM = FieldCodec("huffllm", partitions({"F16": ("1-5-5-5", (1, 2, 3)), "BF16": ("1-4-4-7", (1, 2))}))

_ALL: tuple[Codec, ...] = (
    _HUFFMAN,
    _HUFFLLM,
    CassandraCodec("cassandra1"),
    CassandraCodec("cassandra1-coded", pruned_coded=True),
    CassandraCodec("cassandra1-midpoint", at_midpoint=True),
    *(
        CassandraCodec(facts.name, shared=facts.shared_exponents)
        for facts in OWN_SCHEMES
        if facts.codec == facts.name and facts.shared_exponents
    ),
    SliceCodec("any-precision", "truncation"),
    SliceCodec("bit-slices", "augmentation"),
    Raw(),
)


def _accept(name: str, codec: Any) -> Codec:
    members = "name lossless dtypes gives prunes version unit plan packed_form check encode decode draft part"
    if missing := lacking(codec, members):
        raise ValueError(f"codec {name!r}: {missing}; a codec has the members of `Codec`")
    return codec


#: All codecs, by the name that directories give.
CODECS: Registry[Codec] = Registry("codec", {codec.name: codec for codec in _ALL}, _accept)


def codec_of(scheme_name: str) -> Codec:
    """The codec of the matrices that a scheme divides or codes; other tensors stay as they are.

    Raises:
        InputError: an unknown name, or a scheme that no container can hold.
    """
    facts = SCHEME_FACTS.get(scheme_name)
    if facts is None or facts.codec is None:
        allowed = ", ".join(name for name, known in SCHEME_FACTS.items() if known.packs)
        raise InputError(f"scheme {scheme_name!r} came; allowed are {allowed}: choose one")
    return CODECS[facts.codec]


def drafted_bytes(tensor: StoredTensor) -> int:
    """Bytes of a tensor's sections that a draft reads, all chunks together."""
    codec = CODECS[tensor.codec]
    return sum(length for role, length in tensor.stored_bytes().items() if codec.part(role) == "draft")


def packed_form(tensor: StoredTensor) -> TensorForm:
    """What a tensor was before it was packed; `tensor.form` is what it is given back as."""
    return CODECS[tensor.codec].packed_form(tensor.coding, tensor.form)


class ContainerReader:
    """An open container.

    Attributes:
        path: of the file.
        directory: the parsed JSON; checked for its checksum, not for what it says.
        bytes_read: of the file so far, prelude and directory included.
    """

    def __init__(self, path: str | os.PathLike[str]):
        """Open a file and read its directory.

        Raises:
            InputError: it does not exist, is no container, or is damaged.
        """
        self.path = Path(path)
        try:
            self._file = self.path.open("rb", buffering=0)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise InputError(
                f"{str(path)!r} cannot be opened ({reason}); needed is a container: check the path"
            ) from error
        try:
            self.file_bytes = os.fstat(self._file.fileno()).st_size
            self.bytes_read = 0
            prelude = read_prelude(self._read(0, min(PRELUDE_BYTES, self.file_bytes)), self.file_bytes, self.path)
            self.directory: dict[str, Any] = parse_directory(
                self._read(prelude.offset, prelude.length), prelude, self.path
            )
            self._sections_end = prelude.offset
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> ContainerReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _read(self, offset: int, length: int) -> bytes:
        """`length` bytes; a file that shrank meanwhile is damaged, a folder is no file."""
        parts, left = [], length
        try:
            self._file.seek(offset)
            while left:
                part = self._file.read(left)
                if not part:
                    raise InputError(damaged(self.path, f"it ends {left} bytes early"))
                parts.append(part)
                left -= len(part)
        except OSError as error:
            raise InputError(f"{self.path} cannot be read ({error.strerror}); check the disk and the path") from error
        self.bytes_read += length
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def section(self, listed: Any) -> Section:
        """An entry of the directory as a section that lies within the file.

        Raises:
            InputError: it is no such thing.
        """
        if isinstance(listed, list) and len(listed) == 3 and all(type(x) is int and x >= 0 for x in listed):
            section = Section(*listed)
            if section.offset >= PRELUDE_BYTES and section.offset + section.length <= self._sections_end:
                return section
        raise InputError(damaged(self.path, f"its directory lists a section {reprlib.repr(listed)} outside the file"))

    def read(self, section: Section) -> bytes:
        """The bytes of a section.

        Raises:
            InputError: its checksum is wrong.
        """
        content = self._read(section.offset, section.length)
        if zlib.crc32(content) != section.crc32:
            raise InputError(damaged(self.path, f"the checksum of the section at byte {section.offset} is wrong"))
        return content


class Container:
    """A container file, opened and checked: sections lie in the file and apart, and the directory agrees with the headers.

    Attributes:
        path: of the file.
        scheme: that it was packed with.
        lossless: whether the target is the checkpoint that was packed, bit for bit.
        tensors: name -> entry, in the order of the data.
        files: name and header of each file of weights: its text, or in files of older layouts a section.
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
            self.files: list[tuple[str, str | Section]] = [
                (self._plain_name(entry["name"]), self._header(entry["header"])) for entry in directory["files"]
            ]
            self.beside = {self._plain_name(name): section(where) for name, where in directory["beside"].items()}
            entries = directory["tensors"]
            facts = SCHEME_FACTS.get(self.scheme)
            if facts is None or not facts.packs or not isinstance(entries, list):
                raise ValueError(f"scheme {self.scheme!r} is unknown, or there is no list of tensors")
            if not isinstance(self.options, dict) or not all(map(_is_option, self.options.items())):
                raise ValueError("its options are not names with plain values")
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(damaged(self.path, f"its directory cannot be read ({error!r})")) from error
        self.lossless = facts.lossless
        self.tensors: dict[str, StoredTensor] = {}
        for entry in entries:
            tensor = parse_tensor(entry, len(self.files), section, self.path)
            if tensor.form.name in self.tensors or tensor.codec not in CODECS:
                raise InputError(
                    damaged(self.path, f"tensor {tensor.form.name!r} is listed twice, or by {tensor.codec!r}")
                )
            try:
                CODECS[tensor.codec].check(tensor.coding, tensor.form)
            except CodecError as error:
                raise InputError(damaged(self.path, f"tensor {tensor.form.name!r}: {error}")) from error
            self.tensors[tensor.form.name] = tensor
        self._check_apart()
        self._check_headers()

    def _check_apart(self) -> None:
        """Sections that overlap could make a small file unpack to a large one, or one tensor the copy of another."""
        end = PRELUDE_BYTES
        for section in sorted(where for where in self.sections() if where.length):
            if section.offset < end:
                raise InputError(damaged(self.path, f"its sections overlap at byte {section.offset}"))
            end = section.offset + section.length

    def _check_headers(self) -> None:
        """The files' headers, which unpacking writes word for word, list the directory's tensors, in its order."""
        expected: list[tuple[int, TensorForm]] = []
        for index, (name, _) in enumerate(self.files):
            try:
                expected += [(index, tensor.form) for tensor in parse_header(self.read_header(index))]
            except HeaderError as error:
                raise InputError(damaged(self.path, f"the header of {name!r}: {error}")) from error
        listed = [(tensor.file, tensor.form) for tensor in self.tensors.values()]
        if listed != expected:
            raise InputError(damaged(self.path, _difference(listed, expected)))

    def _header(self, listed: Any) -> str | Section:
        return listed if isinstance(listed, str) else self._reader.section(listed)

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
        return SCHEME_FACTS[self.scheme].has_draft

    def sections(self, part: Part | None = None) -> Iterator[Section]:
        """All sections, or those of one part (`beside` and headers belong to both)."""
        if part is None:
            yield from self.beside.values()
            yield from (header for _, header in self.files if isinstance(header, Section))
        for tensor in self.tensors.values():
            for chunk in tensor.chunks:
                for role, where in chunk.items():
                    if part is None or CODECS[tensor.codec].part(role) == part:
                        yield where

    def read_file(self, name: str) -> bytes | None:
        """A small file that was packed along, None if there is none of this name."""
        return self._reader.read(self.beside[name]) if name in self.beside else None

    def read_header(self, file: int) -> bytes:
        """The header of a file of weights.

        Raises:
            HeaderError: a text that cannot be one.
            InputError: the checksum of its section is wrong.
        """
        header = self.files[file][1]
        return header_of_text(header) if isinstance(header, str) else self._reader.read(header)

    def chunks(self, name: str, part: Part = "target") -> Iterator[np.ndarray]:
        """The patterns of a tensor, piece by piece.

        Args:
            part: "draft" reads the sections of the draft's part and no others.
        Raises:
            InputError: a checksum is wrong, or the sections do not fit the tensor.
        """
        tensor = self.tensors[name]
        if tensor.inline is not None:
            if tensor.form.elements:
                yield np.frombuffer(tensor.inline, tensor.form.pattern_dtype)
            return
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


def _is_option(item: tuple[str, Any]) -> bool:
    """Whether this is a name with a text, a number, a truth or nothing."""
    name, value = item
    return is_text(name) and (value is None or is_text(value) or isinstance(value, (bool, int, float)))


def _difference(listed: list[tuple[int, TensorForm]], expected: list[tuple[int, TensorForm]]) -> str:
    """What sets a directory apart from the headers, in one line; they do differ."""
    in_headers = {form.name: (file, form) for file, form in expected}
    in_directory = {form.name: (file, form) for file, form in listed}
    if absent := [name for name in in_headers if name not in in_directory]:
        return f"tensor {reprlib.repr(absent[0])} is in a header and not in the directory"
    if added := [name for name in in_directory if name not in in_headers]:
        return f"tensor {reprlib.repr(added[0])} is in the directory and in no header"
    for name, (file, form) in in_directory.items():
        if (file, form) != in_headers[name]:
            return f"tensor {reprlib.repr(name)} has another dtype, shape, size or file in the directory than in its header"
    return "its directory lists the tensors in another order than the headers do"
