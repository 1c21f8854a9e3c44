"""Opens a network for whoever starts from `import jaxspec`, without making that import heavy."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

from jaxspec.errors import InputError
from jaxspec.settings.coercion import as_path

if TYPE_CHECKING:
    from jaxspec.models import LoadedModel


def load(
    path: str | os.PathLike[str], *, part: Literal["target", "draft"] = "target", dtype: Any = None
) -> LoadedModel:
    """A network by name or path: "embedded", a Hugging Face directory, or a container that `jaxspec pack` wrote.

    Args:
        part: "draft" opens the draft inside a container, and reads no byte of the file that only the target needs.
        dtype: of all parameters; None keeps what is stored.
    Returns:
        configuration, parameters, tokenizer; for a container also the number of bytes that were read.
    Raises:
        InputError: anything about the path that cannot be used, in one line.
    """
    from jaxspec.models import load_model

    path = as_path("path", path)
    if os.path.isfile(os.path.join(path, "config.toml")) and not os.path.exists(os.path.join(path, "config.json")):
        raise InputError(f"{path!r} is a run directory, not a network; jaxspec.open_result opens what the run found")
    return load_model(path, part=part, dtype=dtype)
