"""A network as its config.json describes it, and its tensors under the names that its files have for them.

Of a network that sees as well as reads, the text decoder is described, and its tensors are the only ones.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hwmodels.networks import Family, Running, Wrapper, read_running, running_row
from hwmodels.networks.packing import Packing
from jaxspec.errors import InputError, question
from jaxspec.formats.codes import Codes
from jaxspec.formats.container import Container
from jaxspec.formats.container.source import check_no_adapter, missing_because, predicts_further
from jaxspec.formats.patterns import FLOAT16, target_format
from jaxspec.formats.shard_index import check_version, json_object, read_json_object
from jaxspec.models.checkpoint_files import STORED_DTYPES, TensorTable
from jaxspec.models.config import DecoderConfig, config_of
from jaxspec.models.gguf import is_gguf
from jaxspec.models.packed_tensors import unpacked
from jaxspec.models.special_tokens import json_beside
from jaxspec.models.stored_parameters import Path as ParameterPath
from jaxspec.models.stored_parameters import StoredParameter, head_tensor, layer_parameters
from jaxspec.settings.catalog_names import named_networks

__all__ = [
    "Described",
    "NamedTensors",
    "checked_names",
    "described_in",
    "packed_in",
    "unread_names",
]

# Which tensors of a checkpoint are a network's parameters: names, shapes and number formats, without reading a value.

#: Buffers that older releases stored beside the weights; the network computes them from its configuration.
_COMPUTED_SUFFIX = "rotary_emb.inv_freq"

#: Of a layer that predicts further tokens: it mixes a token's embedding and the hidden state before.
_MIXING = "eh_proj.weight"


def unread_names(config: DecoderConfig, row: Running, files: TensorTable) -> set[str]:
    """Tensors that may be there and that a network does not compute with: a head that is tied to the embedding, and layers
    behind the last one that predict further tokens, known by the matrix that mixes their inputs (DeepSeek-V3, GLM-4.5), or by
    their names (see `predicts_further`)."""
    unread = {row.tensors["lm_head"]} if config.tie_embeddings else set()
    unread |= set(filter(predicts_further, files.tensors))
    number = config.num_layers
    while f"{(prefix := f'model.layers.{number}.')}{_MIXING}" in files.tensors:
        unread |= {name for name in files.tensors if name.startswith(prefix)}
        number += 1
    return unread


def checked_names(
    stored: Mapping[ParameterPath, StoredParameter],
    copies: set[str] | frozenset[str],
    files: TensorTable,
    directory: Path,
    *,
    mixed: bool = False,
) -> dict[ParameterPath, list[str]]:
    """Place of a parameter -> its tensors, all of them present and of the right form, and no other one left.

    A tensor that nothing here computes with is an error, since without it the network would be another one.

    Args:
        mixed: the tensors of one parameter may differ in format.
    """
    found: dict[ParameterPath, list[str]] = {}
    for path, parameter in stored.items():
        found[path] = []
        # The first absent name ends the loop, so that a config.json which claims 10^12 layers costs nothing.
        for name in parameter.names():
            if name not in files.tensors:
                why = missing_because(directory, name)
                raise InputError(
                    f"{directory} has no tensor {name!r}, which its config.json needs{why}: fetch all its files again"
                )
            found[path].append(name)
    known = {name for names in found.values() for name in names} | copies
    extra = sorted(name for name in files.tensors if name not in known and not name.endswith(_COMPUTED_SUFFIX))
    if extra:
        more = f" and {len(extra) - 1} more" if len(extra) > 1 else ""
        raise InputError(
            f"{files.tensors[extra[0]].path} has tensor {extra[0]!r}{more}, which this network does not compute with; "
            "allowed are those that config.json asks for: use a checkpoint whose config.json and weights agree"
        )
    for path, names in found.items():
        _check_form(names, stored[path].tensor_shape, files, mixed=mixed)
    return found


def _check_form(names: list[str], shape: tuple[int, ...], files: TensorTable, *, mixed: bool) -> None:
    """All tensors of one leaf have this shape and a known number format, the same one unless `mixed` is allowed."""
    first = files.tensors[names[0]]
    for name in names:
        tensor = files.tensors[name]
        if tensor.dtype not in STORED_DTYPES:
            raise InputError(
                f"tensor {name!r} in {tensor.path} is stored as {tensor.dtype}; allowed are "
                f"{', '.join(STORED_DTYPES)}: convert the checkpoint"
            )
        if tensor.shape != shape:
            raise InputError(
                f"tensor {name!r} in {tensor.path} has shape {tensor.shape}; its config.json needs {shape}: "
                "use a checkpoint whose config.json and weights agree"
            )
        if tensor.dtype != first.dtype and not mixed:
            raise InputError(
                f"tensor {name!r} in {tensor.path} is stored as {tensor.dtype} but {names[0]!r} as {first.dtype}; "
                "layers are stacked and must agree: convert the checkpoint, or in Python load it with an explicit dtype"
            )


class NamedTensors(NamedTuple):
    """Tensors of a network, and the row of its family with the names that they have."""

    row: Running
    files: TensorTable


class Described(NamedTuple):
    """What a config.json says: see `RunningNetwork`, of which the configuration is made."""

    family: Family
    config: DecoderConfig
    wrapper: Wrapper | None = None
    packing: Packing | None = None
    wide: bool = False

    def tensors(self, files: TensorTable, source: Path, *, codes: bool = True) -> NamedTensors:
        """The network's tensors among those of its files, as networks of the family read them.

        Args:
            codes: see `UnpackedFiles`.
        Raises:
            InputError: the files hold other parts of the network alone; see `unpacked`.
        """
        row = running_row(self.family)
        if self.wrapper is not None:
            naming = self.wrapper.naming(files.tensors)
            own = {name: place for name, place in files.tensors.items() if not name.startswith(naming.others)}
            if files.tensors and not own:
                raise InputError(
                    f"{source} has tensors of other parts of {self.wrapper.name} alone ({min(files.tensors)!r} and others); "
                    f"the text decoder's begin with {' or '.join(naming.text.values())}: fetch all its files again"
                )
            row, files = naming.row(row), _Part(files, own)
        row = row.as_stored(files.tensors)
        return NamedTensors(row, unpacked(files, row, self.packing, wide=self.wide, codes=codes))

    def stored_config(self, tensors: NamedTensors, wanted: np.dtype | None = None) -> DecoderConfig:
        """The configuration of the network as its files store it, once their names and formats are checked.

        It is stored in float16 where all matrices that a draft may compress are, and the LM head; transformers keeps the KV
        cache of such a network in float16 too. Every other network is one in bfloat16, to which wider values are rounded.

        Args:
            wanted: type that all parameters are read in; None: as they are stored.
        """
        row, files = tensors
        stored = layer_parameters(self.config, row)
        names = {name for kind in self.config.matrix_kinds for name in stored["layers", kind].names()}
        kinds = {files.tensors[name].network_dtype for name in names | {head_tensor(self.config, row)}}
        read = {STORED_DTYPES[kind] for kind in kinds} if wanted is None else {wanted}
        formats = {target_format(dtype) for dtype in read}
        coded = wanted is None and not names.isdisjoint(files.in_codes)
        form = "float16" if formats == {FLOAT16} else "bfloat16"
        return dataclasses.replace(self.config, stored_dtype=form, in_codes=coded)


class _Part(TensorTable):
    """Some tensors of a table."""

    def __init__(self, files: TensorTable, tensors: Mapping[str, Any]):
        self._files, self.tensors, self.in_codes = files, dict(tensors), files.in_codes

    def codes(self, name: str) -> Codes:
        return self._files.codes(name)

    def read(self, name: str) -> np.ndarray:
        return self._files.read(name)

    def release(self) -> None:
        self._files.release()


def described_in(directory: Path) -> Described:
    """What the config.json of a directory, or the metadata of a GGUF file, say. Raises InputError."""
    if is_gguf(directory):
        return _described(json_beside(directory, "config.json"), directory)
    if not os.path.isdir(directory):  # unlike Path.is_dir, False for every path that cannot be one
        # What has one slash may be an id of the Hub that its cache lacks.
        fetch = ", or fetch a network of the Hub with `hf download`" if len(directory.parts) == 2 else ""
        meant = question(str(directory), named_networks())
        raise InputError(
            f"model directory {str(directory)!r} does not exist; needed is a folder with config.json and "
            f"model.safetensors, or a GGUF file: check the path{fetch}{meant}"
        )
    check_version(directory)
    if not (directory / "config.json").exists():
        check_no_adapter(directory)
    return _described(read_json_object(directory / "config.json"), directory / "config.json")


def packed_in(container: Container) -> Described:
    """What the config.json of a container says. Raises InputError."""
    content = container.read_file("config.json")
    if content is None:
        raise InputError(f"{container.path} holds no config.json; pack it together with the weights to open it")
    name = container.path / "config.json"
    return _described(json_object(content, name), name)


def _described(raw: dict[str, Any], path: Path) -> Described:
    try:
        read = read_running(raw)
        return Described(read.family, config_of(read.spec), read.wrapper, read.packing, wide=read.wide)
    except (NotImplementedError, ValueError) as error:
        raise InputError(f"{path}: {error}; use a checkpoint of a known family") from error
