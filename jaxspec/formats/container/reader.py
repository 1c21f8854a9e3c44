"""Opens a container, checks everything before it is used, and counts the bytes it reads."""

from __future__ import annotations

import os
import reprlib
import zlib
from pathlib import Path
from types import TracebackType
from typing import Any

from jaxspec.errors import InputError
from jaxspec.formats.container.layout import PRELUDE_BYTES, Section, damaged, parse_directory, read_prelude

__all__ = ["ContainerReader"]


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
