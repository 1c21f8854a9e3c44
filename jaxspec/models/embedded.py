"""Models by name: the trained networks that ship with the package and a head for one of them, or any directory of one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from jaxspec.errors import InputError
from jaxspec.formats.container import SUFFIX, Part
from jaxspec.models.head_files import LoadedHead, load_head
from jaxspec.models.hf_load import LoadedModel, load_container, load_directory

#: The name that stands for the network of this package, wherever a model is asked for.
EMBEDDED_NAME = "embedded"

#: A smaller network of the same vocabulary, which can draft for it.
SMALL_NAME = "embedded-small"

#: A draft head for it.
HEAD_NAME = "embedded-head"

#: Name -> what it is, its folder beside this file, and the module that trains it.
_SHIPPED = {
    EMBEDDED_NAME: ("network", "embedded", "experiments.train_embedded"),
    SMALL_NAME: ("small network", "embedded_small", "experiments.train_embedded --shape small"),
    HEAD_NAME: ("draft head", "embedded_head", "experiments.train_draft_head"),
}

_FILES = ("config.json", "model.safetensors")


def embedded_directory(name: str = EMBEDDED_NAME) -> Path:
    """Folder of a shipped network or head: config.json, model.safetensors and its model card, README.md.

    Args:
        name: `EMBEDDED_NAME`, `SMALL_NAME` or `HEAD_NAME`.
    Raises:
        InputError: the weights are not part of this installation.
    """
    what, folder, trainer = _SHIPPED[name]
    directory = Path(__file__).resolve().parent / folder
    missing = [file for file in _FILES if not (directory / file).is_file()]
    if missing:
        instead = "another draft" if name == HEAD_NAME else "a Hugging Face directory"
        raise InputError(
            f"the embedded {what} lacks {' and '.join(missing)} in {directory}; install jaxspec anew, "
            f"train it with `python -m {trainer}`, or give {instead}"
        )
    return directory


def load_model(name_or_path: str | os.PathLike[str], *, part: Part = "target", dtype: Any = None) -> LoadedModel:
    """An embedded network by name, a container for a path ending in .jspk, otherwise a Hugging Face directory.

    Names are "embedded" and "embedded-small"; a directory of one's own called `embedded` is `./embedded`.

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
    named = name_or_path in (EMBEDDED_NAME, SMALL_NAME)
    return load_directory(embedded_directory(str(name_or_path)) if named else name_or_path, dtype=dtype)


def load_draft_head(name_or_path: str | os.PathLike[str], target: LoadedModel, *, dtype: Any = None) -> LoadedHead:
    """The embedded draft head for "embedded-head", otherwise a directory as `save_head` writes it.

    Args:
        target: the network that the head was trained on, in whatever dtype holds its stored weights exactly.
        dtype: as for `load_directory`; of the head alone.
    Raises:
        InputError: see `embedded_directory` and `load_head`.
    """
    named = name_or_path == HEAD_NAME
    return load_head(embedded_directory(HEAD_NAME) if named else name_or_path, target, dtype=dtype)
