"""Files that appear whole or not at all."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from jaxspec.partial_files import whole_file

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
