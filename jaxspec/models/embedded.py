"""Models by name: the small trained network that ships with the package, or any Hugging Face directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from jaxspec.errors import InputError
from jaxspec.formats.container import SUFFIX, Part
from jaxspec.models.hf_load import LoadedModel, load_container, load_directory

#: The name that stands for the network of this package, wherever a model is asked for.
EMBEDDED_NAME = "embedded"

_FILES = ("config.json", "model.safetensors")


def embedded_directory() -> Path:
    """Folder of the embedded network: config.json, model.safetensors and its model card, README.md.

    Raises:
        InputError: the weights are not part of this installation.
    """
    directory = Path(__file__).resolve().parent / EMBEDDED_NAME
    missing = [name for name in _FILES if not (directory / name).is_file()]
    if missing:
        raise InputError(
            f"the embedded network lacks {' and '.join(missing)} in {directory}; install jaxspec anew, "
            "train it with `python -m experiments.train_embedded`, or give a Hugging Face directory"
        )
    return directory


def load_model(name_or_path: str | os.PathLike[str], *, part: Part = "target", dtype: Any = None) -> LoadedModel:
    """The embedded network for "embedded", a container for a path ending in .jspk, otherwise a Hugging Face directory.

    A directory of one's own called `embedded` is `./embedded`.

    Args:
        part: "target", or of a container "draft".
        dtype: as for `load_directory`.

    Raises:
        InputError: see `embedded_directory`, `load_directory` and `load_container`; a draft asked of something else.
    """
    if str(name_or_path).endswith(SUFFIX) and not os.path.isdir(name_or_path):
        return load_container(name_or_path, part=part, dtype=dtype)
    if part != "target":
        raise InputError(
            f"part {part!r} of {str(name_or_path)!r} came; only a container has a draft: jaxspec pack makes one"
        )
    return load_directory(embedded_directory() if name_or_path == EMBEDDED_NAME else name_or_path, dtype=dtype)
