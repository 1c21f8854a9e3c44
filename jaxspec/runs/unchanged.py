"""What run.json records of the files of a run directory, so that a changed one is not taken for what the run wrote."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxspec.errors import InputError, one_line
from jaxspec.files import read_json, to_json, write_text
from jaxspec.settings.toml import settings_digest

__all__ = ["RECORD", "check_result_file", "check_settings_file", "read_object", "write_result_file"]

#: File of a run directory with its command and what each attempt at it was made with.
RECORD = "run.json"

#: File with what a run found; a run is finished once it is there.
_RESULT = "result.json"


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object; empty where the file is not there.

    Raises:
        InputError: it cannot be read, or is something else.
    """
    try:
        found = read_json(path) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise InputError(f"{str(path)!r} is damaged ({one_line(error)}); start the run anew with --force") from error
    if not isinstance(found, dict):
        raise InputError(f"{str(path)!r} is damaged (it holds no object); start the run anew with --force")
    return found


def write_result_file(folder: Path, result: Any, more: Mapping[str, Any] | None = None) -> None:
    """Write result.json, and before it the digest that run.json keeps of it, if there is a run.json.

    Args:
        more: entries that run.json gets too.
    """
    text, file = to_json(result), folder / RECORD
    if file.exists():
        write_text(
            file, to_json({**read_object(file), **(more or {}), "result_sha256": settings_digest(text.encode())})
        )
    write_text(folder / _RESULT, text)


def check_result_file(path: Path, record: Mapping[str, Any]) -> None:
    """Check that the result.json of a finished run is as the run wrote it; earlier versions did not record that.

    Args:
        path: run directory. record: its run.json.
    Raises:
        InputError: it was changed, or is cut.
    """
    result, recorded = path / _RESULT, record.get("result_sha256")
    if recorded is not None and result.is_file() and settings_digest(result.read_bytes()) != recorded:
        raise InputError(
            f"{str(result)!r} is damaged (it is not as the run wrote it); restore it, or start the run anew with --force"
        )


def check_settings_file(path: Path) -> None:
    """Check that a run directory's config.toml is as the run wrote it; earlier versions did not record that.

    Raises:
        InputError: it was changed, so that what is there was made with other settings.
    """
    settings, recorded = path / "config.toml", read_object(path / RECORD).get("config_sha256")
    if recorded is not None and settings_digest(settings.read_bytes()) != recorded:
        raise InputError(
            f"{str(settings)!r} has changed since the run was begun, whose results are of other settings; restore it, or copy "
            "it elsewhere and begin a new run with --config"
        )
