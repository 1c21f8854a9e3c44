"""Saves a figure whole or not at all, in the format that its name asks for."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.figure import Figure

from jaxspec.errors import InputError
from jaxspec.files import write_bytes
from jaxspec.output_places import figure_format


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure; the suffix of `path` names the format, without one it is PNG.

    Raises:
        InputError: a format or a place that cannot be written.
    """
    try:
        write_figure(figure, path)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"plot {str(path)!r} cannot be written ({reason}); give another file") from error


def write_figure(figure: Figure, path: str | Path) -> None:
    """As `save_figure`, for a file of a run directory, which no user named.

    Raises:
        OSError: it cannot be written.
    """
    path, ending = Path(path), figure_format(path)
    # In memory first: a writer of PDF that meets a full disk fails once more where it closes its file, with another error.
    drawn = io.BytesIO()
    figure.savefig(drawn, format=ending)
    write_bytes(path, drawn.getvalue())
