"""Checks of places where results will be written, made before the work whose results they are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from jaxspec.errors import InputError

__all__ = ["check_apart", "check_figure_place", "check_file_place", "check_folder_place", "figure_format"]

#: Formats of figures, by the ending that asks for them.
_FIGURES = ("png", "svg", "pdf")


def check_file_place(path: str | Path, what: str, *, replace: bool = True) -> None:
    """Raises InputError if a file cannot be written there; makes nothing.

    Args:
        what: the option or argument that names the file.
        replace: whether a file that is there may be replaced.
    """
    given, path = os.fspath(path), Path(path)
    if given == "-":
        raise InputError(f"{what} is '-'; give the name of a file, or /dev/stdout to print it")
    if not path.name or given.endswith(os.sep) or os.path.isdir(path):
        there = "is there already and is a folder" if os.path.isdir(path) else "is a folder"
        raise InputError(f"{what} {given!r} {there}; give the name of a file")
    if not os.path.lexists(path):
        _check_can_be_made(path, what)
    elif not replace:
        raise InputError(f"{what} {given!r} is there already; give another place, or --force to replace it")
    elif os.path.isfile(path):  # others, such as /dev/stdout, are written as they are
        _check_writable(path.parent, path, what)


def check_folder_place(path: str | Path, what: str) -> None:
    """Raises InputError if no files can be written into that folder, be it there or not; makes nothing."""
    path = Path(path)
    if os.path.isdir(path):
        _check_writable(path, path, what)
    elif os.path.lexists(path):
        raise InputError(f"{what} {str(path)!r} cannot be written (it is a file); give a folder, there or not")
    else:
        _check_can_be_made(path, what)


def figure_format(path: str | Path) -> str:
    """The format that the ending of a name asks for; without one it is PNG.

    Raises:
        InputError: an ending that no figure has.
    """
    ending = Path(path).suffix.lstrip(".").lower() or "png"
    if ending not in _FIGURES:
        raise InputError(
            f"plot {str(path)!r} cannot be written (unknown ending {ending!r}); end it in .png, .svg or .pdf"
        )
    return ending


def check_figure_place(path: str | Path, what: str) -> None:
    """Raises InputError if no figure can be written there: a format that does not exist, or a place that cannot be used."""
    check_file_place(path, what)
    figure_format(path)


def check_apart(
    outputs: Mapping[str, str | None], inputs: Iterable[str | Path], *, kept: Iterable[str | Path] = ()
) -> None:
    """Raises InputError if a result would replace a file that its command reads or keeps, or another of its results.

    Args:
        outputs: option -> the file that it names; None: it was not given.
        inputs: files; a folder stands for the files in it.
        kept: files of the command's own, be they there or not yet; a folder stands for all that will be below it.
    """
    places = {what: os.path.realpath(path) for what, path in outputs.items() if path is not None}
    read = {os.path.realpath(path) for path in inputs}
    own = {os.path.realpath(path) for path in kept}
    for what, place in places.items():
        if not own.isdisjoint({place, *map(str, Path(place).parents)}):
            raise InputError(f"{what} {outputs[what]!r} is a file that the run directory keeps; give another place")
        if os.path.exists(place) and not read.isdisjoint({place, os.path.dirname(place)}):
            raise InputError(f"{what} {outputs[what]!r} is a file that this command reads; give another place")
    if len(set(places.values())) < len(places):
        raise InputError(f"{' and '.join(places)} name the same file; give each its own")


def _check_can_be_made(path: Path, what: str) -> None:
    try:
        os.lstat(path)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:  # a part of it is a file, the name is too long, or has a null character
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{what} {str(path)!r} cannot be written ({reason}); give another place") from error
    above = next(folder for folder in path.absolute().parents if os.path.lexists(folder))
    if not os.path.isdir(above):
        raise InputError(f"{what} {str(path)!r} cannot be written ({above} is no folder); give another place")
    _check_writable(above, path, what)


def _check_writable(folder: Path, path: Path, what: str) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{what} {str(path)!r} cannot be written (no permission in {folder}); give another place")
