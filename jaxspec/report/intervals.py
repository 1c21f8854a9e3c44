"""What intervals in brackets hold, in sentences."""

from __future__ import annotations

from collections.abc import Iterable

from jaxspec.results.intervals import HeadlineIntervals

__all__ = ["BRACKETS", "statements"]

#: Begins the line of a table that says so.
BRACKETS = "in brackets: "


def statements(held: Iterable[HeadlineIntervals | None]) -> list[str]:
    """What the intervals of a table hold: of those that hold most, one sentence each; none where there are none.

    Plain decoding has fewer errors than a draft beside it, and needs no line of its own.
    """
    found = [each for each in held if each is not None and each.statement]
    most = max((len(each.covers) for each in found), default=0)
    return list(dict.fromkeys(str(each.statement) for each in found if len(each.covers) == most))
