"""Tensors that a checkpoint stores in fewer bits, as codes or as the 16-bit ones that they stand for: here those in MXFP4.

A matrix lies in two tensors of bytes: `<name>_blocks`, "... row block 16", of which each byte holds two elements, the first
one in its low bits; and `<name>_scales`, "... row block". Every value is a power of two times one of 16 numbers of two
significant bits, which bfloat16 holds exactly: reading loses nothing, and 4.25 bits become 16.

Source: OCP Microscaling Formats (MX) Specification v1.0; the layout is that of the gpt-oss release.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Collection
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np

from hwmodels.networks import Running
from hwmodels.networks.packing import Packing
from jaxspec.errors import InputError, one_line
from jaxspec.formats.codes import Codes
from jaxspec.formats.mx import BLOCK_SIZE, E2M1, MXTensor, decode
from jaxspec.formats.packed_integers import awq_codes, fp4_codes, gptq_codes, nf4_codes, packed_codes, scaled_rows
from jaxspec.models.checkpoint_files import STORED_DTYPES, InCodes, TensorPlace, TensorTable, bytes_of

__all__ = [
    "QuantizedFiles",
    "UnpackedFiles",
    "packed_in_bits",
    "parts_of",
    "stored_under",
    "unpacked",
    "unpacked_mxfp4",
]

# Quantized releases, read as the networks that they stand for: compressed-tensors, GPTQ, AWQ, FP8, INT8, NF4 and FP4.

#: Ends of the names of tensors that change no weight: scales of what enters a product, and of keys and values.
_BESIDE = tuple(
    f".{name}"
    for name in (
        *("input_scale", "input_zero_point", "input_global_scale", "activation_scale", "output_scale"),
        *("q_scale", "k_scale", "v_scale", "weight_scale_ub", "input_scale_ub"),
    )
)

#: Ends of the names of a matrix's tensors -> those of its parts, of which the first one has the codes.
_PARTS: dict[str, tuple[str, ...]] = {
    ".weight_packed": ("weight_scale", "weight_shape", "weight_zero_point", "weight_g_idx", "weight_global_scale"),
    ".qweight": ("scales", "qzeros", "g_idx"),
    ".weight": (
        *("weight_scale", "weight_scale_inv", "weight_scale_2", "weight_zero_point"),
        *("weight.absmax", "weight.quant_map", "weight.nested_absmax", "weight.nested_quant_map"),
        *("weight.quant_state.bitsandbytes__nf4", "weight.quant_state.bitsandbytes__fp4"),
    ),
}

#: Types of values as bitsandbytes names them.
_OF_STATE = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}


def parts_of(name: str, stored: Collection[str]) -> tuple[str, ...]:
    """Names of the tensors that a matrix is stored in, `name` alone where it is stored as it is.

    Args:
        stored: names of all tensors in the files.
    """
    stem = name.removesuffix(".weight")
    for end, parts in _PARTS.items():
        found = tuple(f"{stem}.{part}" for part in parts if f"{stem}.{part}" in stored)
        if stem + end in stored and (found or end != ".weight"):
            return (stem + end, *found)
    return (name,)


class QuantizedFiles(TensorTable):
    """Tensors of a quantized release, each matrix as one tensor of numbers, and as codes."""

    def __init__(self, files: TensorTable, packing: Packing, *, wide: bool = False):
        """Find the tensors of each matrix.

        Args:
            wide: the network is one in float32, so that scales in float32 give such values.
        Raises:
            InputError: tensors of a matrix are missing, or do not fit together.
        """
        self._files, self._packing, self._wide = files, packing, wide
        self._made: dict[str, Callable[[], Codes]] = {}
        self._held: dict[str, InCodes] = {}
        self.in_codes = self._held
        self.tensors: dict[str, TensorPlace] = {}
        used: set[str] = set()
        for name in files.tensors:
            stem = next((name.removesuffix(end) for end in _PARTS if name.endswith(end)), None)
            names = () if stem is None else parts_of(f"{stem}.weight", files.tensors)
            if name in names[:1] and len(names) > 1:
                used |= {*names}
                self._add(f"{stem}.weight", names)
        for name, place in files.tensors.items():
            if name not in used and not name.endswith(_BESIDE):
                self._refuse_alone(name, place)
                self.tensors[name] = place

    def _refuse_alone(self, name: str, place: TensorPlace) -> None:
        alone = any(name.endswith(f".{part}") for parts in _PARTS.values() for part in parts)
        if alone or name.endswith((".weight_packed", ".qweight")) or place.dtype in ("F8_E4M3", "I8"):
            raise InputError(
                f"{place.path} has tensor {name!r} of {place.dtype} without the others of its matrix, codes and scales; fetch "
                "all files of the checkpoint again"
            )

    def _add(self, name: str, names: tuple[str, ...]) -> None:
        tails = (each.rpartition(".")[2] for each in names)
        parts = dict(zip(("quant_state" if "__" in tail else tail for tail in tails), names, strict=True))
        places, packing = self._files.tensors, self._packing
        codes = places[names[0]]

        def read(part: str) -> Any:
            return self._files.read(parts[part]) if part in parts else None

        known = ("weight_scale", "scales", "weight_scale_inv", "absmax")
        scale = next((parts[part] for part in known if part in parts), names[0])
        own = places[scale].dtype if places[scale].dtype in ("F16", "BF16") else "F32" if self._wide else "BF16"
        try:
            if places[scale].dtype not in (*STORED_DTYPES, "U8", "F8_E4M3", "F8_E8M0") or scale == names[0]:
                raise ValueError("no scales")
            if "qweight" in parts:
                if "qzeros" not in parts:
                    raise ValueError("no qzeros")
                shape, made = self._of_qweight(codes.shape, read)
            elif scale == parts.get("absmax"):
                state = json.loads(read("quant_state").tobytes())
                shape, own = state["shape"], _OF_STATE[state["dtype"]]
                made = lambda: nf4_codes(read, state)
            elif codes.dtype == "U8":
                shape = (codes.shape[0], 2 * codes.shape[1])
                divides = "weight_global_scale" in parts
                whole = "weight_global_scale" if divides else "weight_scale_2"
                made = lambda: fp4_codes(self._files.read(names[0]), read("weight_scale"), read(whole), divides=divides)
            elif "weight_packed" in parts:
                rows, columns = (int(size) for size in np.asarray(read("weight_shape")).reshape(-1))
                shape = (rows, columns)
                made = lambda: packed_codes(
                    read("weight_packed"),
                    read("weight_scale"),
                    columns,
                    bits=packing.bits,
                    zeros=read("weight_zero_point"),
                    groups=read("weight_g_idx"),
                )
            else:
                shape = codes.shape
                if len(shape) != 2 or codes.dtype not in ("F8_E4M3", "I8"):
                    raise ValueError("no elements in FP8 or INT8")
                made = lambda: scaled_rows(
                    read("weight"), self._files.read(scale), read("weight_zero_point"), block=packing.block
                )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{codes.path} has tensor {names[0]!r} of {codes.dtype} {codes.shape} beside {', '.join(names[1:])}, which is "
                f"no matrix of {packing.method} ({one_line(error)}); use a checkpoint whose config.json and weights agree"
            ) from error
        held = sum(math.prod(places[each].shape) * bytes_of(places[each]) for each in names)
        self._held[name] = InCodes(held, STORED_DTYPES[own])
        self.tensors[name] = TensorPlace(codes.path, tuple(shape), own)
        self._made[name] = made

    def _of_qweight(
        self, shape: tuple[int, ...], read: Callable[[str], Any]
    ) -> tuple[tuple[int, int], Callable[[], Codes]]:
        packing = self._packing
        if packing.method == "awq":
            return (shape[1] * 8, shape[0]), lambda: awq_codes(read("qweight"), read("qzeros"), read("scales"))
        return (shape[1], shape[0] * 32 // packing.bits), lambda: gptq_codes(
            read("qweight"),
            read("qzeros"),
            read("scales"),
            packing.bits,
            groups=read("g_idx"),
            offset=packing.offset,
        )

    def codes(self, name: str) -> Codes:
        """See `TensorTable`. Raises InputError: see `read`."""
        place = self.tensors[name]
        try:
            found = self._made[name]()
            if (shape := (len(found.codes), found.columns)) != place.shape:
                raise ValueError(f"{shape} is not {place.shape}")
        except (IndexError, ValueError) as error:
            raise InputError(
                f"{place.path}: the tensors of {name!r} do not fit together ({one_line(error)}); fetch all files of the "
                "checkpoint again"
            ) from error
        return found

    def read(self, name: str) -> np.ndarray:
        """One tensor.

        Raises:
            InputError: tensors of a matrix that do not fit together.
        """
        if name not in self._made:
            return self._files.read(name)
        found = self.codes(name)
        with np.errstate(all="ignore"):  # what is no number stays none, and is counted where values are checked
            return found.values().astype(STORED_DTYPES[self.tensors[name].dtype])

    def release(self) -> None:
        """See `TensorTable`."""
        self._files.release()


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
