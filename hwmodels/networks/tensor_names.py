"""What checkpoints call the parameters of a decoder: names that several families share, from `families/tensors.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwmodels.tables import read_table

__all__ = ["TENSORS", "merged_tables"]

#: Name of a table -> its entries, with those of the tables that it is like.
TENSORS: dict[str, dict[str, Any]] = {}


def merged_tables(tables: str | Mapping[str, Any] | tuple[Any, ...]) -> dict[str, Any]:
    """Entries of tables, each given by its name or by itself; later ones over earlier ones."""
    entries: dict[str, Any] = {}
    for table in tables if isinstance(tables, tuple) else (tables,):
        entries |= TENSORS[table] if isinstance(table, str) else table
    return entries


for _name, _table in read_table(__package__, "families", "tensors.toml").items():
    _like = _table.pop("like", ())
    _own = {key: tuple(value) if isinstance(value, list) else value for key, value in _table.items()}
    TENSORS[_name] = merged_tables(tuple(_like) if isinstance(_like, list) else _like) | _own
