"""Public names of a package that are imported when they are first used, so that a command loads what it needs alone."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import sys
import types
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(package: str) -> None:
    """Let a package import its public names on first use; it lists them under `if TYPE_CHECKING:`, as type checkers read them.

    A public name is never the module of the same name, whichever was imported first.

    Args:
        package: its full name; imports in its list are of the form `from module import name`.
    """

    @functools.cache
    def places() -> dict[str, str]:
        spec = importlib.util.find_spec(package)
        source: str = spec.loader.get_source(package)  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
        listed = [inner for node in ast.parse(source).body if isinstance(node, ast.If) for inner in node.body]
        imports = [node for node in listed if isinstance(node, ast.ImportFrom)]
        return {alias.name: str(node.module) for node in imports for alias in node.names}

    class Package(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name.startswith("__") or name not in places():
                raise AttributeError(f"module {package!r} has no attribute {name!r}")
            value = getattr(importlib.import_module(places()[name]), name)
            self.__dict__[name] = value
            return value

        def __setattr__(self, name: str, value: Any) -> None:
            if not (isinstance(value, types.ModuleType) and name in self.__dict__.get("__all__", ())):
                super().__setattr__(name, value)

    sys.modules[package].__class__ = Package
