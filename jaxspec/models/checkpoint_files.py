"""The safetensors files of a directory as one table of named tensors, each read from a memory map when asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from jaxspec.errors import InputError
from jaxspec.formats.container import Container, Part
from jaxspec.formats.shard_index import INDEX_FILE, check_same_tensors, read_index

#: Names of the stored number formats that a network may have, as safetensors spells them.
STORED_DTYPES = {"F32": np.dtype(np.float32), "F16": np.dtype(np.float16), "BF16": np.dtype(ml_dtypes.bfloat16)}

SINGLE_FILE = "model.safetensors"

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


@contextlib.contextmanager
def open_checkpoint(directory: Path) -> Iterator[CheckpointFiles]:
    """The weights of a directory: model.safetensors, or the shards that model.safetensors.index.json lists.

    Raises:
        InputError: neither is there, a shard is missing or not listed, a file is damaged, or index and shards disagree.
    """
    weight_map: dict[str, str] = {}
    if (directory / SINGLE_FILE).is_file():
        paths = [directory / SINGLE_FILE]
    elif (directory / INDEX_FILE).is_file():
        weight_map = read_index(directory)
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
        if weight_map:
            stored = {name: tensor.path.name for name, tensor in files.tensors.items()}
            check_same_tensors(directory, weight_map, stored)
        yield files
