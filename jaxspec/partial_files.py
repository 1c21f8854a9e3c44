"""Files that appear whole or not at all, also several together; and the removal of what killed processes left of them.

A file is written beside its name as `.NAME.PID.RANDOM.part`, under a lock that the operating system frees when the process
ends, however it ends. The next one that writes the same name removes parts that nobody holds. Nobody can lay a link in
its place beforehand, and it is on the disk before it gets its name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import itertools
import json
import math
import os
import re
import secrets
import stat
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from jaxspec.cleanup import PENDING

__all__ = [
    "CONTAINER_SUFFIX",
    "GGUF_SUFFIX",
    "PartialFiles",
    "as_stored",
    "parse_json",
    "part_of",
    "plain",
    "read_json",
    "read_toml_beside",
    "remove_leftovers",
    "sync_folder",
    "to_json",
    "whole_file",
    "write_bytes",
    "write_text",
]


#: On a file system without locks, a part is left alone for this long after its last change.
_OLD_S = 24 * 3600.0

#: Bytes of a file's name that its part repeats: file systems allow 255, and the rest of the part's name takes up to 40.
_NAME_BYTES = 200

# Earlier versions wrote the host in front of the random digits, or neither.
_PART = re.compile(r"\.(?P<name>.+)\.\d+(\.[0-9a-f-]+)?\.part", re.DOTALL)

_STANDARD = (("stdout",), ("stderr",), ("fd",))


class PartialFiles:
    """Files of which either all get their names, by `commit`, or none; for use in a `with` block."""

    def __init__(self) -> None:
        self._parts: dict[Path, tuple[Path, int]] = {}
        self._made: list[Path] = []
        PENDING.begin(self, self.discard)

    def __enter__(self) -> PartialFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    def add(self, path: Path) -> Path:
        """An empty part to write `path` into; its folder is made if need be, dead parts of the same name are removed.

        Raises:
            OSError: no file can be written there.
        """
        with PENDING.lock:
            self.make_folder(path.parent)
            with contextlib.suppress(FileNotFoundError):
                os.lstat(path)  # a name that is too long fails now and not when the work is done
            remove_leftovers(path.parent, names={path.name})
            self._parts[path] = _create_locked(path)
        return self._parts[path][0]

    def make_folder(self, folder: Path) -> None:
        """Make a folder, and those above it, which `discard` removes again.

        Raises:
            OSError: it cannot be made.
        """
        with PENDING.lock:  # an interrupt falls before or after that, never between noting a folder and making it
            missing = itertools.takewhile(lambda path: not os.path.exists(path), (folder, *folder.parents))
            self._made += list(missing)[::-1]
            folder.mkdir(parents=True, exist_ok=True)

    def commit(self) -> None:
        """Give every file its name, in the order in which they were added, once all of it is on the disk.

        Raises:
            OSError: the disk did not take it.
        """
        for _, descriptor in self._parts.values():
            _sync(descriptor)
        folders = {path.parent for path in self._parts}
        with PENDING.lock:
            for path, (part, descriptor) in list(self._parts.items()):
                os.replace(part, path)
                os.close(descriptor)
                del self._parts[path]
                PENDING.written(path)
            self._made.clear()
            PENDING.end(self)
        for folder in folders:
            sync_folder(folder)

    def discard(self) -> None:
        """Remove the parts that have no name yet, and the folders made for them; does nothing after `commit`."""
        with PENDING.lock:
            while self._parts:
                _, (part, descriptor) = self._parts.popitem()
                with contextlib.suppress(OSError):
                    part.unlink()
                os.close(descriptor)
            while self._made:
                with contextlib.suppress(OSError):  # somebody else put something there
                    self._made.pop().rmdir()
            PENDING.end(self)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A part to write in the block; it gets the name `path` at its end, and is removed where the block fails.

    What is no regular file, such as /dev/stdout or a pipe, cannot be replaced: it is written as it is. A refusal to write gets
    the name of the file, which the operating system does not tell.
    """
    if _is_special(path):
        yield path
        return
    with PartialFiles() as files:
        part = files.add(path)
        try:
            yield part
        except OSError as error:
            if error.errno is not None and error.filename is None:
                error.filename = str(path)
            raise
        files.commit()


