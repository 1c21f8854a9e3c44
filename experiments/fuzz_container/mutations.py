"""Changes to the bytes of a container, checksums left as they were; what damage in storage or transfer does."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from jaxspec.formats.container.layout import PRELUDE_BYTES, compressed, uncompressed, write_prelude

__all__ = [
    "CHANGES",
    "NESTED",
    "Apart",
    "Node",
    "Random",
    "directory_text",
    "flip",
    "mutated",
    "near",
    "overwrite",
    "some",
]


Random = np.random.Generator

#: Numbers that are rarely thought of.
ODD_NUMBERS = [0, -1, 1, 7, 255, 256, 1 << 16, 1 << 31, (1 << 31) - 1, 1 << 32, 1 << 61, 1 << 63, 1 << 64, 10**400]

#: Changes of a case: mostly one, since the first that is noticed hides the others.
CHANGES = [1, 1, 1, 2, 3]


def some(rng: Random, choices: Any) -> Any:
    """One of these."""
    return choices[int(rng.integers(len(choices)))]


def near(rng: Random, number: int) -> int:
    """A number beside this one, far from it, or odd."""
    kind = rng.integers(4)
    if kind == 0:
        return number + int(rng.integers(-3, 4))
    if kind == 1:
        return number * int(rng.integers(2, 70)) if rng.integers(2) else number // int(rng.integers(2, 9))
    return int(rng.integers(0, 1 << 14)) if kind == 2 else some(rng, ODD_NUMBERS)


def _place(rng: Random, content: bytearray) -> int:
    """A place; the prelude more often than its length deserves."""
    return int(rng.integers(min(PRELUDE_BYTES, len(content)) if rng.integers(16) == 0 else len(content)))


def flip(rng: Random, content: bytearray) -> None:
    """One to eight bits."""
    for _ in range(rng.integers(1, 9)):
        content[_place(rng, content)] ^= 1 << int(rng.integers(8))


def overwrite(rng: Random, content: bytearray) -> None:
    """A run of bytes by zeros, ones, noise, or another run."""
    start, length = _place(rng, content), int(rng.integers(1, 200))
    length = min(length, len(content) - start)
    kind = rng.integers(4)
    source = int(rng.integers(len(content) - length + 1))
    runs = bytes(length), b"\xff" * length, rng.bytes(length), bytes(content[source : source + length])
    content[start : start + length] = runs[kind]


def _truncate(rng: Random, content: bytearray) -> None:
    del content[_place(rng, content) if rng.integers(2) else len(content) - int(rng.integers(1, 70)) :]


def _extend(rng: Random, content: bytearray) -> None:
    more = rng.bytes(int(rng.integers(1, 300)))
    content += more if rng.integers(2) else bytes(len(more))


def _insert_or_delete(rng: Random, content: bytearray) -> None:
    start, length = _place(rng, content), int(rng.integers(1, 70))
    content[start : start + int(rng.integers(2)) * length] = rng.bytes(int(rng.integers(2)) * length)


def _swap_blocks(rng: Random, content: bytearray) -> None:
    """Two pieces of 64 bytes, as sections are aligned."""
    blocks = len(content) // 64
    length = 64 * int(rng.integers(1, 9))
    first, second = 64 * int(rng.integers(blocks)), 64 * int(rng.integers(blocks))
    one, other = content[first : first + length], content[second : second + length]
    if len(one) == len(other) == length and abs(first - second) >= length:
        content[first : first + length], content[second : second + length] = other, one


def _prelude_number(rng: Random, content: bytearray) -> None:
    place, width = some(rng, [(8, 4), (12, 4), (16, 8), (24, 8)])
    old = int.from_bytes(content[place : place + width], "little")
    content[place : place + width] = (near(rng, old) % (1 << 8 * width)).to_bytes(width, "little")


_OF_BYTES: list[Callable[[Random, bytearray], None]] = [
    *[flip, overwrite, _swap_blocks] * 3,
    _truncate,
    _extend,
    _insert_or_delete,
    _prelude_number,
]


def mutated(content: bytes, rng: Random) -> tuple[bytes, str]:
    """The bytes with one to three changes, and what was done."""
    changed, names = bytearray(content), []
    for _ in range(some(rng, CHANGES)):
        change = some(rng, _OF_BYTES)
        if len(changed) > PRELUDE_BYTES:
            change(rng, changed)
            names.append(change.__name__.strip("_"))
    return bytes(changed), ", ".join(names)


# A container taken apart, to be changed and put together with checksums that agree.

#: Stands for lists in lists until the directory is text: so deep that Python could not copy them.
NESTED = "nested lists: "


class Node:
    """A value of the directory that can be replaced: `key` of the dict or list `parent`."""

    def __init__(self, parent: Any, key: Any):
        self.parent, self.key = parent, key

    def get(self) -> Any:
        """The value."""
        return self.parent[self.key]

    def set(self, value: Any) -> None:
        """Put another there."""
        self.parent[self.key] = value


class Apart:
    """A container taken apart.

    Attributes:
        body: everything before the directory.
        directory: parsed; after some changes it may be any JSON.
    """

    def __init__(self, content: bytes):
        end = int.from_bytes(content[16:24], "little")
        self.body, self.directory = bytearray(content[:end]), json.loads(directory_text(content))
        self._version = content[8]

    def nodes(self) -> list[Node]:
        """All values below the directory, outer ones first."""
        nodes, level = [], [self.directory]
        while level:
            keys = [
                (inner, key)
                for inner in level
                if isinstance(inner, (dict, list))
                for key in (list(inner) if isinstance(inner, dict) else range(len(inner)))
            ]
            nodes += [Node(inner, key) for inner, key in keys]
            level = [inner[key] for inner, key in keys]
        return nodes

    def sections(self) -> list[list[int]]:
        """Every list [offset, length, CRC-32] that still is one and lies in the file, to be changed in place."""
        values = (node.get() for node in self.nodes())
        return [x for x in values if _is_section(x) and PRELUDE_BYTES <= x[0] <= x[0] + x[1] <= len(self.body)]

    def tensors(self) -> list[dict[str, Any]]:
        """Entries of tensors."""
        listed = self.directory.get("tensors") if isinstance(self.directory, dict) else None
        return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []

    @staticmethod
    def chunks(entry: dict[str, Any]) -> list[dict[str, Any]]:
        """Chunks of a tensor's entry."""
        listed = entry.get("chunks")
        return [chunk for chunk in listed if isinstance(chunk, dict)] if isinstance(listed, list) else []

    def signed(self) -> bytes:
        """The file, its checksums computed anew."""
        for section in self.sections():
            section[2] = zlib.crc32(self.body[section[0] : section[0] + section[1]])
        text = json.dumps(self.directory, separators=(",", ":"))
        text = re.sub(f'"{NESTED}(\\d+)"', lambda match: "[" * int(match[1]) + "]" * int(match[1]), text).encode()
        stored = compressed(text)
        self.body[:PRELUDE_BYTES] = write_prelude(stored, len(self.body), self._version)
        return bytes(self.body) + stored

    def files(self) -> list[dict[str, Any]]:
        """Entries of files of weights whose header still is a text."""
        listed = self.directory.get("files") if isinstance(self.directory, dict) else None
        entries = listed if isinstance(listed, list) else []
        return [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("header"), str)]

    def header(self, file: dict[str, Any]) -> Any:
        """The header of a file as JSON; an empty one where it is none any more."""
        try:
            return json.loads(file["header"])
        except (ValueError, RecursionError):
            return {}

    def set_header(self, file: dict[str, Any], header: Any) -> None:
        """Another header."""
        file["header"] = json.dumps(header)

    def agree(self) -> None:
        """Let the headers list what the directory lists, so that what stands behind that check is met."""
        for index, file in enumerate(self.files()):
            header: dict[str, Any] = {}
            place = 0
            for entry in self.tensors():
                if entry.get("file") == index and type(entry.get("bytes")) is int:
                    span = [place, place + entry["bytes"]]
                    header[str(entry.get("name"))] = {k: entry.get(k) for k in ("dtype", "shape")} | {
                        "data_offsets": span
                    }
                    place = span[1]
            self.set_header(file, header)

    def sign_raw_tensors(self) -> None:
        """Let digests agree with whatever the sections hold now: such values are read, and are right by definition."""
        for entry in self.tensors():
            if entry.get("codec") == "raw":
                digest = hashlib.sha256()
                for where in (chunk.get("bytes") for chunk in self.chunks(entry)):
                    if _is_section(where):
                        digest.update(self.body[max(where[0], 0) : max(where[0] + where[1], 0)])
                entry["sha256"] = entry["draft_sha256"] = digest.hexdigest()


def directory_text(content: bytes) -> bytes:
    """The directory of a container's bytes, uncompressed."""
    end = int.from_bytes(content[16:24], "little")
    return uncompressed(content[end:], content[8], Path("container"))


def _is_section(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and len(value) == 3 and all(type(x) is int for x in value)
