"""What a container file looks like: a fixed prelude, sections of bytes, and a directory in JSON at the end.

    0   magic "\x89JSPK\r\n\x1a"        8 bytes; a text-mode transfer breaks it
    8   version                     uint32, little-endian like all numbers here
    12  zero                        uint32
    16  offset of the directory     uint64; it ends where the file ends
    24  length of the directory     uint64
    32  SHA-256 of the directory    32 bytes
    64  sections, each at a multiple of 64 bytes, zeros between
    ..  directory: UTF-8 JSON, with offset, length and CRC-32 of every section

The directory comes last so that a file is written in one pass; the prelude is written once more at the end. A file that was
cut anywhere has no directory at its place, and a changed byte fails a checksum.
"""

from __future__ import annotations

import hashlib
import json
import struct as binary
from pathlib import Path
from typing import Any, NamedTuple

from jaxspec.errors import InputError

__all__ = ["ALIGNMENT", "PRELUDE_BYTES", "SUFFIX", "VERSION", "Section", "read_prelude", "write_prelude"]

#: Ending of a container's name.
SUFFIX = ".jspk"

MAGIC = b"\x89JSPK\r\n\x1a"

#: Version of the layout and of the codecs; a reader opens those it knows and no other.
VERSION = 1

#: Length of the prelude; the first section begins there.
PRELUDE_BYTES = 64

#: Sections begin at multiples of this many bytes, so that a memory map of one can be used as an array as it is.
ALIGNMENT = 64

_PRELUDE = binary.Struct("<8sIIQQ32s")


class Section(NamedTuple):
    """Bytes of the file, as the directory lists them."""

    offset: int
    length: int
    crc32: int


class Prelude(NamedTuple):
    """Where the directory lies and what it must be."""

    offset: int
    length: int
    sha256: bytes


def write_prelude(directory: bytes, offset: int) -> bytes:
    """The first 64 bytes of a file whose directory lies at `offset`."""
    return _PRELUDE.pack(MAGIC, VERSION, 0, offset, len(directory), hashlib.sha256(directory).digest())


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
    if version != VERSION:
        raise InputError(
            f"{path} has layout version {version}; this release reads {VERSION}: pack the checkpoint again, or use "
            "the release that wrote it"
        )
    if zero or offset < PRELUDE_BYTES or offset + length != file_bytes:
        raise InputError(damaged(path, f"its directory should end at byte {offset + length}, the file at {file_bytes}"))
    return Prelude(offset, length, digest)


def parse_directory(text: bytes, prelude: Prelude, path: Path) -> dict[str, Any]:
    """The directory, once its checksum agrees.

    Raises:
        InputError: a wrong checksum, or something that is no JSON object.
    """
    if len(text) != prelude.length or hashlib.sha256(text).digest() != prelude.sha256:
        raise InputError(damaged(path, "the checksum of its directory is wrong"))
    try:
        directory = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(damaged(path, f"its directory is no JSON ({' '.join(str(error).split())})")) from error
    if not isinstance(directory, dict):
        raise InputError(damaged(path, "its directory is no JSON object"))
    return directory


def directory_bytes(directory: dict[str, Any]) -> bytes:
    """The directory as it is stored."""
    return json.dumps(directory, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def damaged(path: Path, reason: str) -> str:
    """The one line about a file that cannot be trusted, whatever of it the reason quotes."""
    reason = "".join(character if character.isprintable() else " " for character in reason[:300])
    return f"{path} is a damaged container ({reason}); nothing of it was used: copy or pack it again"