def part_of(name: str) -> str:
    """The name itself, or where it is long, its beginning and a digest."""
    raw = os.fsencode(name)
    if len(raw) <= _NAME_BYTES:
        return name
    digest = hashlib.sha256(raw).hexdigest()[:16]
    return f"{raw[: _NAME_BYTES - 17].decode('utf-8', 'ignore')}-{digest}"


def remove_leftovers(folder: Path, *, names: set[str] | None = None) -> None:
    """Remove parts that no process holds.

    Args:
        names: of the files whose parts are looked for; None: all, for folders that are ours alone.
    """
    wanted = None if names is None else {part_of(name) for name in names}
    with contextlib.suppress(OSError):
        for entry in os.listdir(folder):
            match = _PART.fullmatch(entry)
            if match and (wanted is None or match["name"] in wanted):
                with contextlib.suppress(OSError):  # of another user, or gone already
                    _remove_if_dead(folder / entry)


def _remove_if_dead(part: Path) -> None:
    descriptor = os.open(part, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        state = os.fstat(descriptor)
        dead = stat.S_ISREG(state.st_mode)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            dead = False  # its process lives
        except OSError:  # a file system without locks
            dead = dead and time.time() - state.st_mtime > _OLD_S
        if dead:
            part.unlink()
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where its file system does so."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot
            raise


def _create_locked(path: Path) -> tuple[Path, int]:
    """A new, empty file beside a path, and a descriptor that holds its lock as long as it is open."""
    while True:
        part = path.with_name(f".{part_of(path.name)}.{os.getpid()}.{secrets.token_hex(8)}.part")
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Another process may have taken the file for a dead one before it was locked.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.stat(part), os.fstat(descriptor)):
                    return part, descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_special(path: Path) -> bool:
    """Whether there is something that is neither a regular file nor a folder, perhaps behind links."""
    # /dev/stdout is a link to whatever the shell made of it, and must never be replaced even where that is a file.
    if path.parts[:2] == ("/", "proc") or (path.parts[:2] == ("/", "dev") and path.parts[2:3] in _STANDARD):
        return True
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


# Files that appear whole or not at all.

#: Of the names of containers.
CONTAINER_SUFFIX = ".jspk"

#: Of the names of files that llama.cpp reads.
GGUF_SUFFIX = ".gguf"


def write_text(path: Path, text: str) -> None:
    """Write beside the target, then rename over it."""
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")


def write_bytes(path: Path, content: bytes) -> None:
    """Write beside the target, then rename over it."""
    with whole_file(path) as part:
        part.write_bytes(content)


def read_json(path: str | Path) -> Any:
    """What a file of JSON holds.

    Raises:
        OSError: it cannot be read. ValueError: it is not UTF-8, not JSON, or nested deeper than Python goes.
    """
    return parse_json(Path(path).read_text(encoding="utf-8"))


@functools.cache
def read_toml_beside(module: str, name: str) -> dict[str, Any]:
    """What a file of TOML beside a module of this package holds. Args: module: its `__file__`."""
    return tomllib.loads(Path(module).with_name(name).read_text(encoding="utf-8"))


def parse_json(text: str) -> Any:
    """What a text of JSON holds. Raises ValueError: see `read_json`."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def plain(value: Any) -> Any:
    """The value in JSON's own types: arrays as lists, NaN and infinities as null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    if hasattr(value, "__array__"):
        return plain(np.asarray(value).tolist())
    return value


def as_stored(value: Any) -> Any:
    """The value as a file of JSON gives it back: `plain`, with the keys of every table sorted."""
    return parse_json(to_json(value))


def to_json(value: Any) -> str:
    """Sorted keys, two spaces, a final newline."""
    return json.dumps(plain(value), sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
