"""Tensors of a file that `torch.save` wrote of a dictionary of tensors, read without torch and without running what it says.

Such a file is a zip archive: `data.pkl` describes the tensors, `data/<key>` holds the numbers of each. Only what builds tensors
and dictionaries is followed; anything else in the description is refused, so that opening a file runs no code of its author.

Source: torch/serialization.py and torch/_utils.py for the layout; the Python documentation, "Restricting Globals", for the way.
"""

from __future__ import annotations

import math
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxspec.errors import InputError, one_line
from jaxspec.models.checkpoint_files import STORED_DTYPES, TensorPlace, TensorTable

__all__ = ["PickledFiles"]

#: Classes of torch's storages -> safetensors' spelling of the elements.
_STORAGES = {"FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16"}


class _Storage(NamedTuple):
    """Numbers of one or several tensors: `data/<key>`."""

    dtype: str
    key: str


class _Tensor(NamedTuple):
    """Some of the numbers of a storage, row by row, from one on."""

    storage: _Storage
    first: int
    shape: tuple[int, ...]


def _tensor(storage: Any, first: int, shape: Any, stride: Any, *_: Any) -> _Tensor:
    shape, rows = tuple(shape), [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    whole = all(type(size) is int and size >= 0 for size in (first, *shape))
    if not isinstance(storage, _Storage) or not whole or (math.prod(shape) and list(stride) != rows):
        raise pickle.UnpicklingError("a tensor that is not stored row by row")
    return _Tensor(storage, first, shape)


#: All that a description may name.
_KNOWN: dict[tuple[str, str], Callable[..., Any] | str] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
    **{("torch", name): dtype for name, dtype in _STORAGES.items()},
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """A name of the description."""
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return _KNOWN[module, name]

    def persistent_load(self, pid: Any) -> _Storage:
        """A storage that the description refers to."""
        kind, dtype, key, *_ = pid
        if kind != "storage" or dtype not in _STORAGES.values() or not isinstance(key, str):
            raise pickle.UnpicklingError("a storage of another type")
        return _Storage(dtype, key)


class PickledFiles(TensorTable):
    """The tensors of one such file, as a `TensorTable`."""

    def __init__(self, path: Path):
        """Read the description.

        Raises:
            InputError: it is no such file, or its description has more than tensors.
        """
        self._path = path
        try:
            self._archive = zipfile.ZipFile(path)
            place = next(name for name in self._archive.namelist() if name.endswith("data.pkl"))
            self._folder = place.removesuffix("data.pkl")
            with self._archive.open(place) as file:
                found = _Reader(file).load()
            if not isinstance(found, dict) or not all(isinstance(each, _Tensor) for each in found.values()):
                raise ValueError("it is no dictionary of tensors")
        except (OSError, zipfile.BadZipFile, pickle.UnpicklingError, StopIteration, *_DAMAGED) as error:
            raise InputError(
                f"{path} is no file of tensors alone as torch.save writes it ({one_line(error) or 'no data.pkl'}), and nothing "
                "else of it is opened; convert it to safetensors"
            ) from error
        self._tensors: dict[str, _Tensor] = {str(name): tensor for name, tensor in found.items()}
        self.tensors = {name: TensorPlace(path, each.shape, each.storage.dtype) for name, each in self._tensors.items()}

    def read(self, name: str) -> np.ndarray:
        """One tensor.

        Raises:
            InputError: the file lacks some of its numbers.
        """
        storage, first, shape = self._tensors[name]
        dtype = STORED_DTYPES[storage.dtype]
        try:
            held = self._archive.read(f"{self._folder}data/{storage.key}")
            return np.frombuffer(held, dtype, math.prod(shape), first * dtype.itemsize).reshape(shape)
        except (KeyError, ValueError, zipfile.BadZipFile) as error:
            raise InputError(f"{self._path} lacks numbers of tensor {name!r}; fetch it again") from error

    def release(self) -> None:
        """See `TensorTable`."""


#: What a damaged description may raise besides.
_DAMAGED = (AttributeError, EOFError, ImportError, IndexError, KeyError, TypeError, ValueError)
