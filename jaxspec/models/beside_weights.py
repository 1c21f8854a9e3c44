"""Small files beside the weights of a checkpoint: in its directory, packed along in a container, or made of a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jaxspec.errors import InputError
from jaxspec.formats.container import SUFFIX, Container
from jaxspec.formats.shard_index import json_object
from jaxspec.models.gguf import is_gguf, open_gguf

__all__ = ["json_beside", "read_beside"]


def read_beside(place: Path, name: str) -> bytes | None:
    """The content of a file beside the weights, None if there is none.

    Args:
        place: directory, container or GGUF file.
    Raises:
        InputError: the container is damaged, or the file cannot be read.
    """
    if str(place).endswith(SUFFIX) and place.is_file():
        with Container(place) as container:
            return container.read_file(name)
    if is_gguf(place):
        return open_gguf(place).beside.get(name)
    path = place / name
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); check its permissions") from error


def json_beside(place: Path, name: str) -> dict[str, Any]:
    """The object in a JSON file beside the weights, an empty one if there is no such file.

    Raises:
        InputError: see `read_beside`; it holds something else than a JSON object.
    """
    content = read_beside(place, name)
    return {} if content is None else json_object(content, place / name)
