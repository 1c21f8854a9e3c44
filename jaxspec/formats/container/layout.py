"""What a container file looks like: a fixed prelude, sections of bytes, and a directory at the end.

    0   magic "\x89JSPK\r\n\x1a"        8 bytes; a text-mode transfer breaks it
    8   version                     uint32, little-endian like all numbers here
    12  zero                        uint32
    16  offset of the directory     uint64; it ends where the file ends
    24  length of the directory     uint64
    32  SHA-256 of the directory    32 bytes
    64  sections, zeros between: at multiples of 64 bytes, those of less than 4096 bytes at multiples of 8
    ..  directory: UTF-8 JSON, compressed (a raw LZMA2 stream, zeros behind it: see `compressed`), with offset, length and
        CRC-32 of every section, the headers of the files of weights, and short tensors that no codec makes shorter

The directory comes last so that a file is written in one pass; the prelude is written once more at the end. A file that was
cut anywhere has no directory at its place, and a changed byte fails a checksum. Version 2 compresses the directory with zlib
and keeps headers and all tensors in sections; version 1 has the directory as plain JSON and all sections at multiples of 64
bytes. Both are read and no longer written. Version 3 is written wherever its readers know all codecs; version 4 is that of
containers with tensors that are given back in another type than they were packed in, under headers that say so.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import struct as binary
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from jaxspec.errors import InputError, one_line
from jaxspec.partial_files import CONTAINER_SUFFIX, parse_json

__all__ = [
    "OLDEST_WRITTEN",
    "PRELUDE_BYTES",
    "READ_VERSIONS",
    "SUFFIX",
    "VERSION",
    "Section",
    "alignment",
    "compressed",
    "directory_bytes",
    "read_prelude",
    "uncompressed",
    "write_prelude",
]

#: Ending of a container's name.
SUFFIX = CONTAINER_SUFFIX

MAGIC = b"\x89JSPK\r\n\x1a"

#: Newest version of the layout and of the codecs that is written.
VERSION = 4
#: Oldest version that is written: a container has the oldest one that knows its codecs.
OLDEST_WRITTEN = 3
#: Versions that are read; a reader opens no other.
READ_VERSIONS = (1, 2, 3, 4)

#: Length of the prelude; the first section begins there.
PRELUDE_BYTES = 64

#: Sections begin at multiples of this many bytes, so that a memory map of one can be used as an array as it is. Short ones need
#: no more than their largest number; of many tiny tensors the zeros between them were half of the file.
_ALIGNMENT = 64
_SHORT_ALIGNMENT = 8
_SHORT_BYTES = 4096

#: A directory is at most this many times as long as it is stored, and a bit, or a small file would claim all memory.
_MOST_EXPANSION = 16
_EXPANSION_FREE_BYTES = 1 << 20

#: How far back LZMA looks for what it repeats: over the whole directory, so that names cost their length once, not twice.
_LEAST_WINDOW, _MOST_WINDOW = 1 << 12, 1 << 26

_PRELUDE = binary.Struct("<8sIIQQ32s")


class Section(NamedTuple):
    """Bytes of the file, as the directory lists them."""

    offset: int
    length: int
    crc32: int


class Prelude(NamedTuple):
    """Where the directory lies and what it must be."""

    version: int
    offset: int
    length: int
    sha256: bytes


def alignment(length: int) -> int:
    """A section of `length` bytes begins at a multiple of this."""
    return _ALIGNMENT if length >= _SHORT_BYTES else _SHORT_ALIGNMENT


def write_prelude(stored: bytes, offset: int, version: int = OLDEST_WRITTEN) -> bytes:
    """The first 64 bytes of a file whose directory, as it is stored, lies at `offset`."""
    return _PRELUDE.pack(MAGIC, version, 0, offset, len(stored), hashlib.sha256(stored).digest())


def read_prelude(head: bytes, file_bytes: int, path: Path) -> Prelude:
    """Read the first bytes of a file.

    Raises:
        InputError: no container, another version, or a file that was cut or changed.
    """
    if not head.startswith(MAGIC):
        raise InputError(f"{path} is no container: it does not begin as one; make one with: jaxspec pack")
    if len(head) < PRELUDE_BYTES:
        raise InputError(damaged(path, f"it ends after {len(head)} bytes"))
    _, version, zero, offset, length, digest = _PRELUDE.unpack(head[:PRELUDE_BYTES])
    if version not in READ_VERSIONS:
        raise InputError(
            f"{path} has layout version {version}; this release reads {READ_VERSIONS[0]} to {READ_VERSIONS[-1]}: pack the "
            "checkpoint again, or use the release that wrote it"
        )
    if zero or offset < PRELUDE_BYTES or offset + length != file_bytes:
        raise InputError(damaged(path, f"its directory should end at byte {offset + length}, the file at {file_bytes}"))
    return Prelude(version, offset, length, digest)


def parse_directory(text: bytes, prelude: Prelude, path: Path) -> dict[str, Any]:
    """The directory, once its checksum agrees.

    Raises:
        InputError: a wrong checksum, something that cannot be uncompressed, or that is no JSON object.
    """
    if len(text) != prelude.length or hashlib.sha256(text).digest() != prelude.sha256:
        raise InputError(damaged(path, "the checksum of its directory is wrong"))
    text = uncompressed(text, prelude.version, path)
    try:
        directory = parse_json(text.decode("utf-8"))
    except ValueError as error:
        raise InputError(damaged(path, f"its directory is no JSON ({one_line(error)})")) from error
    if not isinstance(directory, dict):
        raise InputError(damaged(path, "its directory is no JSON object"))
    return directory


def uncompressed(stored: bytes, version: int, path: Path) -> bytes:
    """A directory's text from what is stored of it.

    Raises:
        InputError: it is not one compressed text, or a longer one than readers make room for.
    """
    if version == 1:
        return stored
    most = _MOST_EXPANSION * len(stored) + _EXPANSION_FREE_BYTES
    window = [{"id": lzma.FILTER_LZMA2, "dict_size": _window(most)}]
    stream = zlib.decompressobj() if version == 2 else lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=window)
    try:
        text = stream.decompress(stored, most + 1)
    except (zlib.error, lzma.LZMAError) as error:
        raise InputError(damaged(path, f"its directory cannot be uncompressed ({error})")) from error
    rest = stream.unused_data
    zeros = 0 if version == 2 else _padding(len(stored) - len(rest), len(text))
    if not stream.eof or len(text) > most or rest != bytes(zeros):
        raise InputError(damaged(path, f"its directory is not one compressed text of at most {most} bytes"))
    return text


def compressed(text: bytes) -> bytes:
    """A directory's text as it is stored: one LZMA2 stream, and zeros where it would be longer than readers make room for."""
    window = {"id": lzma.FILTER_LZMA2, "preset": lzma.PRESET_DEFAULT, "dict_size": _window(len(text))}
    stream = lzma.compress(text, lzma.FORMAT_RAW, filters=[window])
    return stream + bytes(_padding(len(stream), len(text)))


def _window(length: int) -> int:
    """Bytes that LZMA keeps of a text that is at most so long."""
    return min(max(length, _LEAST_WINDOW), _MOST_WINDOW)


def _padding(stream_bytes: int, text_bytes: int) -> int:
    """Zeros behind a stream."""
    return max(0, -(-(text_bytes - _EXPANSION_FREE_BYTES) // _MOST_EXPANSION) - stream_bytes)


def directory_bytes(directory: dict[str, Any]) -> bytes:
    """The directory as text."""
    return json.dumps(directory, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def damaged(path: Path, reason: str) -> str:
    """The one line about a file that cannot be trusted, whatever of it the reason quotes."""
    reason = "".join(character if character.isprintable() else " " for character in reason[:300])
    return f"{path} is a damaged container ({reason}); nothing of it was used: copy or pack it again"
