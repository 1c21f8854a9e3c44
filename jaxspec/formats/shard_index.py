"""The index of a sharded safetensors checkpoint: it says which tensors of which files a network is read from.

Releases hold more than that: a second copy of the weights under other names, an adapter, layers that no index lists. Those are
not read, and `weight_notes` says so.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxspec.errors import InputError, one_line
from jaxspec.partial_files import parse_json

__all__ = [
    "INDEX_FILE",
    "check_file",
    "check_version",
    "json_object",
    "leads_outside",
    "read_index",
    "read_json_object",
    "weight_map_of",
]


# What downloads leave in a folder: links to blobs of a cache, a folder for each version, pointers of git-lfs.

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
        folders = sorted(str(path) for path in versions.iterdir() if path.is_dir()) or [f"{versions}/..."]
        raise InputError(
            f"{folder} is a download cache, which has a folder for each version of its files; give {' or '.join(folders[:3])}"
        )


#: Name of the index of a sharded checkpoint.
INDEX_FILE = "model.safetensors.index.json"


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        InputError: no such file, no JSON, or JSON that is not an object.
    """
    try:
        check_file(path)
        return json_object(path.read_bytes(), path)
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist; a Hugging Face directory has one: fetch it") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); check the path and its permissions") from error


def json_object(text: bytes, path: Path) -> dict[str, Any]:
    """The object that a JSON text is; `path` says where it came from.

    Raises:
        InputError: no JSON, or JSON that is not an object.
    """
    try:
        content = parse_json(text.decode("utf-8"))
    except ValueError as error:
        reason = one_line(error)
        raise InputError(
            f"{path} is no readable JSON ({reason}); it must hold a JSON object: fetch it again"
        ) from error
    if not isinstance(content, dict):
        raise InputError(f"{path} holds a JSON {type(content).__name__}; it must hold an object: fetch it again")
    return content


def read_index(directory: Path) -> dict[str, str]:
    """Tensor name -> name of the shard that holds it.

    Raises:
        InputError: the index is no such map.
    """
    return weight_map_of(read_json_object(directory / INDEX_FILE), directory / INDEX_FILE)


def weight_map_of(content: Mapping[str, Any], index: Path) -> dict[str, str]:
    """`read_index` of an index that is read already, from this place."""
    weight_map = content.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InputError(f"{index} has no weight_map; it must map each tensor to its file: fetch it again")
    for name, file in weight_map.items():
        if not isinstance(file, str) or not re.fullmatch(r"[\w.-]+\.safetensors", file, re.ASCII):
            raise InputError(
                f"{index} puts tensor {name!r} in {file!r}; allowed is the plain name of a .safetensors file: "
                "fetch it again"
            )
    return weight_map
