"""Unpacks a container into the files that were packed, byte for byte where the scheme is lossless."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from jaxspec.errors import InputError
from jaxspec.formats.container.layout import damaged
from jaxspec.formats.container.naming import check_unpacked_files
from jaxspec.formats.container.opened import Container
from jaxspec.partial_files import PartialFiles

__all__ = ["unpack"]


def unpack(
    container: Container,
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    on_bytes: Callable[[int, str], None] = lambda count, name: None,
) -> list[Path]:
    """Write the checkpoint, each file whole or none at all: all are written beside their names, then renamed.

    Args:
        out: a folder; or, if it ends in .safetensors and the container holds one file of weights, that file alone.
        force: replace files that are there.
        on_bytes: called after each piece with its bytes and its tensor's name.
    Returns:
        the files written.
    Raises:
        InputError: the container is damaged, a file is there already, or one would replace the container itself.
    """
    out = Path(out)
    single = out.suffix == ".safetensors"
    if single and len(container.files) != 1:
        raise InputError(f"{container.path} holds {len(container.files)} files of weights; give a folder as --out")
    folder = out.parent if single else out
    weights = [out] if single else [folder / name for name, _ in container.files]
    others = [] if single else list(container.beside)
    targets = weights + [folder / name for name in others]
    if len(set(targets)) != len(targets):
        raise InputError(damaged(container.path, "two of its files have one name"))
    check_unpacked_files(targets, container.path)
    if not force and (there := [path for path in targets if os.path.exists(path)]):
        raise InputError(f"{there[0]} is there already; give another --out, or --force to replace it")
    if folders := [path for path in targets if os.path.isdir(path)]:
        raise InputError(f"{folders[0]} is a folder, where a file would be written; give another --out")
    with PartialFiles() as files:
        try:
            files.make_folder(folder)
        except OSError as error:
            raise InputError(f"{folder} cannot be made a folder ({error.strerror}); give another --out") from error
        for index, path in enumerate(weights):
            with files.add(path).open("wb") as file:
                _write_weights(container, index, file, on_bytes)
        for name in others:
            files.add(folder / name).write_bytes(container.read_file(name) or b"")
        files.commit()
    return targets


def _write_weights(container: Container, index: int, file: BinaryIO, on_bytes: Callable[[int, str], None]) -> None:
    """Header, then the tensors in the order of their data, which is the directory's."""
    file.write(container.read_header(index))
    for name, tensor in container.tensors.items():
        if tensor.file != index:
            continue
        for patterns in container.chunks(name):
            file.write(np.ascontiguousarray(patterns).view(np.uint8).data)
            on_bytes(patterns.nbytes, name)
