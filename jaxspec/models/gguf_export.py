"""Networks written as GGUF files, which llama.cpp and what is built on it run: matrices in 16, 8 or 4 bits.

A GGUF file is written again with its own metadata. A checkpoint becomes the architecture of llama.cpp whose metadata, read
back, describe the very same network; where none does, it is refused.

Source: llama.cpp, the converters from Hugging Face checkpoints; blocks and container by the library `gguf`.
Departs: in a file of blocks the embedding and the head have 8 bits, where llama.cpp's own tool gives them Q6_K, which the
    library cannot write.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from hwmodels.networks import FAMILIES, Running, running_row
from jaxspec.errors import InputError
from jaxspec.formats.container import Container
from jaxspec.models.checkpoint_files import CheckpointFiles, ContainerFiles, TensorTable
from jaxspec.models.config import DecoderConfig, decoder_config
from jaxspec.models.described import Described, NamedTensors, described_in, packed_in
from jaxspec.models.embedded import is_container
from jaxspec.models.gguf import is_gguf, open_gguf
from jaxspec.models.gguf.files import rows_in_file, split_files
from jaxspec.models.gguf.settings import Converted, config_of, converted_as, metadata_of
from jaxspec.models.gguf.tokenizers import tokenizer_metadata
from jaxspec.models.hf_export import config_json
from jaxspec.models.special_tokens import json_beside, read_beside
from jaxspec.models.stored_parameters import StoredParameter, network_parameters

__all__ = ["GGUF_TYPES", "open_network", "write_gguf"]

#: Types that matrices are written in, by their names.
GGUF_TYPES = ("f16", "bf16", "q8_0", "q4_0")

#: Matrices that need more than 4 bits, and those that engines read in float32.
_ENDS, _ROUTERS = ("token_embd.weight", "output.weight"), ("ffn_gate_inp.weight",)

_BLOCK = 32


class _Tensor(NamedTuple):
    """A tensor to be written: its name and shape, and what makes its values."""

    name: str
    shape: tuple[int, ...]
    values: Callable[[], np.ndarray]


class _Network(NamedTuple):
    architecture: str
    add_metadata: Callable[[Any], None]
    tensors: list[_Tensor]


@contextlib.contextmanager
def open_network(place: Path) -> Iterator[tuple[Described, NamedTensors]]:
    """A network as config.json has it, and its tensors: of a directory, a container or a GGUF file.

    Blocks of a GGUF file are read as float32.

    Raises:
        InputError: it cannot be read.
    """
    if is_container(place):
        with Container(place) as container:
            found = packed_in(container)
            yield found, found.tensors(ContainerFiles(container, "target"), place)
        return
    found = described_in(place)
    yield found, found.tensors(CheckpointFiles(place, exact=True), place)


def write_gguf(
    path: Path, place: Path, kind: str, *, on_bytes: Callable[[int, str], None] = lambda count, name: None
) -> tuple[float, float]:
    """Write a network with its tokenizer, one tensor at a time.

    Args:
        place: directory, container or GGUF file of the network.
        kind: one of `GGUF_TYPES`: of all matrices; in a file of blocks the embedding and the head are in Q8_0, and matrices
            whose rows are no multiple of 32 long in F16. Vectors are in float32.
        on_bytes: called after each tensor with its bytes and its name.
    Returns:
        Bits of a weight, its share of scales included: of the layers' matrices, and of the embedding and the head.
    Raises:
        InputError: the network or its tokenizer cannot be read, or cannot be said in a GGUF file.
    """
    try:
        import gguf
    except ImportError as error:
        raise InputError("GGUF files need the package gguf; run: pip install 'jaxspec[gguf]'") from error
    assert kind in GGUF_TYPES, kind
    with contextlib.ExitStack() as stack:
        network = _copied(place) if is_gguf(place) else _converted(place, *stack.enter_context(open_network(place)))
        writer = gguf.GGUFWriter(path, network.architecture)
        stack.callback(writer.close)
        network.add_metadata(writer)
        writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{kind.upper()}"])
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        types = [gguf.GGMLQuantizationType[_type(tensor, kind)] for tensor in network.tensors]
        stored = np.zeros((2, 2))
        for tensor, given in zip(network.tensors, types, strict=True):
            block, size = gguf.GGML_QUANT_SIZES[given]
            count = int(np.prod(tensor.shape))
            writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), count // block * size, given)
            if _is_matrix(tensor):
                stored[int(tensor.name in _ENDS)] += 8 * (count // block * size), count
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor, given in zip(network.tensors, types, strict=True):
            wide = np.ascontiguousarray(tensor.values(), np.float32)
            with np.errstate(over="ignore"):
                written = wide if given.name == "F32" else gguf.quants.quantize(wide, given)
            if given.name == "F16" and not np.isfinite(written).all():
                raise InputError(f"tensor {tensor.name!r} of {place} has values beyond float16; write bf16 or q8_0")
            writer.write_tensor_data(written)
            on_bytes(written.nbytes, tensor.name)
    layers, ends = (stored[:, 0] / stored[:, 1]).tolist()
    return layers, ends


def _is_matrix(tensor: _Tensor) -> bool:
    return len(tensor.shape) > 1 and not tensor.name.endswith(_ROUTERS)


def _type(tensor: _Tensor, kind: str) -> str:
    """The type that a tensor is written in."""
    if not _is_matrix(tensor):
        return "F32"
    if kind in ("f16", "bf16"):
        return kind.upper()
    if tensor.shape[-1] % _BLOCK:
        return "F16"
    return "Q8_0" if tensor.name in _ENDS else kind.upper()


def _copied(place: Path) -> _Network:
    """A GGUF file as it is, its values widened."""
    import gguf

    readers = [gguf.GGUFReader(file) for file in split_files(open_gguf(place).path)]
    left = ("GGUF.", "split.", "general.file_type", "general.quantization_version", "general.architecture")

    def add(writer: Any) -> None:
        for name, field in readers[0].fields.items():
            if not name.startswith(left):
                writer.add_key_value(name, field.contents(), *field.types[:2])

    def tensor(found: Any) -> _Tensor:
        shape = tuple(int(length) for length in reversed(found.shape))
        values = lambda: gguf.quants.dequantize(found.data, found.tensor_type).reshape(shape)
        return _Tensor(found.name, shape, values)

    architecture = readers[0].fields["general.architecture"].contents()
    return _Network(architecture, add, [tensor(found) for reader in readers for found in reader.tensors])


def _converted(place: Path, found: Described, source: NamedTensors) -> _Network:
    """A checkpoint as its family's architecture, or as "llama", to which llama.cpp converts several families."""
    config = found.config
    positions = json_beside(place, "config.json")
    positions = int(positions.get("text_config", positions).get("max_position_embeddings") or 2048)
    tied = [] if config.tie_embeddings else ["output.weight"]
    for architecture, row in converted_as():
        family = FAMILIES[row.model_type]
        if architecture != "llama" and family.name != found.family.name:
            continue
        try:
            written = config_json(config, max_positions=positions, family=family)
            own, settings = metadata_of(architecture, row, config, written)
            tensors = _tensors(config, source, running_row(family), row, architecture, written)
            names = [*(tensor.name for tensor in tensors), *tied, *settings]
            read = config_of({"general.architecture": architecture, **own}, names, config.vocab_size, settings)
            back = decoder_config(read | {"architectures": [running_row(family).architecture]})
        except (NotImplementedError, ValueError):
            continue
        if _same(back, config, positions):
            extra = [_Tensor(name, value.shape, lambda value=value: value) for name, value in settings.items()]
            words = tokenizer_metadata(lambda name: read_beside(place, name), place, config.vocab_size)
            return _Network(architecture, functools.partial(_add, own | words, place.stem), [*tensors, *extra])
    raise InputError(
        f"{place} has a network that no architecture of GGUF files known here computes ({', '.join(dict(converted_as()))}); "
        "export it as compressed-tensors, or convert it with llama.cpp's convert_hf_to_gguf.py"
    )


