"""Tensors that a checkpoint stores in fewer bits, as codes or as the 16-bit ones that they stand for: here those in MXFP4.

A matrix lies in two tensors of bytes: `<name>_blocks`, "... row block 16", of which each byte holds two elements, the first
one in its low bits; and `<name>_scales`, "... row block". Every value is a power of two times one of 16 numbers of two
significant bits, which bfloat16 holds exactly: reading loses nothing, and 4.25 bits become 16.

Source: OCP Microscaling Formats (MX) Specification v1.0; the layout is that of the gpt-oss release.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection

import jax.numpy as jnp
import ml_dtypes
import numpy as np

from hwmodels.networks import Running
from hwmodels.networks.packing import Packing
from jaxspec.errors import InputError
from jaxspec.formats.codes import Codes
from jaxspec.formats.mx import BLOCK_SIZE, E2M1, MXTensor, decode
from jaxspec.formats.packed_integers import fp4_codes
from jaxspec.models.checkpoint_files import STORED_DTYPES, InCodes, TensorPlace, TensorTable
from jaxspec.models.quantized_files import QuantizedFiles, parts_of

__all__ = ["UnpackedFiles", "packed_in_bits", "stored_under", "unpacked", "unpacked_mxfp4"]

#: Types of packed values, as safetensors spells them -> the format.
_IN_WORDS = {"U8": "MXFP4", "F8_E4M3": "FP8", "I8": "INT8", "I32": "packed integers"}

_BLOCKS, _SCALES = "_blocks", "_scales"


def unpacked_mxfp4(blocks: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The values of a tensor in MXFP4, "... row column" in bfloat16, exact.

    A scale of 255 makes its block NaN; what exceeds bfloat16 (elements above 3 under the largest scale) becomes an infinity.

    Args:
        blocks: bytes, "... row block 16". scales: E8M0 codes, "... row block".
    """
    rows, count, half = blocks.shape[-3:]
    out = np.empty((*blocks.shape[:-2], count * half * 2), np.uint16)
    flat = zip(
        blocks.reshape(-1, rows, count, half), scales.reshape(-1, rows, count), out.reshape(-1, rows, count, half * 2)
    )
    for part, scale, values in flat:  # an expert at a time: indices and pairs take six bytes for each byte
        pairs = _pairs()[(scale.astype(np.uint16) << 8)[..., None] | part]
        values[...] = pairs.view(np.uint16)
    return out.view(ml_dtypes.bfloat16)


@functools.cache
def _pairs() -> np.ndarray:
    """Patterns of the two bfloat16 values of a byte under a scale, by 256 scale + byte, both in one integer of 32 bits."""
    scale = jnp.arange(256, dtype=jnp.uint8)[:, None]
    elements = jnp.broadcast_to(jnp.arange(16, dtype=jnp.uint8), (256, 1, 16))
    single = np.asarray(decode(MXTensor(scale, elements, E2M1, 16))).astype(ml_dtypes.bfloat16).view(np.uint16)
    byte = np.arange(256)
    return np.stack([single[:, byte & 15], single[:, byte >> 4]], axis=-1).view(np.uint32).reshape(-1)


