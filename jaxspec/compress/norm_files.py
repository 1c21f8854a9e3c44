"""Channel norms that a run ranked weights with, in a file beside its result: a packed draft keeps the same values."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from jaxspec.errors import InputError
from jaxspec.files import write_bytes

__all__ = ["NORMS_FILE", "read_norms", "write_norms"]

#: Name of the file in a run directory.
NORMS_FILE = "channel_norms.npz"


def write_norms(directory: Path, norms: Mapping[str, np.ndarray]) -> None:
    """Write norms by kind of matrix, "layer column"; layers are those that have the kind. Of the LM head, " column"."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{kind: np.asarray(values, np.float32) for kind, values in norms.items()})
    write_bytes(directory / NORMS_FILE, buffer.getvalue())


def read_norms(result: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray] | None:
    """The norms of the run whose result this is; None where no file of them lies beside it.

    Args:
        result: path of a result.json.
        shapes: kind -> layers and columns of the network that they are wanted for; of the LM head columns alone.
    Raises:
        InputError: a damaged file, or norms of another network.
    """
    path = Path(result).parent / NORMS_FILE
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as stored:
            norms = {kind: stored[kind] for kind in stored.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} cannot be read ({error}); run the tuning again with --force") from error
    if {kind: values.shape for kind, values in norms.items()} != dict(shapes):
        raise InputError(f"{path} has channel norms of another network; give the result.json of a run of this one")
    return norms
