"""Columns of tables: one description of a number serves terminal and page."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from jaxspec.report.formatting import NOT_KNOWN
from jaxspec.results import Quantity
from jaxspec.results.intervals import Ends, HeadlineIntervals

#: Shown in place of a status that a result does not give.
NO_STATUS = "no status"


R = TypeVar("R")


@dataclasses.dataclass(frozen=True)
class Column(Generic[R]):
    """One number of a record.

    Attributes:
        title: on a page.
        heading: in a terminal, with line breaks.
        meaning: a phrase under the title.
        read: from a record to the number.
        write: from the number to its text.
        words: from a record to a text that stands in place of the number.
        interval: from a record to the ends of the number's interval, which stand behind it; None where a record has none.
        choice: a setting, which nobody found out: without a status unless the result gives one.
        optional: not shown where no record has it.
    """

    title: str
    heading: str
    meaning: str
    read: Callable[[R], Quantity[Any]]
    write: Callable[[float], str]
    words: Callable[[R], str] | None = None
    interval: Callable[[R], Ends | None] | None = None
    choice: bool = False
    optional: bool = False

    def text(self, record: R) -> str:
        """The number as a person reads it, with its standard error or its interval where it has one."""
        if self.words is not None:
            return self.words(record)
        found = self.read(record)
        if found.number is None:
            return NOT_KNOWN
        error = Quantity(found.standard_error).number
        ends = interval_in_words(None if self.interval is None else self.interval(record), self.write)
        return self.write(found.number) + ("" if error is None else f" ± {self.write(error)}") + ends

    def status(self, record: R) -> str | None:
        """The number's status; None where there is no number to have one."""
        found = self.read(record)
        if found.number is None and not isinstance(found.value, bool):
            return None
        return found.status or (None if self.choice else NO_STATUS)

    def known(self, record: R) -> bool:
        """Whether a record has the number."""
        return self.read(record).number is not None


def shown_columns(columns: Iterable[Column[R]], records: Iterable[R]) -> list[Column[R]]:
    """Columns without the optional ones that no record has."""
    rows = list(records)
    return [column for column in columns if not column.optional or any(map(column.known, rows))]


def interval_in_words(ends: Ends | None, write: Callable[[float], str]) -> str:
    """An interval behind its number, as in " [1.91, 2.05]"; empty where there is none, or no error that widens it."""
    if ends is None or ends.low.number is None or ends.high.number is None or ends.low.number == ends.high.number:
        return ""
    low, high = (write(end).removesuffix("x") for end in (ends.low.number, ends.high.number))
    return f" [{low}, {high}]"


def column_statuses(column: Column[R], records: Iterable[R]) -> str:
    """Status of a column; where records differ, all of them."""
    return " or ".join(dict.fromkeys(found for record in records if (found := column.status(record))))


#: Begins the line of a table that says so.
BRACKETS = "in brackets: "


def statements(held: Iterable[HeadlineIntervals | None]) -> list[str]:
    """What the intervals of a table hold: of those that hold most, one sentence each; none where there are none.

    Plain decoding has fewer errors than a draft beside it, and needs no line of its own.
    """
    found = [each for each in held if each is not None and each.statement]
    most = max((len(each.covers) for each in found), default=0)
    return list(dict.fromkeys(str(each.statement) for each in found if len(each.covers) == most))
