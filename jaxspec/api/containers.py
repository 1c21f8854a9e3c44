"""Containers from Python: what one is made of, and its checkpoint again."""

from __future__ import annotations

import os

from jaxspec.api.progress import notebook_reporter
from jaxspec.api.results import StudyResults
from jaxspec.runs.progress import Reporter
from jaxspec.settings.coercion import as_path
from jaxspec.studies.pack.config import PACK, PackConfig
from jaxspec.studies.pack.result import UnpackResult
from jaxspec.studies.pack.run import inspect_file, unpack_container

__all__ = ["inspect", "unpack"]


def inspect(path: str | os.PathLike[str], *, reporter: Reporter | None = None) -> StudyResults:
    """What a container, or a checkpoint not packed yet, is made of, tensor by tensor, as `jaxspec inspect` shows it.

    Reads all of the file, and so checks it.

    Args:
        path: container, safetensors file or directory.
        reporter: told of progress; None: that of a notebook, elsewhere nothing is shown.
    Returns:
        a result with `table()`, `plot()`, `to_frame("tensors")` and `to_json()`.
    Raises:
        InputError: no such file, or a damaged one.
    """
    name = as_path("path", path)
    found = inspect_file(name, reporter=reporter or notebook_reporter())
    return StudyResults.of(PACK, PackConfig(model=name), found)


def unpack(
    container: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    force: bool = False,
    reporter: Reporter | None = None,
) -> UnpackResult:
    """Restore the checkpoint in a container, as `jaxspec unpack` does: byte for byte if its scheme is lossless.

    Args:
        out: folder, or a .safetensors file if one was packed; None: the folder <name of the container> here.
        force: replace files that are there.
        reporter: told of progress; None: that of a notebook, elsewhere nothing is shown.
    Returns:
        the files, their bytes, and how long it took.
    Raises:
        InputError: bad input; no file is left half-written.
    """
    name = as_path("container", container)
    place = None if out is None else as_path("out", out)
    return unpack_container(name, place, force=force, reporter=reporter or notebook_reporter())
