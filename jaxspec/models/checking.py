"""Checks of a network by its config.json and by the headers of its weights' files: what costs nothing, however large it is."""

from __future__ import annotations

from pathlib import Path

from jaxspec.formats.container import Container
from jaxspec.models.checkpoint_files import CheckpointFiles, ContainerFiles, TensorTable
from jaxspec.models.config import DecoderConfig
from jaxspec.models.described import Described, described_in, packed_in
from jaxspec.models.stored_parameters import network_parameters
from jaxspec.models.tensor_names import checked_names, unread_names

__all__ = ["check_container", "check_directory"]


def check_directory(directory: Path) -> DecoderConfig:
    """The shape of a network, once config.json and the names, shapes and formats of all tensors are known to agree.

    Raises:
        InputError: see `load_directory`.
    """
    found = described_in(directory)
    return _checked(found, CheckpointFiles(directory), directory)


def check_container(path: Path) -> DecoderConfig:
    """`check_directory` of a container.

    Raises:
        InputError: see `load_container`.
    """
    with Container(path) as container:
        found = packed_in(container)
        return _checked(found, ContainerFiles(container, "target"), container.path)


def _checked(found: Described, stored: TensorTable, source: Path) -> DecoderConfig:
    row, files = tensors = found.tensors(stored, source)
    checked_names(network_parameters(found.config, row), unread_names(found.config, row, files), files, source)
    return found.stored_config(tensors)
