"""Tables of statuses in `result.json`, derived from the quantities of a result."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from jaxspec.results.quantity import Quantity

__all__ = ["flat_table", "one_word", "rest_table", "status_in", "status_table"]


def status_table(record: Any) -> dict[str, Any]:
    """Status of each number of a `Record`, by name.

    Parts whose numbers differ in status, and lists, have a table of their own, by name or column.

    Parts with a table of their own are left out.
    """
    found: dict[str, Any] = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if field.metadata.get("spread"):
            found |= {name: part for name, item in value.items() if (part := _statuses(item))}
        elif part := _statuses(value):
            found[field.name] = part
        if (error := field.metadata.get("error")) and value.status is not None:
            found[error] = value.status
    return found


def _statuses(value: Any) -> Any:
    """One status, a table of them, or None where nothing has one."""
    if isinstance(value, Quantity):
        return value.status
    if dataclasses.is_dataclass(value):
        part: Any = value
        if part.has_status_table:
            return None
        table = status_table(part)
        return one_word(table) if part.one_status else table
    if isinstance(value, Mapping):
        return one_word({name: part for name, item in value.items() if (part := _statuses(item))})
    if isinstance(value, list):
        columns: dict[str, Any] = {}
        for row in value:
            columns |= status_table(row) if dataclasses.is_dataclass(row) else {}
        return columns
    return None


def one_word(table: dict[str, Any]) -> Any:
    """The status that all numbers share, or the table where they differ."""
    words = set(_leaves(table))
    return words.pop() if len(words) == 1 else table


def _leaves(table: Mapping[str, Any]) -> Iterator[str]:
    for part in table.values():
        if isinstance(part, Mapping):
            yield from _leaves(part)
        else:
            yield part


def flat_table(table: Mapping[str, Any]) -> dict[str, str]:
    """The same without tables within: each number under its own name."""
    found: dict[str, str] = {}
    for name, part in table.items():
        found |= flat_table(part) if isinstance(part, Mapping) else {name: part}
    return found


def rest_table(table: Mapping[str, Any]) -> dict[str, Any]:
    """Only what differs from the commonest status, numbers within parts by dotted names, and that status for the rest."""
    common, _ = Counter(_leaves(table)).most_common(1)[0]
    return {name: word for name, word in _dotted(table) if word != common} | {"everything else": common}


def _dotted(table: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, str]]:
    """Statuses of a table and of those within it, by dotted names."""
    for name, part in table.items():
        if isinstance(part, Mapping):
            yield from _dotted(part, f"{within}{name}.")
        else:
            yield f"{within}{name}", part


def status_in(table: Mapping[str, Any], path: tuple[str, ...]) -> str | None:
    """Status of a number: under the name of the part that holds it, its own name, or its dotted path."""
    inner = table
    for name in path:
        part = inner.get(name)
        if isinstance(part, str):
            return part
        inner = part if isinstance(part, Mapping) else inner
    found = table.get(".".join(path)) or table.get("everything else")
    return found if isinstance(found, str) else None
