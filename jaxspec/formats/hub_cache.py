"""What a download cache of Hugging Face has and other folders have not: links to blobs, and a folder for each version."""

from __future__ import annotations

import os
from pathlib import Path

from jaxspec.errors import InputError

__all__ = ["check_file", "check_version"]


def check_file(path: Path) -> None:
    """A file of a checkpoint is neither a folder nor a link to a file that is gone; it would be left out without a word.

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
