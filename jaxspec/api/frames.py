"""Results as rows of numbers: for pandas, which is imported here alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxspec.errors import InputError
from jaxspec.files import plain
from jaxspec.settings.coercion import shown
from jaxspec.suggestions import hint

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingImports] - optional

__all__ = ["flat_row", "frame_of", "rows_of"]


def frame_of(
    results: Sequence[Any], part: str | None, *, points: Callable[[Any], Mapping[str, Any]] | None
) -> pandas.DataFrame:
    """A pandas table of results.

    Args:
        part: see `rows_of`.
        points: from a result to columns, in place of its own numbers.
    Raises:
        InputError: no such part.
        ImportError: pandas is not installed.
    """
    rows = None if points is not None else rows_of(results, part)
    try:
        import pandas  # pyright: ignore[reportMissingImports] - optional
    except ImportError as error:
        raise ImportError(
            "to_frame() needs pandas, which is not installed; pip install pandas, or use to_json()"
        ) from error
    if points is not None:
        return pandas.concat([pandas.DataFrame(dict(points(result))) for result in results], ignore_index=True)
    return pandas.DataFrame(rows)


def rows_of(results: Sequence[Any], part: str | None) -> list[dict[str, Any]]:
    """A row for each result, or for each entry of a part of it; numbers within tables by dotted names, lists left out.

    Raises:
        InputError: no result has such a part.
    """
    raw = [plain(result if isinstance(result, Mapping) else result.plain()) for result in results]
    if part is None:
        return [flat_row(entry) for entry in raw]
    parts = sorted({name for entry in raw for name, value in entry.items() if _has_rows(value)})
    if part not in parts:
        raise InputError(f"part {shown(part)} has no rows in these results{hint(part, parts)}")
    rows = []
    for entry in raw:
        device = {} if entry.get("device") is None else {"device": entry["device"]}
        found = entry.get(part) or []
        named = found.items() if isinstance(found, Mapping) else ((None, row) for row in found)
        rows += [device | ({} if name is None else {part: name}) | flat_row(row) for name, row in named]
    return rows


def flat_row(entry: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Numbers and texts of nested tables by dotted names."""
    found: dict[str, Any] = {}
    for name, value in entry.items():
        if isinstance(value, Mapping):
            found |= flat_row(value, f"{prefix}{name}.")
        elif not isinstance(value, list):
            found[f"{prefix}{name}"] = value
    return found


def _has_rows(value: Any) -> bool:
    entries = list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list) else []
    return bool(entries) and all(isinstance(entry, Mapping) for entry in entries)
