"""Matrices that a checkpoint stores in FP8 with a scale for each block, read as the 16-bit ones that they stand for.

Beside `<name>`, "row column" in E4M3, lies `<name>_scale_inv`, by which the elements of each block are multiplied; the last
blocks of a row or column may be cut. Products are rounded to bfloat16, as the releases' own conversion to 16 bits does it.
Kernels that multiply in FP8 also round what enters a product; that is left out here.

Source: the release of DeepSeek-V3, inference/fp8_cast_bf16.py; transformers 5, integrations/finegrained_fp8.py.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from jaxspec.errors import InputError
from jaxspec.models.checkpoint_files import STORED_DTYPES, TensorPlace, TensorTable

__all__ = ["SCALE_SUFFIX", "ScaledFiles", "scaled_values"]

#: Ends the name of the scales of a matrix.
SCALE_SUFFIX = "_scale_inv"

_ELEMENTS = "F8_E4M3"


def scaled_values(elements: np.ndarray, scales: np.ndarray, block: tuple[int, int]) -> np.ndarray:
    """Elements times the scales of their blocks, "row column" in bfloat16, rounded once.

    Args:
        elements: "row column", E4M3. scales: a number for each block.
    """
    rows, columns = elements.shape
    out = np.empty((rows, columns), ml_dtypes.bfloat16)
    # A block may be larger than the matrix, by whatever config.json says.
    wide = np.repeat(scales.astype(np.float32), min(block[1], columns), axis=1)[:, :columns]
    for place, scale in enumerate(wide):  # a row of blocks at a time, so that no matrix lies in memory in float32
        part = slice(place * block[0], (place + 1) * block[0])
        out[part] = elements[part].astype(np.float32) * scale
    return out


class ScaledFiles:
    """Tensors of a checkpoint, each matrix with its scales as one tensor in bfloat16."""

    def __init__(self, files: TensorTable, block: tuple[int, int]):
        """Find the pairs.

        Raises:
            InputError: scales without a matrix, or the reverse; shapes that do not fit together.
        """
        self._files, self._block = files, block
        self._scaled = {name.removesuffix(SCALE_SUFFIX) for name in files.tensors if name.endswith(SCALE_SUFFIX)}
        found = {name: place for name, place in files.tensors.items() if not name.endswith(SCALE_SUFFIX)}
        for name in sorted(self._scaled):
            found[name] = _place(name, files, block)
        alone = sorted(name for name, place in found.items() if place.dtype == _ELEMENTS)
        if alone:
            raise InputError(
                f"{found[alone[0]].path} has tensor {alone[0]!r} in FP8 without {alone[0] + SCALE_SUFFIX!r}; needed are both: "
                "fetch all files of the checkpoint again"
            )
        self.tensors: dict[str, TensorPlace] = found

    def read(self, name: str) -> np.ndarray:
        """One tensor; see `scaled_values`."""
        if name not in self._scaled:
            return self._files.read(name)
        return scaled_values(self._files.read(name), self._files.read(name + SCALE_SUFFIX), self._block)

    def release(self) -> None:
        """See `TensorTable`."""
        self._files.release()


def _place(name: str, files: TensorTable, block: tuple[int, int]) -> TensorPlace:
    scales, elements = files.tensors[name + SCALE_SUFFIX], files.tensors.get(name)
    if elements is None:
        raise InputError(
            f"{scales.path} has tensor {name + SCALE_SUFFIX!r} without {name!r}; needed are both: fetch all files of the "
            "checkpoint again"
        )
    # -(-a // b) rounds up: the last blocks may be cut.
    wanted = tuple(-(-size // share) for size, share in zip(elements.shape, block, strict=False))
    fits = len(elements.shape) == 2 and scales.shape == wanted
    if not fits or elements.dtype != _ELEMENTS or scales.dtype not in STORED_DTYPES:
        raise InputError(
            f"{elements.path} has tensor {name!r} of {elements.dtype} {elements.shape} with scales of {scales.dtype} "
            f"{scales.shape}; needed are a matrix of {_ELEMENTS} and a scale for each block of {block[0]} x {block[1]}: use a "
            "checkpoint whose config.json and weights agree"
        )
    return TensorPlace(elements.path, elements.shape, "BF16")
