"""A checkpoint as one table of named tensors, each read when asked for: from safetensors files, or from a container."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import ml_dtypes
import numpy as np

from jaxspec.errors import InputError
from jaxspec.formats.codes import Codes
from jaxspec.formats.container import (
    Checkpoint,
    Container,
    Part,
    StoredTensor,
    TensorForm,
    network_files,
    open_checkpoint,
    open_weights,
    packed_form,
)
from jaxspec.formats.container.source import SafetensorsFile, is_listed
from jaxspec.formats.shard_index import INDEX_FILE, json_object, weight_map_of
from jaxspec.models.gguf import is_gguf, open_gguf

__all__ = [
    "STORED_DTYPES",
    "CheckpointFiles",
    "ContainerFiles",
    "InCodes",
    "TensorPlace",
    "TensorTable",
    "bytes_of",
    "check_tied_head",
    "checkpoint_at",
]

#: Names of the stored number formats that a network may have, as safetensors spells them.
STORED_DTYPES = {"F32": np.dtype(np.float32), "F16": np.dtype(np.float16), "BF16": np.dtype(ml_dtypes.bfloat16)}

#: With those that values may be packed in.
_READ_DTYPES = STORED_DTYPES | {
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "I32": np.dtype(np.int32),
    "I64": np.dtype(np.int64),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E8M0": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
}


class TensorPlace(NamedTuple):
    """Where a tensor lies and what it is; `dtype` is the file's own spelling, allowed or not.

    Attributes:
        packed_dtype: 16-bit type that it was packed in, of a container that gives back integers times scales, for which that is
            too narrow; None of every other tensor.
    """

    path: Path
    shape: tuple[int, ...]
    dtype: str
    packed_dtype: str | None = None

    @property
    def network_dtype(self) -> str:
        """Type that the network was stored in."""
        return self.packed_dtype or self.dtype


def bytes_of(place: TensorPlace) -> int:
    """Bytes of an element of a tensor that is read here."""
    return _READ_DTYPES[place.dtype].itemsize


class InCodes(NamedTuple):
    """A matrix in codes of fewer than 16 bits: the bytes that it is stored in, and the type of its format's own values."""

    bytes: int
    dtype: np.dtype


class TensorTable(Protocol):
    """Named tensors of a checkpoint, wherever they lie.

    Attributes:
        tensors: name -> description.
        in_codes: of those that `codes` gives.
    """

    tensors: dict[str, TensorPlace]
    in_codes: Mapping[str, InCodes] = MappingProxyType({})

    def codes(self, name: str) -> Codes:
        """One of `in_codes`, output rows first, be the tensor transposed or not."""
        raise KeyError(name)

    def read(self, name: str) -> np.ndarray:
        """One tensor, of a stored dtype, or of bytes."""
        ...

    def release(self) -> None:
        """Tell the system that what was read so far may go; arrays stay valid."""


def _as_values(patterns: np.ndarray, place: TensorPlace) -> np.ndarray:
    return patterns.view(_READ_DTYPES[place.dtype]).reshape(place.shape)


class ContainerFiles(TensorTable):
    """The tensors of an open container that its folder would be read with, as its target or as its draft."""

    def __init__(self, container: Container, part: Part):
        self._container = container
        self._part: Part = part
        packed, index = [name for name, _ in container.files], container.path / INDEX_FILE
        content = container.read_file(INDEX_FILE)
        own, listed = network_files(
            packed, {} if content is None else weight_map_of(json_object(content, index), index)
        )
        self.tensors = {
            name: _place(container.path, tensor.form)._replace(packed_dtype=_packed_dtype(tensor))
            for name, tensor in container.tensors.items()
            if packed[tensor.file] in (own or packed) and is_listed(name, packed[tensor.file], listed)
        }

    def read(self, name: str) -> np.ndarray:
        """One tensor, decoded.

        Raises:
            InputError: the container is damaged.
        """
        return _as_values(self._container.read(name, self._part), self.tensors[name])


class CheckpointFiles(TensorTable):
    """All tensors of the safetensors files of a folder, of one such file, or of a GGUF file.

    Attributes:
        quantized: types of fewer than 16 bits that a GGUF file has.
    """

    def __init__(self, folder: Path, *, exact: bool = False, codes: bool = True):
        """Open and check the files.

        Args:
            exact: of a GGUF file, see `GgufFile`. codes: of a GGUF file, give its blocks as codes.
        Raises:
            InputError: see `open_weights` and `GgufFile`.
        """
        self.quantized: frozenset[str] = frozenset()
        self._files: list[Any]
        if is_gguf(folder):
            file = open_gguf(folder, exact=exact)
            self._files, self.quantized = [file], file.quantized
            if codes:
                self.in_codes = {name: InCodes(count, np.dtype(np.float32)) for name, count in file.in_codes.items()}
        else:
            self._files = [SafetensorsFile(folder)] if folder.is_file() else open_weights(folder)
        self._found = {form.name: (file, form) for file in self._files for form in file.tensors}
        self.tensors = {name: _place(file.path, form) for name, (file, form) in self._found.items()}

    def codes(self, name: str) -> Codes:
        """See `TensorTable`."""
        file, form = self._found[name]
        return file.codes(form)

    def read(self, name: str) -> np.ndarray:
        """One tensor; of safetensors, a view of the memory map."""
        file, form = self._found[name]
        return _as_values(file.read(form), self.tensors[name])

    def release(self) -> None:
        """Tell the system that the pages read so far may go; views stay valid."""
        for file in self._files:
            file.release()


def checkpoint_at(place: Path) -> Checkpoint:
    """What is packed of a folder, a safetensors file, an index of shards or a GGUF file.

    Raises:
        InputError: see `open_checkpoint` and `GgufFile`.
    """
    if not is_gguf(place):
        return open_checkpoint(place)
    file = open_gguf(place)
    return Checkpoint([file], file.beside, place.parent)


def _place(path: Path, form: TensorForm) -> TensorPlace:
    return TensorPlace(path, form.shape, form.dtype)


def _packed_dtype(tensor: StoredTensor) -> str | None:
    dtype = packed_form(tensor).dtype
    return None if dtype == tensor.form.dtype else dtype


def check_tied_head(files: TensorTable, head_name: str, embedding_name: str) -> None:
    """A head stored beside the embedding it is tied to is a copy of it.

    Raises:
        InputError: it is not.
    """
    head, embedding = files.tensors[head_name], files.tensors[embedding_name]
    same_form = (head.shape, head.dtype) == (embedding.shape, embedding.dtype)
    # Compared as bytes: a NaN equals its copy.
    bits = lambda name: files.read(name).view(np.uint8)
    if not same_form or not np.array_equal(bits(head_name), bits(embedding_name)):
        raise InputError(
            f"config.json ties the head to the embedding, but {head_name!r} in {head.path} differs from it; both "
            "cannot hold: set tie_word_embeddings to false, or remove that tensor"
        )
