"""Medusa heads of releases: files, and what they compute.

Each head predicts one token from the target's last hidden state: head 0 the one behind the next, and so on. It is a chain of
residual blocks, x + silu(W x + b), and an LM head of its own.

Source: Cai et al. 2024, Medusa, arXiv:2401.10774, Sec. 2.1; FasterDecoding/Medusa (medusa_model.py) and vLLM (medusa.py) for
    how heads are stored.
"""

from __future__ import annotations

import math
import pickle
import re
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxspec.errors import InputError, one_line
from jaxspec.models.checkpoint_files import STORED_DTYPES, CheckpointFiles, TensorPlace, TensorTable
from jaxspec.models.config import DecoderConfig, LayerParameter
from jaxspec.models.decoder import Params
from jaxspec.models.described import checked_names
from jaxspec.models.hf_load import read_tensors
from jaxspec.models.matrix import stack_of
from jaxspec.models.stored_parameters import Path as ParameterPath
from jaxspec.models.stored_parameters import StoredParameter

__all__ = [
    "MEDUSA_FILES",
    "MedusaHeads",
    "PickledFiles",
    "medusa_in",
    "medusa_logits",
]

# Tensors of a file that `torch.save` wrote of a dictionary of tensors, read without torch and without running what it says.

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


#: Files that hold heads, in a folder of their own or beside their target's weights.
MEDUSA_FILES = ("medusa_lm_head.safetensors", "medusa_lm_head.pt")

#: Blocks and LM head of a head: of Medusa's own releases, of heads within a network's files, and of vLLM.
_LAYOUTS = (
    ("{head}.{block}.linear.", "{head}.{blocks}."),
    ("medusa_head.{head}.{block}.linear.", "medusa_head.{head}.{blocks}."),
    ("blocks.{head}.layers.{block}.", "lm_heads.{head}."),
)


class MedusaHeads(NamedTuple):
    """Heads of which names and forms of all tensors are known.

    Attributes:
        heads, blocks: how many, and of each.
        stored: their parameters. files: the tensors. directory: that these are in.
    """

    heads: int
    blocks: int
    stored: Mapping[ParameterPath, StoredParameter]
    files: TensorTable
    directory: Path

    def loaded(self) -> Params:
        """Parameters: `block` "head block hidden hidden", `bias` "head block hidden" if there are any, `lm_head`.

        Raises:
            InputError: see `read_tensors`.
        """
        return read_tensors(self.stored, self.files, self.directory, finite=True)


def medusa_in(directory: Path, target: DecoderConfig) -> MedusaHeads:
    """The heads in a folder, for a target of this shape.

    Raises:
        InputError: there are none, or they do not fit the target.
    """
    place = next((path for name in MEDUSA_FILES if (path := directory / name).is_file()), None)
    if place is None and not (directory / "model.safetensors").is_file():
        raise InputError(
            f"{directory} has no Medusa heads; needed is {' or '.join(MEDUSA_FILES)}: fetch the head's files"
        )
    files = PickledFiles(place) if place is not None and place.suffix == ".pt" else CheckpointFiles(place or directory)
    count = lambda pattern: len({found.group() for name in files.tensors if (found := re.match(pattern, name))})
    for block, head in _LAYOUTS:
        inner = block.format(head=0, block=r"\d+")
        blocks = count(re.escape(inner).replace(re.escape(r"\d+"), r"\d+"))
        own = head.replace("{blocks}", str(blocks))
        heads = count(re.escape(own).replace(r"\{head\}", r"\d+"))
        if blocks and heads:
            break
    else:
        raise InputError(
            f"{place or directory} has no tensors of Medusa heads ('0.0.linear.weight', '0.1.weight' or vLLM's names); use a "
            "head of a known layout"
        )
    hidden, names = target.hidden_size, block.replace("{head}", "{layer}").replace("{block}", "{expert}")
    matrix, vector = (blocks, hidden, hidden), (blocks, hidden)
    last = (target.vocab_size, hidden)
    of = lambda shape: LayerParameter(shape, heads, (True,))
    stored = {
        ("block",): StoredParameter(f"{names}weight", matrix, of(matrix)),
        ("lm_head",): StoredParameter(f"{own.replace('{head}', '{layer}')}weight", last, of(last)),
    }
    if f"{block.format(head=0, block=0)}bias" in files.tensors:
        stored["bias",] = StoredParameter(f"{names}bias", vector, of(vector), row_axis=-1)
    checked_names(stored, frozenset(), files, directory, mixed=True)
    return MedusaHeads(heads, blocks, stored, files, directory)


def medusa_logits(
    params: Mapping[str, Any], states: Float[Array, "batch hidden"], heads: int, blocks: int
) -> Float[Array, "batch head vocab"]:
    """What each head says of the token that it predicts.

    Args:
        params: of `MedusaHeads.loaded`, arrays or matrices.
        states: behind the target's final norm.
        heads, blocks: static.
    """

    def of(head: int) -> Array:
        x = states
        for number in range(blocks):
            product = stack_of(params["block"]).take(jnp.int32(head)).take(jnp.int32(number)).dot(x)
            if "bias" in params:
                product = product + stack_of(params["bias"]).values()[head, number].astype(x.dtype)[None]
            x = x + jax.nn.silu(product)
        return stack_of(params["lm_head"]).take(jnp.int32(head)).dot(x)

    return jnp.stack([of(head) for head in range(heads)], axis=1)
