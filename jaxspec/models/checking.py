"""Checks of a network by its config.json and by the headers of its weights' files: what costs nothing, however large it is."""

from __future__ import annotations

from pathlib import Path

from hwmodels.catalog.huggingface import Family
from jaxspec.formats.container import Container
from jaxspec.models.checkpoint_files import ContainerFiles, TensorTable
from jaxspec.models.config import DecoderConfig
from jaxspec.models.families import running
from jaxspec.models.hf_load import described_in, packed_in
from jaxspec.models.packed_tensors import open_tensors, unpacked
from jaxspec.models.stored_parameters import network_parameters
from jaxspec.models.tensor_names import checked_names, unread_names

__all__ = ["check_container", "check_directory"]


def check_directory(directory: Path) -> DecoderConfig:
    """The shape of a network, once config.json and the names, shapes and formats of all tensors are known to agree.

    Raises:
        InputError: see `load_directory`.
    """
    family, config = described_in(directory)
    _check_tensors(family, config, open_tensors(directory, running(family)), directory)
    return config


def check_container(path: Path) -> DecoderConfig:
    """`check_directory` of a container.

    Raises:
        InputError: see `load_container`.
    """
    with Container(path) as container:
        family, config = packed_in(container)
        files = unpacked(ContainerFiles(container, "target"), running(family))
        _check_tensors(family, config, files, container.path)
    return config


def _check_tensors(family: Family, config: DecoderConfig, files: TensorTable, source: Path) -> None:
    row = running(family)
    checked_names(network_parameters(config, row), unread_names(config, row, files), files, source)
