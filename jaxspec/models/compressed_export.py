"""Networks written as compressed-tensors directories, which vLLM, SGLang and transformers run: INT4 weights, or FP8.

Source: compressed-tensors; the presets W4A16 and FP8_DYNAMIC of its `quantization/quant_scheme.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from jaxspec.errors import InputError
from jaxspec.formats.container import TensorForm
from jaxspec.formats.packed_integers import fp8_rows, int4_groups
from jaxspec.formats.shard_index import INDEX_FILE
from jaxspec.models.gguf_export import open_network
from jaxspec.models.layer_files import SHARD_BYTES, index_json, plan_shards, write_shard
from jaxspec.models.stored_parameters import layer_parameters, network_parameters
from jaxspec.partial_files import to_json

__all__ = ["COMPRESSED_TYPES", "group_of", "write_compressed"]

#: Types of the layers' matrices, by their names.
COMPRESSED_TYPES = ("fp8", "w4a16")

#: Weights that share a scale in INT4.
_GROUP = 128

#: Ends the name of the tensor with rows and columns of a packed matrix.
_SHAPE = ".weight_shape"


def group_of(columns: int) -> int:
    """Weights of a row that share a scale in INT4: 128 where they divide the row."""
    return math.gcd(columns, _GROUP)


def write_compressed(
    path: Path,
    place: Path,
    kind: str,
    *,
    config: Mapping[str, Any],
    beside: Mapping[str, bytes],
    on_bytes: Callable[[int, str], None] = lambda count, name: None,
) -> tuple[float, float]:
    """Write a network as a directory, one tensor at a time.

    Args:
        place: directory, container or GGUF file of the network.
        kind: one of `COMPRESSED_TYPES`: of the layers' matrices but routers; everything else is in bfloat16.
        config: its config.json, as a network in bfloat16.
        beside: the other small files.
        on_bytes: called after each tensor with its bytes and its name.
    Returns:
        Bits of a weight, its share of scales included: of the layers' matrices, and of the embedding and the head.
    Raises:
        InputError: the network cannot be read, or has several matrices in one tensor.
    """
    assert kind in COMPRESSED_TYPES, kind
    with open_network(place) as (described, (row, files)):
        shape = described.config
        stored, layers = network_parameters(shape, row), layer_parameters(shape, row)
        matrices = {name for found in shape.matrix_kinds for name in layers["layers", found].names()}
        names = list(dict.fromkeys(name for parameter in stored.values() for name in parameter.names()))
        odd = next(
            (name for name in names if name in matrices and not _is_linear(name, files.tensors[name].shape)), None
        )
        if odd is not None:
            raise InputError(
                f"{place} has matrices of several experts in tensor {odd!r}, which compressed-tensors has one by one; export "
                "the network as gguf"
            )
        groups = {group_of(files.tensors[name].shape[1]) for name in matrices}
        size = min(groups, default=_GROUP)
        parts = lambda name: _parts(name, files.tensors[name].shape, kind if name in matrices else "bf16", size)
        forms = [form for name in names for form in parts(name)]
        packed = [form.bytes for name in matrices for form in parts(name) if not form.name.endswith(_SHAPE)]
        bits = 8 * sum(packed) / sum(math.prod(files.tensors[name].shape) for name in matrices)
        shards, values = plan_shards(forms, SHARD_BYTES), _values(names, matrices, files, kind, size)
        path.mkdir()
        for shard in shards:
            with (path / shard.name).open("wb") as file:
                write_shard(file, shard, values, on_bytes=on_bytes)
        if len(shards) > 1:
            (path / INDEX_FILE).write_text(to_json(index_json(shards)))
        plain = [
            name.removesuffix(".weight")
            for name in names
            if name not in matrices and _is_linear(name, files.tensors[name].shape)
        ]
        left = ["lm_head", *(name for name in plain if name.startswith(tuple(_layers_begin(matrices))))]
    for name, content in beside.items():
        (path / name).write_bytes(content)
    written = {**config, "quantization_config": _stated(kind, size, sorted({*left}))}
    (path / "config.json").write_text(to_json(written))
    return bits, 16.0


def _is_linear(name: str, shape: tuple[int, ...]) -> bool:
    return name.endswith(".weight") and len(shape) == 2


def _layers_begin(matrices: set[str]) -> set[str]:
    """How names of the layers' tensors begin."""
    return {name.partition(".layers.")[0] + ".layers." for name in matrices}


def _parts(name: str, shape: tuple[int, ...], kind: str, size: int) -> Iterator[TensorForm]:
    """What is written of a tensor."""
    form = lambda part, dtype, sizes, width: TensorForm(part, dtype, sizes, math.prod(sizes) * width)
    stem = name.removesuffix(".weight")
    if kind == "bf16":
        yield form(name, "BF16", shape, 2)
    elif kind == "fp8":
        yield form(name, "F8_E4M3", shape, 1)
        yield form(f"{stem}.weight_scale", "BF16", (shape[0], 1), 2)
    else:
        yield form(f"{stem}.weight_packed", "I32", (shape[0], -(-shape[1] // 8)), 4)
        yield form(f"{stem}.weight_scale", "BF16", (shape[0], shape[1] // size), 2)
        yield form(stem + _SHAPE, "I64", (2,), 8)


def _values(names: list[str], matrices: set[str], files: Any, kind: str, size: int) -> Iterator[np.ndarray]:
    for name in names:
        value = files.read(name)
        if name not in matrices:
            yield value.astype(ml_dtypes.bfloat16)
        elif kind == "fp8":
            yield from fp8_rows(value.astype(np.float32))
        else:
            yield from int4_groups(value.astype(np.float32), size)
            yield np.array(value.shape, np.int64)
        files.release()


def _stated(kind: str, size: int, ignored: list[str]) -> dict[str, Any]:
    """The `quantization_config`."""
    common = {"symmetric": True, "dynamic": False, "observer": "minmax"}
    weights = (
        {"num_bits": 8, "type": "float", "strategy": "channel", **common}
        if kind == "fp8"
        else {"num_bits": 4, "type": "int", "strategy": "group", "group_size": size, **common}
    )
    inputs = (
        {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": True, "dynamic": True}
        if kind == "fp8"
        else None
    )
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized" if kind == "fp8" else "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": inputs}},
        "ignore": ignored,
        "kv_cache_scheme": None,
    }
