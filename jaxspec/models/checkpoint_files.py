"""The safetensors files of a directory as one table of named tensors, each read from a memory map when asked for."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from jaxspec.errors import InputError
from jaxspec.formats.container import Container, Part

#: Names of the stored number formats that a network may have, as safetensors spells them.
STORED_DTYPES = {"F32": np.dtype(np.float32), "F16": np.dtype(np.float16), "BF16": np.dtype(ml_dtypes.bfloat16)}

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

#: Endings of pickled weights, which run code when they are opened; they are never opened here.
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")


class StoredTensor(NamedTuple):
    """Where a tensor lies and what it is; `dtype` is the file's own spelling, allowed or not."""

    path: Path
    shape: tuple[int, ...]
    dtype: str


class TensorTable(Protocol):
    """Named tensors of a checkpoint, wherever they lie.

    Attributes:
        tensors: name -> description.
    """

    tensors: dict[str, StoredTensor]

    def read(self, name: str) -> np.ndarray:
        """One tensor, of a stored dtype."""
        ...


class ContainerFiles:
    """All tensors of an open container, as its target or as its draft."""

    def __init__(self, container: Container, part: Part):
        self._container = container
        self._part: Part = part
        self.tensors = {
            name: StoredTensor(container.path, tensor.form.shape, tensor.form.dtype)
            for name, tensor in container.tensors.items()
        }

    def read(self, name: str) -> np.ndarray:
        """One tensor, decoded.

        Raises:
            InputError: the container is damaged.
        """
        stored = self.tensors[name]
        return self._container.read(name, self._part).view(STORED_DTYPES[stored.dtype]).reshape(stored.shape)


class CheckpointFiles:
    """All tensors of open safetensors files.

    Attributes:
        tensors: name -> description.
    """

    def __init__(self, handles: dict[Path, Any]):
        self._handles = handles
        self.tensors: dict[str, StoredTensor] = {}
        for path, handle in handles.items():
            with _reading(path):
                names = handle.keys()
                for name in names:
                    if name in self.tensors:
                        raise InputError(
                            f"tensor {name!r} is in both {self.tensors[name].path} and {path}; one may hold it: "
                            "remove the file that belongs to another checkpoint"
                        )
                    part = handle.get_slice(name)
                    self.tensors[name] = StoredTensor(path, tuple(part.get_shape()), part.get_dtype())

    def read(self, name: str) -> np.ndarray:
        """One tensor, copied out of the memory map.

        Raises:
            InputError: the file broke while it was read.
        """
        path = self.tensors[name].path
        with _reading(path):
            return self._handles[path].get_tensor(name)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what a missing or damaged file raises into one line."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist; all weight files must be there: fetch it") from error
    except (SafetensorError, OSError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path} is no whole safetensors file ({reason}); fetch it again") from error


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        InputError: no such file, no JSON, or JSON that is not an object.
    """
    try:
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
        content = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{path} is no readable JSON ({reason}); it must hold a JSON object: fetch it again"
        ) from error
    if not isinstance(content, dict):
        raise InputError(f"{path} holds a JSON {type(content).__name__}; it must hold an object: fetch it again")
    return content


def _indexed_files(directory: Path) -> dict[str, str]:
    """Tensor name -> file name, from the index of a sharded checkpoint."""
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
    return weight_map


@contextlib.contextmanager
def open_checkpoint(directory: Path) -> Iterator[CheckpointFiles]:
    """The weights of a directory: model.safetensors, or the shards that model.safetensors.index.json lists.

    Raises:
        InputError: neither is there, a shard is missing, a file is damaged, or index and shards disagree.
    """
    weight_map: dict[str, str] = {}
    if (directory / SINGLE_FILE).is_file():
        paths = [directory / SINGLE_FILE]
    elif (directory / INDEX_FILE).is_file():
        weight_map = _indexed_files(directory)
        paths = [directory / file for file in sorted(set(weight_map.values()))]
    else:
        pickles = sorted(path.name for path in directory.iterdir() if path.suffix in _PICKLES)
        if pickles:
            raise InputError(
                f"{directory} has pickled weights only ({pickles[0]}), which are never opened; allowed is "
                f"{SINGLE_FILE}: convert them with transformers' save_pretrained"
            )
        raise InputError(
            f"{directory} has no weights; allowed are {SINGLE_FILE} or {INDEX_FILE} with its shards: fetch them"
        )
    with contextlib.ExitStack() as stack:
        handles = {}
        for path in paths:
            with _reading(path):
                handles[path] = stack.enter_context(safe_open(path, framework="np"))
        files = CheckpointFiles(handles)
        for name, file in weight_map.items():
            stored = files.tensors.get(name)
            if stored is None or stored.path.name != file:
                raise InputError(
                    f"{directory / INDEX_FILE} names tensor {name!r} in {file}, which lacks it; index and shards "
                    "must come from one checkpoint: fetch both again"
                )
        yield files
