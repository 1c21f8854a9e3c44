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
from jaxspec.errors import InputError
from jaxspec.formats.codes import Codes
from jaxspec.formats.container import Container
from jaxspec.formats.container.source import check_no_adapter
from jaxspec.formats.patterns import FLOAT16, target_format
from jaxspec.formats.shard_index import check_version, json_object, read_json_object
from jaxspec.models.beside_weights import json_beside
from jaxspec.models.checkpoint_files import STORED_DTYPES, TensorTable
from jaxspec.models.config import DecoderConfig
from jaxspec.models.families import config_of
from jaxspec.models.gguf import is_gguf
from jaxspec.models.packed_tensors import unpacked
from jaxspec.models.stored_parameters import head_tensor, layer_parameters
from jaxspec.settings.catalog_names import named_networks
from jaxspec.suggestions import question

__all__ = ["Described", "NamedTensors", "described_in", "packed_in"]


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
