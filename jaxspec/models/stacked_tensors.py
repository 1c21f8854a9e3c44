"""Tensors of a checkpoint as one parameter: stacked in memory, or left where they lie, one entry for each layer."""

from __future__ import annotations

import math

import numpy as np

from jaxspec.errors import InputError
from jaxspec.models.checkpoint_files import STORED_DTYPES, TensorTable
from jaxspec.models.stored_parameters import StoredParameter

__all__ = ["entries_of", "read_stacked"]

_ALIGNMENT = 64


def read_stacked(
    names: list[str], parameter: StoredParameter, files: TensorTable, wanted: np.dtype | None
) -> np.ndarray:
    """A parameter's rows of tensors of one form along a new leading axis; only one tensor is held beside the result.

    Raises:
        InputError: a value overflows the number format that is wanted.
    """
    first = files.tensors[names[0]]
    out = _aligned((len(names), *parameter.part_shape), np.dtype(wanted or STORED_DTYPES[first.dtype]))
    for layer, name in enumerate(names):
        tensor = parameter.part_of(files.read(name))
        with np.errstate(all="ignore"):  # overflow is reported below; a NaN stays one
            out[layer] = tensor
        if out.dtype != tensor.dtype and not np.array_equal(np.isinf(out[layer]), np.isinf(tensor)):
            raise InputError(
                f"tensor {name!r} in {files.tensors[name].path} overflows {out.dtype}; every value must fit: "
                "load as float32 or keep the stored dtype"
            )
    return out


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array that JAX takes as it is on a CPU, where others are copied: it begins at a multiple of 64 bytes."""
    size = math.prod(shape) * dtype.itemsize
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


def entries_of(
    names: list[str], parameter: StoredParameter, files: TensorTable, wanted: np.dtype | None
) -> list[np.ndarray] | np.ndarray:
    """A parameter matrix by matrix, or outside the layers row by row; where they are as wanted, views of the tensors."""
    if wanted in (None, STORED_DTYPES[files.tensors[names[0]].dtype]):
        found = [parameter.part_of(files.read(name)) for name in names]
    else:
        found = [read_stacked([name], parameter, files, wanted)[0] for name in names]
    if parameter.of_layers is None:
        return found[0]
    whole = parameter.parts is None and parameter.lead is not None and len(parameter.lead) > 1
    return [expert for layer in found for expert in layer] if whole else found
