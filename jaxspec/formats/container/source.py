"""The one reader of safetensors checkpoints: which files belong to one, what they hold, and its bytes from a memory map.

Networks are loaded and containers packed from it. Headers are kept word for word, tensors are read whole or in pieces.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from safetensors import SafetensorError, safe_open

from jaxspec.errors import InputError, one_line
from jaxspec.formats.container.tensors import HeaderError, TensorForm, parse_header, text_of_header
from jaxspec.formats.shard_index import (
    INDEX_FILE,
    check_file,
    check_version,
    leads_outside,
    read_index,
    read_json_object,
)
from jaxspec.partial_files import CONTAINER_SUFFIX

__all__ = [
    "BESIDE_SUFFIXES",
    "NETWORK_FILES",
    "WEIGHTS_SUFFIX",
    "Checkpoint",
    "SafetensorsFile",
    "WeightsFile",
    "check_inside",
    "check_no_adapter",
    "files_beside",
    "is_listed",
    "missing_because",
    "network_files",
    "open_checkpoint",
    "open_weights",
    "predicts_further",
    "weight_files",
    "weight_notes",
]

#: Of the names of weight files.
WEIGHTS_SUFFIX = ".safetensors"

#: Name of the file that holds all weights of a checkpoint without shards.
_SINGLE_FILE = "model.safetensors"

#: Describes an adapter (LoRA), whose weights are differences to those of another network.
ADAPTER_FILE = "adapter_config.json"

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
        check_file(path)
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
        InputError: one of them is a link to a file that is gone, or to one outside the folder and its download cache.
    """
    contents = {}
    for path in sorted(Path(folder).iterdir()):
        fits = path.name.isprintable() and (path.suffix in BESIDE_SUFFIXES if wanted is None else path.name in wanted)
        if fits:
            check_file(path)
            check_inside(path)
        if fits and path.is_file() and path.stat().st_size <= _MOST_BESIDE_BYTES:
            contents[path.name] = path.read_bytes()
    return contents


def check_inside(path: Path) -> None:
    """A file whose content goes along is not somewhere else on this machine.

    Raises:
        InputError: it is a link there.
    """
    if leads_outside(path):
        raise InputError(
            f"{path} is a link to {os.path.realpath(path)!r}, outside its folder, and its content would be given away: copy "
            "the file into the folder, or remove the link"
        )


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
        InputError: there is no such thing, a file is missing or damaged, or two files hold a tensor of one name.
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
    names, weight_map = _chosen(path)
    if not weight_map:
        names = sorted(p.name for p in path.glob(f"*{WEIGHTS_SUFFIX}"))
    if not names:
        raise InputError(f"{path} has no .safetensors file; pickled weights are never opened: convert them first")
    files = [SafetensorsFile(path / name) for name in names]
    seen: dict[str, Path] = {}
    for file in files:
        for form in file.tensors:
            if form.name in seen:
                raise InputError(
                    f"tensor {form.name!r} is in both {seen[form.name]} and {file.path}; one may hold it: "
                    "remove the file that belongs to another checkpoint"
                )
            seen[form.name] = file.path
    return Checkpoint(files, files_beside(path), path)


