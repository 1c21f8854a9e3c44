"""The index of a sharded safetensors checkpoint: it says which tensors of which files a network is read from.

Releases hold more than that: a second copy of the weights under other names, an adapter, layers that no index lists. Those are
not read, and `weight_notes` says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxspec.errors import InputError, one_line
from jaxspec.files import parse_json
from jaxspec.formats.hub_cache import check_file

__all__ = ["INDEX_FILE", "json_object", "read_index", "read_json_object", "weight_map_of"]

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