def _same(found: DecoderConfig, wanted: DecoderConfig, positions: int) -> bool:
    """Whether two networks compute the same, but for what float32 rounds in how they rotate."""
    plain = [dataclasses.replace(config, rope_scaling=None) for config in (found, wanted)]
    if plain[0] != plain[1] or (found.rope_scaling is None) != (wanted.rope_scaling is None):
        return False
    if found.rope_scaling is None or wanted.rope_scaling is None:
        return True
    turns = [
        np.asarray(
            each.frequencies(wanted.rope_theta, wanted.rotated_elements, jnp.array([length], jnp.int32)), np.float32
        ).reshape(-1)
        for each in (found.rope_scaling, wanted.rope_scaling)
        for length in (1, positions)
    ]
    factors = [getattr(each, "attention_factor", 1.0) for each in (found.rope_scaling, wanted.rope_scaling)]
    return np.allclose(turns[:2], turns[2:], rtol=1e-5, atol=0) and math.isclose(*factors, rel_tol=1e-6)


def _add(metadata: Mapping[str, Any], name: str, writer: Any) -> None:
    """Metadata by the types of their values; whole numbers are unsigned."""
    writer.add_name(name)
    for key, value in metadata.items():
        if isinstance(value, list):
            writer.add_array(key, value)
        else:
            add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
            add[type(value)](key, value)


