"""Tables of facts that lie beside the code as TOML."""

from __future__ import annotations

import importlib.resources
import tomllib
from typing import Any

__all__ = ["read_table"]


def read_table(package: str | None, *names: str) -> dict[str, Any]:
    """Content of a TOML file of a package, by its name or that of its folder and its own. Args: package: a `__package__`."""
    assert package is not None
    return tomllib.loads(importlib.resources.files(package).joinpath(*names).read_text(encoding="utf-8"))
