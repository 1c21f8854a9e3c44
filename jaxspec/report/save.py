"""Saves a figure whole or not at all, in the format that its name asks for."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from matplotlib.figure import Figure

from jaxspec.errors import InputError


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure; the suffix of `path` names the format, without one it is PNG.

    Raises:
        InputError: a format that cannot be written.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(partial, format=path.suffix.lstrip(".") or "png")
        os.replace(partial, path)
    except ValueError as error:
        raise InputError(f"plot {str(path)!r} cannot be written ({error}); end it in .png, .svg or .pdf") from error
    except OSError as error:
        raise InputError(f"plot {str(path)!r} cannot be written ({error.strerror}); give another file") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
