"""Saves a figure whole or not at all, in the format that its name asks for."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from jaxspec.errors import InputError
from jaxspec.output_places import figure_format
from jaxspec.partial_files import whole_file


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure; the suffix of `path` names the format, without one it is PNG.

    Raises:
        InputError: a format or a place that cannot be written.
    """
    path, ending = Path(path), figure_format(path)
    try:
        with whole_file(path) as part:
            figure.savefig(part, format=ending)
    except OSError as error:
        raise InputError(
            f"plot {str(path)!r} cannot be written ({error.strerror or error}); give another file"
        ) from error
