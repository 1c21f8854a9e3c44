"""The proposed device as a file that every command takes: the file it began with, and the numbers that are others."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

import tomli_w

from hwmodels import catalog
from hwmodels.analysis.sensitivity import leaf_names
from hwmodels.catalog.device_entries import parse_device

__all__ = ["changed_device_text"]

_GIVEN = "given: a co-design problem"


def changed_device_text(
    device: str,
    changed: Mapping[str, float],
    *,
    source: str,
    given: Mapping[str, float] | None = None,
    technology: Mapping[str, float | str] | None = None,
) -> str | None:
    """A device's file with other numbers.

    Args:
        device: catalog name or TOML file.
        changed: dotted name within the device -> number.
        source: of these numbers, in words.
        given: further numbers, which the problem gave.
        technology: numbers and texts of a [technology] in place of the file's own, or of its [chip]; likewise.
    Returns:
        None where a file cannot say such a number, as those of measured kernels.
    """
    document = tomllib.loads(catalog.device_text(device))
    document["title"] = f"{document['title']}, co-designed"
    entry = lambda value, source=_GIVEN: {"value": float(value), "source": source}
    places = {name: entry(value) for name, value in (given or {}).items()}
    places |= {name: entry(value, source) for name, value in changed.items()}
    if technology is not None:
        document.pop("chip", None)
        document["technology"] = {k: v if isinstance(v, str) else entry(v) for k, v in technology.items()}
    try:
        for name, place in places.items():
            _put(document, name.split("."), place)
        text = "\n".join(_lines(document, "")) + "\n"
        found = parse_device(text, where=device).device
    except (ValueError, LookupError):  # a place that the file does not have, or a number that it may not say
        return None
    return text if places.keys() <= set(leaf_names(found)) else None


def _put(table: Any, path: list[str], entry: dict[str, Any]) -> None:
    for name in path[:-1]:
        table = table[int(name)] if isinstance(table, list) else table.setdefault(name, {})
    table[path[-1]] = entry


def _lines(table: Mapping[str, Any], prefix: str) -> list[str]:
    """A number with its source on one line, then the tables within."""
    tables = {key: value for key, value in table.items() if isinstance(value, dict) and "source" not in value}
    several = {key: value for key, value in table.items() if isinstance(value, list) and value and _all_tables(value)}
    found = [_line(key, value) for key, value in table.items() if key not in {*tables, *several}]
    for key, inner in tables.items():
        found += ["", f"[{prefix}{key}]", *_lines(inner, f"{prefix}{key}.")]
    for key, rows in several.items():
        for row in rows:
            found += ["", f"[[{prefix}{key}]]", *_lines(row, f"{prefix}{key}.")]
    return found


def _all_tables(rows: list[Any]) -> bool:
    return all(isinstance(row, dict) for row in rows)


def _line(key: str, value: Any) -> str:
    if not isinstance(value, dict):
        return tomli_w.dumps({key: value}).strip()
    return f"{key} = {{ {', '.join(_line(name, inner) for name, inner in value.items())} }}"
