"""The index of a sharded safetensors checkpoint, and what must hold between it and the files beside it.

Index and shards come from one checkpoint, or the network is another one: each tensor stands in the index and in the shard that
the index names, and the folder holds no other weights. Whatever disagrees is an error, since it would be left out, or
exchanged, without a word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxspec.errors import InputError, one_line
from jaxspec.files import parse_json
from jaxspec.formats.hub_cache import check_file

__all__ = ["INDEX_FILE", "check_all_listed", "check_same_tensors", "json_object", "read_index", "read_json_object"]

#: Name of the index of a sharded checkpoint.
INDEX_FILE = "model.safetensors.index.json"


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        InputError: no such file, no JSON, or JSON that is not an object.
    """
    try:
        return json_object(path.read_bytes(), path)
    except FileNotFoundError as error:
        check_file(path)
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
        InputError: the index is no such map, or the folder holds weights that it does not list.
    """
    index = directory / INDEX_FILE
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InputError(f"{index} has no weight_map; it must map each tensor to its file: fetch it again")
    for name, file in weight_map.items():
        if not isinstance(file, str) or not re.fullmatch(r"[\w.-]+\.safetensors", file, re.ASCII):
            raise InputError(
                f"{index} puts tensor {name!r} in {file!r}; allowed is the plain name of a .safetensors file: "
                "fetch it again"
            )
    check_all_listed(directory, weight_map)
    return weight_map


def check_all_listed(directory: Path, weight_map: Mapping[str, str]) -> None:
    """The folder holds no weights beside the shards of its index.

    Whether such a file belongs to the network (a lost line of the index, two downloads in one folder, an adapter) cannot be
    told from its name.

    Raises:
        InputError: it does.
    """
    listed = set(weight_map.values())
    found = (path.name for path in directory.iterdir() if path.suffix == ".safetensors")
    extra = sorted(name for name in found if name not in listed and not name.startswith("."))
    if extra:
        more = f" and {len(extra) - 1} more" if len(extra) > 1 else ""
        raise InputError(
            f"{directory} holds {extra[0]!r}{more}, which {INDEX_FILE} does not list; every .safetensors file must be one of "
            "its shards: fetch the index again, or move the file out of the folder"
        )


def check_same_tensors(directory: Path, weight_map: Mapping[str, str], stored: Mapping[str, str]) -> None:
    """Index and shards hold the same tensors at the same places.

    Args:
        stored: tensor name -> name of the file that holds it.
    Raises:
        InputError: a tensor of the index is not in its shard, or one of a shard not in the index.
    """
    for name, file in weight_map.items():
        if stored.get(name) != file:
            raise InputError(
                f"{directory / INDEX_FILE} names tensor {name!r} in {file}, which lacks it; index and shards "
                "must come from one checkpoint: fetch both again"
            )
    extra = sorted(set(stored) - set(weight_map))
    if extra:
        more = f" and {len(extra) - 1} more" if len(extra) > 1 else ""
        raise InputError(
            f"{directory / stored[extra[0]]} holds tensor {extra[0]!r}{more}, which {INDEX_FILE} does not list; index and "
            "shards must come from one checkpoint: fetch both again"
        )