def _tensors(
    config: DecoderConfig,
    source: NamedTensors,
    row: Running,
    converted: Converted,
    architecture: str,
    written: Mapping[str, Any],
) -> list[_Tensor]:
    """Tensors of a network under the names, and with the rows, of a GGUF file.

    Raises:
        NotImplementedError: the architecture has no name for one.
    """
    import gguf

    number = next(number for number, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(number, config.num_layers)
    theirs = network_parameters(config, source.row)
    stored = sorted(network_parameters(config, row).items(), key=lambda item: item[1].tensor)
    found: list[_Tensor] = []
    for template, group in itertools.groupby(stored, key=lambda item: item[1].tensor):
        pairs = [(parameter, theirs[path]) for path, parameter in group]
        first = pairs[0][0]
        for layer in (0,) if first.of_layers is None else first.of_layers.layers():
            merged = template.replace(".{expert}", "").format(layer=layer)
            name = names.get_name(merged, try_suffixes=(".weight", ".bias"))
            if name is None:
                raise NotImplementedError(f"{architecture} has no tensor for {merged}")
            lead = () if first.parts is None else (first.parts,)
            shape = (*lead, *first.tensor_shape)
            rows = rows_in_file(merged, written, converted, shape[0])
            added = float(converted.shifted and merged.endswith("norm.weight"))
            values = lambda pairs=pairs, layer=layer, shape=shape, rows=rows, added=added: _values(
                pairs, source.files, layer, shape, rows, added
            )
            found.append(_Tensor(name, shape, values))
    order = lambda tensor: [int(part) if part.isdecimal() else -1 for part in tensor.name.split(".")[1:2]]
    return sorted(found, key=order)


def _values(
    pairs: list[tuple[StoredParameter, StoredParameter]],
    files: TensorTable,
    layer: int,
    shape: tuple[int, ...],
    rows: np.ndarray | None,
    added: float,
) -> np.ndarray:
    """Values of one tensor, of the parameters that it holds, each with its place in the source's files."""
    out = np.empty(shape, np.float32)
    for parameter, stored in pairs:
        read = lambda part, stored=stored: stored.part_of(
            files.read(stored.tensor.format(layer=layer, expert=part))
        ).astype(np.float32)
        value = read(0) if stored.parts is None else np.stack([read(part) for part in range(stored.parts)])
        if parameter.parts is None:
            parameter.place_in(out, value)
        else:
            for part in range(parameter.parts):
                parameter.place_in(out[part], value[part])
    files.release()
    if rows is not None:
        found, out = out, np.empty_like(out)
        out[rows] = found
    return out + np.float32(added) if added else out