class UnpackedFiles(TensorTable):
    """Tensors of a checkpoint, each pair of blocks and scales as one tensor in bfloat16, with input channels before outputs.

    That is how the family stores the same matrices unpacked.
    """

    def __init__(self, files: TensorTable, *, codes: bool = True):
        """Find the pairs.

        Args:
            codes: give them as codes too.
        Raises:
            InputError: scales without blocks or the reverse, shapes that do not fit together, or the same tensor in both forms.
        """
        self._files = files
        self._packed = {name.removesuffix(_BLOCKS) for name in files.tensors if name.endswith(_BLOCKS)}
        found = dict(files.tensors)
        for name in sorted(self._packed):
            found[name] = _place(name, files)
            del found[name + _BLOCKS], found[name + _SCALES]
        self.tensors: dict[str, TensorPlace] = found
        count = lambda name: sum(math.prod(files.tensors[name + part].shape) for part in (_BLOCKS, _SCALES))
        if codes:
            self.in_codes = {name: InCodes(count(name), STORED_DTYPES["BF16"]) for name in self._packed}

    def codes(self, name: str) -> Codes:
        """See `TensorTable`."""
        blocks, scales = self._files.read(name + _BLOCKS), self._files.read(name + _SCALES)
        return fp4_codes(blocks.reshape(*blocks.shape[:-2], -1), scales)

    def read(self, name: str) -> np.ndarray:
        """One tensor; see `unpacked_mxfp4`."""
        if name not in self._packed:
            return self._files.read(name)
        return unpacked_mxfp4(self._files.read(name + _BLOCKS), self._files.read(name + _SCALES)).swapaxes(-1, -2)

    def release(self) -> None:
        """See `TensorTable`."""
        self._files.release()


def _place(name: str, files: TensorTable) -> TensorPlace:
    blocks, scales = files.tensors[name + _BLOCKS], files.tensors.get(name + _SCALES)
    wanted = (
        f"needed are two tensors of bytes, '... row block {BLOCK_SIZE // 2}' and '... row block': fetch the file again"
    )
    if scales is None:
        raise InputError(f"{blocks.path} has tensor {name + _BLOCKS!r} without {name + _SCALES!r}; {wanted}")
    if name in files.tensors:
        raise InputError(
            f"{blocks.path} has tensor {name!r} both packed and unpacked; allowed is one of them: remove one"
        )
    whole = len(blocks.shape) > 2 and blocks.shape == (*scales.shape, BLOCK_SIZE // 2)
    if not whole or {blocks.dtype, scales.dtype} != {"U8"}:
        raise InputError(
            f"{blocks.path} has tensor {name + _BLOCKS!r} of {blocks.dtype} {blocks.shape} with scales of {scales.dtype} "
            f"{scales.shape}; {wanted}"
        )
    *lead, rows, count = scales.shape
    return TensorPlace(blocks.path, (*lead, count * BLOCK_SIZE, rows), "BF16")


def packed_in_bits(files: TensorTable) -> frozenset[str]:
    """Formats of fewer than 16 bits that tensors of the files have, in words, before `unpacked`."""
    found = frozenset(_IN_WORDS[place.dtype] for place in files.tensors.values() if place.dtype in _IN_WORDS)
    ends = {name.rpartition(".")[2] for name in files.tensors}
    if kinds := ends & {"bitsandbytes__nf4", "bitsandbytes__fp4"}:
        return frozenset(kind.removeprefix("bitsandbytes__").upper() for kind in kinds)
    # Of this form the scales are in FP8.
    whole = not ends.isdisjoint({"weight_global_scale", "weight_scale_2"}) and "MXFP4" in found
    return found - {"MXFP4", "FP8"} | {"NVFP4"} if whole else found


def stored_under(name: str, stored: Collection[str]) -> tuple[str, ...]:
    """Names under which files store a tensor that networks read by its own.

    Args:
        stored: names of all tensors in the files.
    """
    parts = parts_of(name, stored)
    return (name + _BLOCKS, name + _SCALES) if parts == (name,) and name not in stored else parts


def unpacked(
    files: TensorTable, row: Running, packing: Packing | None = None, *, wide: bool = False, codes: bool = True
) -> TensorTable:
    """The tensors as networks of a family read them.

    Args:
        packing: of a quantized release; None: matrices are stored as they are, or as the family's releases have them.
        wide: see `QuantizedFiles`. codes: see `UnpackedFiles`.
    """
    if packing is not None and packing.method != row.packed:
        return QuantizedFiles(files, packing, wide=wide)
    return UnpackedFiles(files, codes=codes) if row.packed == "mxfp4" else files
