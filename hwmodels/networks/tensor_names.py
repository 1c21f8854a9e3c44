"""What checkpoints call the parameters of a decoder: names that several families share, from `families/tensors.toml`."""

from __future__ import annotations

import importlib.resources
import tomllib
from collections.abc import Mapping
from typing import Any

__all__ = ["TENSORS", "merged_tables"]

_TEXT = importlib.resources.files(__package__).joinpath("families", "tensors.toml").read_text(encoding="utf-8")

#: Name of a table -> its entries, with those of the tables that it is like.
TENSORS: dict[str, dict[str, Any]] = {}


def merged_tables(tables: str | Mapping[str, Any] | tuple[Any, ...]) -> dict[str, Any]:
    """Entries of tables, each given by its name or by itself; later ones over earlier ones."""
    entries: dict[str, Any] = {}
    for table in tables if isinstance(tables, tuple) else (tables,):
        entries |= TENSORS[table] if isinstance(table, str) else table
    return entries


for _name, _table in tomllib.loads(_TEXT).items():
    _like = _table.pop("like", ())
    _own = {key: tuple(value) if isinstance(value, list) else value for key, value in _table.items()}
    TENSORS[_name] = merged_tables(tuple(_like) if isinstance(_like, list) else _like) | _own
