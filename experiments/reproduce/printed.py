"""Printed numbers: one per row of a CSV, with the conditions it holds under."""

from __future__ import annotations

import csv
import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path

__all__ = ["PrintedCell", "printed_cells", "printed_value"]

#: Columns that say what a number is, not what it holds under.
_NOT_CONDITIONS = ("metric", "quantity", "value", "value_low", "value_high", "unit", "status", "note", "section")


@dataclasses.dataclass(frozen=True)
class PrintedCell:
    """One printed number.

    Attributes:
        conditions: the filled columns that it holds under, as text.
        value: of a range, its lower end.
        note: of the CSV, where a cell contradicts another one.
    """

    metric: str
    unit: str
    value: float
    conditions: Mapping[str, str]
    note: str = ""

    def __getitem__(self, condition: str) -> str:
        return self.conditions[condition]


@functools.cache
def printed_cells(path: Path) -> tuple[PrintedCell, ...]:
    """The numbers of a CSV; text, and comments in a paper's source (`status` other than printed), left out."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get("status", "printed") == "printed"]
    found = []
    for row in rows:
        text = row.get("value") or row.get("value_low") or row.get("value_high") or ""
        try:
            value = float(text)
        except ValueError:
            continue  # a word, a date
        conditions = {key: entry for key, entry in row.items() if key not in _NOT_CONDITIONS and entry}
        found.append(
            PrintedCell(row.get("metric") or row["quantity"], row["unit"], value, conditions, row.get("note") or "")
        )
    return tuple(found)


def printed_value(path: Path, metric: str = "", **conditions: str) -> float:
    """The one number of a CSV that meets the conditions.

    Args:
        metric: any unless given.
    Raises:
        ValueError: none meets them, or more than one.
    """
    found = [
        cell.value
        for cell in printed_cells(path)
        if metric in ("", cell.metric) and all(cell.conditions.get(key) == text for key, text in conditions.items())
    ]
    if len(found) != 1:
        raise ValueError(
            f"{len(found)} numbers of {path.name} are {metric} with {conditions}; name the one that is meant"
        )
    return found[0]
