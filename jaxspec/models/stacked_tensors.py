"""Tensors of a checkpoint as one parameter: stacked in memory, or left where they lie, one entry for each layer."""

from __future__ import annotations

import math

import numpy as np

from jaxspec.errors import InputError
from jaxspec.models.checkpoint_files import STORED_DTYPES, TensorTable
from jaxspec.models.stored_parameters import StoredParameter

__all__ = ["check_finite", "entries_of", "read_stacked"]

_ALIGNMENT = 64


def read_stacked(
    names: list[str],
    parameter: StoredParameter,
    files: TensorTable,
    wanted: np.dtype | None,
    *,
    finite: bool = False,
) -> np.ndarray:
    """A parameter's rows of tensors of one form along a new leading axis; only one tensor is held beside the result.

    Args:
        finite: see `check_finite`.
    Raises:
        InputError: a value overflows the number format that is wanted, or is not finite.
    """
    first = files.tensors[names[0]]
    out = _aligned((len(names), *parameter.part_shape), np.dtype(wanted or STORED_DTYPES[first.dtype]))
    for layer, name in enumerate(names):
        tensor = parameter.part_of(files.read(name))
        with np.errstate(all="ignore"):  # overflow is reported below; a NaN stays one
            out[layer] = tensor
        if finite:
            check_finite(tensor, name, files)
        if out.dtype != tensor.dtype and not np.array_equal(np.isinf(out[layer]), np.isinf(tensor)):
            raise InputError(
                f"tensor {name!r} in {files.tensors[name].path} overflows {out.dtype}; every value must fit: "
                "load as float32 or keep the stored dtype"
            )
    return out


def check_finite(tensor: np.ndarray, name: str, files: TensorTable) -> None:
    """A tensor holds numbers alone: a network with anything else says nothing, or the same whatever its draft is.

    Raises:
        InputError: it holds NaN or infinities.
    """
    bits = 8 * tensor.dtype.itemsize
    infinity = int(np.array(np.inf, tensor.dtype).view(f"u{tensor.dtype.itemsize}"))
    # By the largest patterns of either sign, which takes no memory: NaN and infinities are above all numbers.
    largest = (tensor.view(f"{kind}{tensor.dtype.itemsize}").max(initial=0) for kind in "iu")
    if any(int(found) >= least for found, least in zip(largest, (infinity, infinity | 1 << (bits - 1)))):
        count = np.count_nonzero(~np.isfinite(tensor.astype(np.float32)))
        raise InputError(
            f"tensor {name!r} in {files.tensors[name].path} holds NaN or infinities ({count} of {tensor.size} values); every "
            "weight must be a finite number: fetch the file again, or convert the checkpoint anew"
        )


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array that JAX takes as it is on a CPU, where others are copied: it begins at a multiple of 64 bytes."""
    size = math.prod(shape) * dtype.itemsize
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


def entries_of(
    names: list[str],
    parameter: StoredParameter,
    files: TensorTable,
    wanted: np.dtype | None,
    *,
    finite: bool = False,
) -> list[np.ndarray] | np.ndarray:
    """A parameter matrix by matrix, or outside the layers row by row; where they are as wanted, views of the tensors.

    Arguments and errors as of `read_stacked`.
    """
    if wanted in (None, STORED_DTYPES[files.tensors[names[0]].dtype]):
        found = [parameter.part_of(files.read(name)) for name in names]
        for name, tensor in zip(names, found) if finite else ():
            check_finite(tensor, name, files)
            files.release()
    else:
        found = [read_stacked([name], parameter, files, wanted, finite=finite)[0] for name in names]
    if parameter.of_layers is None:
        return found[0]
    whole = parameter.parts is None and parameter.lead is not None and len(parameter.lead) > 1
    return [expert for layer in found for expert in layer] if whole else found
