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


def write_text(path: Path, text: str) -> None:
    """Write beside the target, then rename over it."""
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")


def write_bytes(path: Path, content: bytes) -> None:
    """Write beside the target, then rename over it."""
    with whole_file(path) as part:
        part.write_bytes(content)


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


def to_json(value: Any) -> str:
    """Sorted keys, two spaces, a final newline."""
    return json.dumps(plain(value), sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
