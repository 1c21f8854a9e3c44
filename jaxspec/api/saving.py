"""Results kept in a folder of the form of a run directory, so that one function opens both."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jaxspec.errors import InputError, one_line
from jaxspec.files import to_json, write_text
from jaxspec.output_places import check_folder_place
from jaxspec.partial_files import sync_folder
from jaxspec.runs.directory import is_run_directory
from jaxspec.runs.kept import new_record
from jaxspec.runs.unchanged import RECORD, write_result_file
from jaxspec.settings.base import Settings
from jaxspec.settings.coercion import as_path
from jaxspec.settings.toml import to_toml

__all__ = ["save_results"]

#: Of a run directory, what a saved result does not need.
_LEFT_OUT = shutil.ignore_patterns("checkpoints", ".lock", "*.part")


def save_results(
    path: str | os.PathLike[str],
    command: str,
    config: Settings,
    result: Any,
    *,
    inputs: Callable[[], Mapping[str, str]],
    source: Path | None = None,
    force: bool = False,
) -> Path:
    """Write a folder with config.toml, inputs.json, run.json and result.json.

    Args:
        result: in JSON's own types or near them.
        inputs: called where there is no `source`: digests of the files that it was made of, see `input_digests`.
        source: run directory of the result, whose other files are copied; None, or another folder: there are none.
        force: replace a folder that was saved before.
    Returns:
        The folder.
    Raises:
        InputError: it is there already, is the run directory of a command, or cannot be written.
    """
    given = Path(as_path("path", path))
    check_folder_place(given, "path")
    path = Path(os.path.realpath(given))  # a folder behind a link is replaced where it is
    if path == Path.cwd():
        raise InputError(f"path {str(given)!r} is the working directory; give the name of a folder in it")
    taken = path.is_dir() and any(path.iterdir())
    if taken and (path / ".lock").exists():  # hours of work may be in it
        raise InputError(f"path {str(given)!r} is the run directory of a command; give another place")
    if taken and not (force and is_run_directory(path)):
        allowed = "give another place" if force else "give another place, or force=True to replace a saved result"
        raise InputError(f"path {str(given)!r} is there already; {allowed}")
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        if source is not None and is_run_directory(source):
            shutil.copytree(source, part, ignore=_LEFT_OUT)
        else:
            part.mkdir(parents=True)
            write_text(part / "config.toml", to_toml(config))
            write_text(part / "inputs.json", to_json(inputs()))
            write_text(part / RECORD, to_json(new_record(command, config)))
        write_result_file(part, result)
        if path.is_dir():
            shutil.rmtree(path)
        part.rename(path)
        sync_folder(path.parent)
    except OSError as error:
        raise InputError(f"path {str(given)!r} cannot be written ({_reason(error)}); give another place") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return given


def _reason(error: OSError) -> str:
    """Why a file cannot be written; a copied folder tells it of each file."""
    return error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror or one_line(error)
