"""What downloads leave in a folder: links to blobs of a cache, a folder for each version, pointers of git-lfs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from jaxspec.errors import InputError

__all__ = ["check_file", "check_version", "leads_outside"]

#: Begins each pointer that git leaves in the place of a large file, which git-lfs then fetches.
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"


def check_file(path: Path) -> None:
    """A file of a checkpoint is neither a folder, nor a link to a file that is gone, nor a pointer of git-lfs.

    It would be left out, or read as something else, without a word. A file that does not exist passes.

    Raises:
        InputError: it is.
    """
    if os.path.islink(path) and not os.path.exists(path):
        raise InputError(
            f"{path} is a link to {os.readlink(path)!r}, which is not there, and without it the network may be another one: "
            "fetch the file again, or remove the link"
        )
    if os.path.isdir(path):
        raise InputError(
            f"{path} is a folder where a file belongs, and without the file the network may be another one: fetch the file, or "
            "remove the folder"
        )
    pointer = False
    with contextlib.suppress(OSError, ValueError), path.open("rb") as file:
        pointer = file.read(len(_LFS_POINTER)) == _LFS_POINTER
    if pointer:
        raise InputError(
            f"{path} is a pointer of git-lfs, not the file that it stands for: fetch the files with `git lfs pull`"
        )


def leads_outside(path: Path) -> bool:
    """Whether a file is a link out of its folder, and not to a blob of the download cache that the folder belongs to."""
    folder = Path(os.path.realpath(path.parent))
    blobs = [parent.parent / "blobs" for parent in folder.parents if parent.name == "snapshots"]
    return not any(Path(os.path.realpath(path)).is_relative_to(place) for place in (folder, *blobs))


def check_version(folder: Path) -> None:
    """A folder is not the cache of a whole repository, which has a folder of files for each version.

    Raises:
        InputError: it is.
    """
    versions = folder / "snapshots"
    if os.path.isdir(versions) and not os.path.exists(folder / "config.json"):
        found = sorted(str(path) for path in versions.iterdir() if path.is_dir()) or [f"{versions}/..."]
        raise InputError(
            f"{folder} is a download cache, which has a folder for each version of its files; give {' or '.join(found[:3])}"
        )
