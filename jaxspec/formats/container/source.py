"""The one reader of safetensors checkpoints: which files belong to one, what they hold, and its bytes from a memory map.

Networks are loaded and containers packed from it. Headers are kept word for word, tensors are read whole or in pieces.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from safetensors import SafetensorError, safe_open

from jaxspec.errors import InputError, one_line
from jaxspec.files import CONTAINER_SUFFIX
from jaxspec.formats.container.header import HeaderError, parse_header, text_of_header
from jaxspec.formats.container.tensors import TensorForm
from jaxspec.formats.hub_cache import check_file, check_version
from jaxspec.formats.shard_index import INDEX_FILE, check_same_tensors, read_index

__all__ = [
    "BESIDE_SUFFIXES",
    "NETWORK_FILES",
    "WEIGHTS_SUFFIX",
    "Checkpoint",
    "SafetensorsFile",
    "WeightsFile",
    "files_beside",
    "network_files",
    "open_checkpoint",
    "open_weights",
    "weight_files",
]

#: Of the names of weight files.
WEIGHTS_SUFFIX = ".safetensors"

#: Name of the file that holds all weights of a checkpoint without shards.
_SINGLE_FILE = "model.safetensors"

#: Endings of pickled weights, which run code when they are opened; they are never opened here.
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")

#: Files beside the weights that belong to a checkpoint, and the most bytes that one of them may have.
BESIDE_SUFFIXES = (".json", ".txt", ".model", ".jinja")
_MOST_BESIDE_BYTES = 1 << 26


class SafetensorsFile:
    """One file of weights.

    Attributes:
        name: that a container has for it.
        header: its first bytes, up to where the data begin.
        tensors: what it holds, in the order of the data.
    """

    def __init__(self, path: str | os.PathLike[str]):
        """Open and check a file.

        Raises:
            InputError: it does not exist or is no whole safetensors file.
        """
        self.path = path = Path(path)
        if not path.name.isprintable():
            raise InputError(f"the file name {path.name!r} has characters that cannot be printed: rename it")
        try:
            with safe_open(path, framework="np"):  # checks sizes, offsets and names
                pass
            with path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                file.seek(0)
                self.header = file.read(8 + length)
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            placed = parse_header(self.header)
        except FileNotFoundError as error:
            check_file(path)
            raise InputError(f"{path} does not exist; all weight files must be there: fetch it") from error
        except (SafetensorError, OSError, HeaderError, ValueError) as error:
            reason = one_line(error)
            raise InputError(f"{path} is no whole safetensors file ({reason}); fetch it again") from error
        self.tensors: list[TensorForm] = [tensor.form for tensor in placed]
        self.name = path.name
        self._starts = {tensor.form.name: len(self.header) + tensor.start for tensor in placed}

    @property
    def header_text(self) -> str:
        """The JSON of the header, every space of it; what is before it is its length in bytes."""
        return text_of_header(self.header)

    def read(self, form: TensorForm, first: int = 0, count: int | None = None) -> np.ndarray:
        """Elements `first` to `first + count` of a tensor, or all from `first` on, as patterns, without copying."""
        dtype = form.pattern_dtype
        count = form.elements - first if count is None else count
        return np.frombuffer(self._map, dtype, count, self._starts[form.name] + first * dtype.itemsize)

    def release(self) -> None:
        """Tell the system that the pages read so far may go."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)


class WeightsFile(Protocol):
    """A file of weights, as `SafetensorsFile` and `GgufFile` have it."""

    name: str
    path: Path
    tensors: list[TensorForm]

    @property
    def header_text(self) -> str:
        """JSON of a safetensors header of the tensors."""
        ...

    def read(self, form: TensorForm, first: int = 0, count: int | None = None) -> np.ndarray:
        """Some elements of a tensor as patterns."""
        ...

    def release(self) -> None:
        """Tell the system that what was read so far may go."""
        ...


class Checkpoint(NamedTuple):
    """What is packed.

    Attributes:
        files: of weights.
        beside: the small files that belong to them, by name.
        folder: where all of them are.
    """

    files: Sequence[WeightsFile]
    beside: dict[str, bytes]
    folder: Path

    def tensors(self) -> Iterator[tuple[WeightsFile, TensorForm]]:
        """All tensors, file by file, in the order of the data."""
        for file in self.files:
            for form in file.tensors:
                yield file, form


