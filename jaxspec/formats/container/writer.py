"""Writes a container section by section, under a temporary name until it is whole."""

from __future__ import annotations

import errno
import os
import zlib
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from jaxspec.errors import InputError
from jaxspec.formats.container.layout import (
    OLDEST_WRITTEN,
    PRELUDE_BYTES,
    Section,
    alignment,
    compressed,
    directory_bytes,
    write_prelude,
)
from jaxspec.partial_files import PartialFiles

__all__ = ["ContainerWriter"]


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
