"""Names of what is written: defaults that keep apart what has different names, and no file over what it is made from."""

from __future__ import annotations

import os
from pathlib import Path

from jaxspec.errors import InputError
from jaxspec.files import GGUF_SUFFIX
from jaxspec.formats.container.layout import SUFFIX
from jaxspec.formats.container.source import BESIDE_SUFFIXES, WEIGHTS_SUFFIX, Checkpoint

__all__ = ["check_container_output", "check_unpacked_files", "default_container", "default_folder"]

#: Endings that loaders look for in a folder.
_READ_BY_LOADERS = (WEIGHTS_SUFFIX, *BESIDE_SUFFIXES, ".bin", ".pt", ".pth", ".ckpt")


def default_container(source: str | os.PathLike[str]) -> Path:
    """`NAME.jspk` in the working directory; a single file loses its ending `.safetensors` or `.gguf`, and nothing else is cut.

    Raises:
        InputError: a source without a name, such as the root of a file system.
    """
    source = Path(source)
    name = _name_of(source.parent if source.name.endswith(".index.json") and not os.path.isdir(source) else source)
    return Path(
        (name if os.path.isdir(source) else name.removesuffix(WEIGHTS_SUFFIX).removesuffix(GGUF_SUFFIX)) + SUFFIX
    )


def default_folder(container: str | os.PathLike[str]) -> Path:
    """`NAME` in the working directory, of `NAME.jspk`.

    Raises:
        InputError: the container has another ending, so that its own name would be left.
    """
    container = Path(container)
    name = _name_of(container).removesuffix(SUFFIX)
    if not name or name == container.name:
        raise InputError(
            f"{container} does not end in {SUFFIX}, so that no name is left for a folder: give one with --out"
        )
    return Path(name)


def _name_of(path: Path) -> str:
    """The last part of a path; of `.` and `..` that of the folder they stand for."""
    name = path.name if path.name not in ("", "..") else path.resolve().name
    if not name:
        raise InputError(f"{str(path)!r} has no name to call the result by: give one with --out")
    return name


def check_container_output(out: str | os.PathLike[str], checkpoint: Checkpoint) -> Path:
    """Where a container may be written: not over a file of its checkpoint, nor where a loader would take it for one.

    Args:
        out: as the user gave it; a slash at its end names a folder.
    Returns:
        the path.
    Raises:
        InputError: it may not, whether or not files are to be replaced.
    """
    given, path = os.fspath(out), Path(out)
    own = [*(file.path for file in checkpoint.files), *(checkpoint.folder / name for name in checkpoint.beside)]
    if (mine := _same(path, own)) is not None:
        raise InputError(
            f"{given!r} is {mine}, which is being packed; give another -o: a container does not replace its source"
        )
    if path.name.endswith(WEIGHTS_SUFFIX):
        raise InputError(f"{given!r} would look like a checkpoint; a container ends in {SUFFIX}: give another -o")
    if path.name.endswith(_READ_BY_LOADERS) and _same(path.parent, [checkpoint.folder]) is not None:
        raise InputError(
            f"{given!r} would be taken for a file of the checkpoint beside it; a container ends in {SUFFIX}"
        )
    if given.endswith(("/", os.sep)) and not os.path.isdir(path):
        raise InputError(f"{given!r} names a folder; give the name of a file as -o, such as {path.name}{SUFFIX}")
    return path


def check_unpacked_files(files: list[Path], container: Path) -> None:
    """No file that is unpacked may be the container.

    Raises:
        InputError: one is, whether or not files are to be replaced.
    """
    if (mine := _same(container, files)) is not None:
        raise InputError(
            f"{mine} is the container {container}; give another --out: it would be replaced by its content"
        )


def _same(path: Path, others: list[Path]) -> Path | None:
    """The first of these that is the same file, by whatever name or link."""
    for other in others:
        try:
            if os.path.samefile(path, other):
                return other
        except (OSError, ValueError):
            if os.path.abspath(path) == os.path.abspath(other):
                return other
    return None