def files_beside(folder: str | os.PathLike[str], wanted: tuple[str, ...] | None = None) -> dict[str, bytes]:
    """The small files beside the weights, by name.

    Args:
        wanted: their names; None: all of `BESIDE_SUFFIXES`.
    Raises:
        InputError: one of them is a link to a file that is gone.
    """
    found = {}
    for path in sorted(Path(folder).iterdir()):
        fits = path.name.isprintable() and (path.suffix in BESIDE_SUFFIXES if wanted is None else path.name in wanted)
        if fits:
            check_file(path)
        if fits and path.is_file() and path.stat().st_size <= _MOST_BESIDE_BYTES:
            found[path.name] = path.read_bytes()
    return found


#: Files beside the weights that a network is opened with: a single file of weights takes them along into its container.
NETWORK_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """A safetensors file, a folder with one or with shards, or the index of shards.

    Raises:
        InputError: there is no such thing, a file is missing or damaged, or index and shards disagree.
    """
    path = Path(path)
    # `os.path`, not `Path.is_file`, which raises on names too long for one.
    if os.path.isfile(path) and path.name.endswith(".index.json"):
        path = path.parent
    if os.path.isfile(path):
        if path.suffix == CONTAINER_SUFFIX:
            raise InputError(
                f"{str(path)!r} is a container by its name; needed is a safetensors file or a folder with some: unpack it first"
            )
        return Checkpoint([SafetensorsFile(path)], files_beside(path.parent, NETWORK_FILES), path.parent)
    if not os.path.isdir(path):
        raise InputError(
            f"{str(path)!r} does not exist; needed is a safetensors file or a folder with some: check the path"
        )
    check_version(path)
    names = sorted(p.name for p in path.glob(f"*{WEIGHTS_SUFFIX}"))
    weight_map: dict[str, str] = {}
    if (path / INDEX_FILE).is_file():
        weight_map = read_index(path)
        missing = sorted(set(weight_map.values()) - set(names))
        if missing:
            raise InputError(f"{path} lacks {missing[0]}, which its index names; all shards must be there: fetch it")
        names = sorted(set(weight_map.values()))
    if not names:
        raise InputError(f"{path} has no .safetensors file; pickled weights are never opened: convert them first")
    return Checkpoint(_open_files(path, names, weight_map), files_beside(path), path)


def open_weights(folder: str | os.PathLike[str]) -> list[SafetensorsFile]:
    """The weights of a network: model.safetensors, or the shards that model.safetensors.index.json lists.

    Raises:
        InputError: neither is there, a shard is missing or not listed, a file is damaged, index and shards disagree, or a file
            of the folder that networks are read from is a link to one that is gone.
    """
    folder = Path(folder)
    for path in sorted(folder.iterdir()):
        if path.suffix in (*BESIDE_SUFFIXES, WEIGHTS_SUFFIX):
            check_file(path)
    if names := weight_files(folder):
        return _open_files(folder, names, {} if names == [_SINGLE_FILE] else read_index(folder))
    pickles = sorted(path.name for path in folder.iterdir() if path.suffix in _PICKLES)
    if pickles:
        raise InputError(
            f"{folder} has pickled weights only ({pickles[0]}), which are never opened; allowed is "
            f"{_SINGLE_FILE}: convert them with transformers' save_pretrained"
        )
    raise InputError(f"{folder} has no weights; allowed are {_SINGLE_FILE} or {INDEX_FILE} with its shards: fetch them")


def weight_files(folder: str | os.PathLike[str]) -> list[str]:
    """Names of the safetensors files of a folder that `open_weights` reads; none where there are no weights.

    Raises:
        InputError: an index that is none, or that leaves a file out.
    """
    folder = Path(folder)
    if (folder / _SINGLE_FILE).is_file():
        return [_SINGLE_FILE]
    return sorted(set(read_index(folder).values())) if (folder / INDEX_FILE).is_file() else []


def network_files(names: Collection[str]) -> Collection[str]:
    """Of the weight files of a folder without an index, those that a network is read from: beside model.safetensors lies a
    second copy, or another network.
    """
    return [_SINGLE_FILE] if _SINGLE_FILE in names else names


def _open_files(folder: Path, names: list[str], weight_map: dict[str, str]) -> list[SafetensorsFile]:
    """Files of one checkpoint, each tensor in one of them, and in the one that the index names where there is an index."""
    files = [SafetensorsFile(folder / name) for name in names]
    seen: dict[str, Path] = {}
    for file in files:
        for form in file.tensors:
            if form.name in seen:
                raise InputError(
                    f"tensor {form.name!r} is in both {seen[form.name]} and {file.path}; one may hold it: "
                    "remove the file that belongs to another checkpoint"
                )
            seen[form.name] = file.path
    if weight_map:
        check_same_tensors(folder, weight_map, {name: found.name for name, found in seen.items()})
    return files