def open_weights(folder: str | os.PathLike[str]) -> list[SafetensorsFile]:
    """The weights of a network: model.safetensors, or what model.safetensors.index.json lists, and of each shard the tensors
    that it lists there. Tensors that a shard lacks are left out: whoever needs one names it.

    Raises:
        InputError: neither is there, a shard is missing, a file is damaged, or one of the folder that networks are read from is
            a link to a file that is gone or a pointer of git-lfs.
    """
    folder = Path(folder)
    for path in sorted(folder.iterdir()):
        if path.suffix in (*BESIDE_SUFFIXES, WEIGHTS_SUFFIX):
            check_file(path)
    names, weight_map = _chosen(folder)
    if names:
        files = [SafetensorsFile(folder / name) for name in names]
        for file in files:
            file.tensors = [form for form in file.tensors if is_listed(form.name, file.path.name, weight_map)]
        return files
    check_no_adapter(folder)
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
        InputError: an index that is none.
    """
    return _chosen(Path(folder))[0]


def _chosen(folder: Path) -> tuple[list[str], dict[str, str]]:
    """`network_files` of a folder.

    Raises:
        InputError: an index that is none, or a shard is missing.
    """
    there = {path.name for path in folder.glob(f"*{WEIGHTS_SUFFIX}")}
    weight_map: dict[str, str] = {}
    try:
        weight_map = read_index(folder) if (folder / INDEX_FILE).is_file() else {}
    except InputError:
        if _SINGLE_FILE not in there:
            raise
    names, weight_map = network_files(there, weight_map)
    if missing := [name for name in names if name not in there]:
        raise InputError(f"{folder} lacks {missing[0]}, which its index names; all shards must be there: fetch it")
    return names, weight_map


def is_listed(name: str, file: str, weight_map: Mapping[str, str]) -> bool:
    """Whether an index lists a tensor in a file; without an index all are."""
    return not weight_map or weight_map.get(name) == file


def weight_notes(folder: str | os.PathLike[str], *, packed: bool = False) -> list[str]:
    """Lines about weights in a folder that its network is not read from.

    Args:
        packed: about what `open_checkpoint` leaves out instead, which takes files whole.
    Raises:
        InputError: see `open_weights`.
    """
    folder = Path(folder)
    names, weight_map = _chosen(folder)
    there = {path.name for path in folder.glob(f"*{WEIGHTS_SUFFIX}") if not path.name.startswith(".")}
    rule = f"{INDEX_FILE} does not list it" if weight_map else f"{_SINGLE_FILE} is the network"
    notes, others = [], sorted(there - set(names))
    if others and names and (weight_map or not packed):
        notes.append(f"{_first(others)} in {folder} is {'left out' if packed else 'not read'}: {rule}")
    files = [SafetensorsFile(folder / name) for name in names]
    held = {(form.name, file.path.name) for file in files for form in file.tensors}
    if absent := sorted(name for name, file in weight_map.items() if (name, file) not in held):
        notes.append(f"{folder / INDEX_FILE} lists tensor {_first(absent)}, which its file lacks")
    if packed:
        notes += [
            f"{file.path} is a link to {os.path.realpath(file.path)}" for file in files if leads_outside(file.path)
        ]
        return notes
    if extra := sorted(name for name, file in held if not is_listed(name, file, weight_map)):
        notes.append(f"tensor {_first(extra)} in {folder} is not read: {INDEX_FILE} does not list it there")
    if further := sorted(name for name, file in held if predicts_further(name) and is_listed(name, file, weight_map)):
        notes.append(
            f"tensor {_first(further)} in {folder} is not read: layers that predict further tokens are left out"
        )
    return notes


def missing_because(folder: Path, name: str) -> str:
    """Why a network has not a tensor that it needs, in words to put behind its name: what the index says of it."""
    names, weight_map = _chosen(folder) if os.path.isdir(folder) else ([], {})
    if name in weight_map:
        return f" ({INDEX_FILE} puts {name!r} in {weight_map[name]}, which lacks it)"
    holding = (file for file in names if any(form.name == name for form in SafetensorsFile(folder / file).tensors))
    holder = next(holding, None)
    return "" if holder is None else f" ({holder} holds tensor {name!r}, which {INDEX_FILE} does not list)"


def predicts_further(name: str) -> bool:
    """Whether a tensor, by its name, belongs to layers that predict further tokens (Qwen3.5, MiMo, Ernie 4.5): `mtp.fc.weight`,
    `model.mtp_layers.0.input_proj.weight`.
    """
    return any(part.startswith("mtp") for part in name.split("."))


def check_no_adapter(folder: Path) -> None:
    """A folder without the files of a network is not an adapter.

    Raises:
        InputError: it is one.
    """
    if os.path.isfile(folder / ADAPTER_FILE):
        base = read_json_object(folder / ADAPTER_FILE).get("base_model_name_or_path")
        raise InputError(
            f"{folder} is an adapter (LoRA) of {base!r}, by its {ADAPTER_FILE}, not a whole network: merge it into that "
            "network (merge_and_unload of peft, then save_pretrained) and give the merged folder"
        )


def _first(names: list[str]) -> str:
    return f"{names[0]!r} and {len(names) - 1} more" if len(names) > 1 else repr(names[0])


def network_files(there: Collection[str], weight_map: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """Names of the files of weights that a network is read from, and the weight map if it chooses them, else an empty one.

    An index that names files which are not there is a leftover if there is a whole checkpoint beside it.

    Args:
        there: names of the files of weights that there are.
        weight_map: of the index; empty without one.
    """
    names = sorted(set(weight_map.values()))
    if names and (_SINGLE_FILE not in there or all(name in there for name in names)):
        return names, weight_map
    return ([_SINGLE_FILE] if _SINGLE_FILE in there else []), {}
