"""A container taken apart, to be changed and put together with checksums that agree."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from pathlib import Path
from typing import Any, TypeGuard

from jaxspec.formats.container.layout import PRELUDE_BYTES, compressed, uncompressed, write_prelude

__all__ = ["NESTED", "Apart", "Node", "directory_text"]

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
        found, level = [], [self.directory]
        while level:
            keys = [
                (inner, key)
                for inner in level
                if isinstance(inner, (dict, list))
                for key in (list(inner) if isinstance(inner, dict) else range(len(inner)))
            ]
            found += [Node(inner, key) for inner, key in keys]
            level = [inner[key] for inner, key in keys]
        return found

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
        text = re.sub(f'"{NESTED}(\\d+)"', lambda found: "[" * int(found[1]) + "]" * int(found[1]), text).encode()
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
