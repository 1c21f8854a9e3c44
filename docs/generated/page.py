"""A generated file of the site, and tables in Markdown."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclasses.dataclass(frozen=True)
class Page:
    """A file of the site; one that is no Markdown (a picture) is not in the navigation.

    Attributes:
        uri: where it lies in the site, `papers/huffllm.md`.
        content: its text or bytes.
        title: in the navigation; empty: its first heading.
    """

    uri: str
    content: str | bytes
    title: str = ""


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Collection[str]) -> str:
    """A table in Markdown.

    Args:
        numbers: headings of columns that hold numbers, which stand to the right.
    """
    marks = ["---:" if heading in numbers else "---" for heading in headings]
    lines = [_row(headings), _row(marks), *(_row(row) for row in rows)]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def percent(share: float | None, digits: int = 1) -> str:
    """A share as a percentage; nothing where it is not known."""
    return "" if share is None else f"{share:.{digits}%}".replace("%", "\N{NO-BREAK SPACE}%")
