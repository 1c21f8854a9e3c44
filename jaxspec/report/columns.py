"""Columns of tables: one description of a number serves the terminal, the page and figures."""

from __future__ import annotations

import csv
import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from hwmodels.numerics.units import GIGA, MILLI
from jaxspec.report.formatting import NOT_KNOWN, fixed, fixed_or_small, three_digits, times
from jaxspec.report.terminal import Table
from jaxspec.results import STATUSES, UNKNOWN, Quantity
from jaxspec.results.network_results import Ends, HeadlineIntervals

__all__ = [
    "BRACKETS",
    "NO_STATUS",
    "Cell",
    "Column",
    "Grid",
    "column_statuses",
    "fill",
    "interval_in_words",
    "read_columns",
    "shown_columns",
    "statements",
    "terminal_columns",
]

#: Shown in place of a status that a result does not give.
NO_STATUS = "no status"

#: Begins the line of a table that states its intervals.
BRACKETS = "in brackets: "

R = TypeVar("R")

#: Records by name; as pairs where two may have one name.
Named = Mapping[str, R] | Iterable[tuple[str, R]]


@dataclasses.dataclass(frozen=True)
class Column(Generic[R]):
    """One number of a record.

    Attributes:
        heading: in a terminal, with line breaks.
        meaning: a phrase under the title of a page.
        read: from a record to the number, or the path of its field, as in "acceptance.alpha_token".
        write: from the number to its text, or digits behind the point.
        words: from a record to a text in place of the number.
        interval: from a record to the ends of the number's interval, shown behind it; or the path of them; True: in the
            record's `intervals`, by the number's own name; None: it has none.
        choice: a setting, which has no status unless the result gives one.
        optional: not shown where no record has it.
        terminal: place among the columns of the terminal, where that has some of them or another order; 0: none.
        justify: side of the cells in the terminal.
        page_title: on a page, where that is not the heading.
    """

    heading: str
    meaning: str
    read: str | Callable[[R], Quantity[Any]]
    write: int | Callable[[float], str] = str
    words: Callable[[R], str] | None = None
    interval: str | Literal[True] | Callable[[R], Ends | None] | None = None
    choice: bool = False
    optional: bool = False
    terminal: int = 0
    justify: str = "right"
    page_title: str = ""

    @property
    def title(self) -> str:
        """On a page."""
        return self.page_title or " ".join(self.heading.split())

    def quantity(self, record: R) -> Quantity[Any]:
        """The number of a record."""
        quantity = _field(record, self.read) if isinstance(self.read, str) else self.read(record)
        return UNKNOWN if quantity is None else quantity

    def written(self, value: float) -> str:
        """A number as this column writes it."""
        return fixed(value, self.write) if isinstance(self.write, int) else self.write(value)

    def text(self, record: R) -> str:
        """The number as a person reads it, with its standard error or its interval where it has one."""
        if self.words is not None:
            return self.words(record)
        number = self.quantity(record)
        if number.number is None:
            return NOT_KNOWN
        error = Quantity(number.standard_error).number
        interval = f"intervals.{self.read}" if self.interval is True else self.interval
        ends = _field(record, interval) if isinstance(interval, str) else interval and interval(record)
        spread = "" if error is None else f" ± {self.written(error)}"
        return self.written(number.number) + spread + interval_in_words(ends, self.written)

    def status(self, record: R) -> str | None:
        """The number's status; None where there is no number to have one."""
        number = self.quantity(record)
        if number.number is None and not isinstance(number.value, bool):
            return None
        return number.status or (None if self.choice else NO_STATUS)

    def known(self, record: R) -> bool:
        """Whether a record has the number."""
        return self.quantity(record).number is not None


#: Units of numbers in files of columns.
_UNITS = {"": 1.0, "milli": MILLI, "giga": GIGA}


def _writer(name: str) -> int | Callable[[float], str]:
    """A way to write a number, as files of columns name it.

    Args:
        name: digits behind the point; "milli.2": in a unit; "milli:2": the same, more digits for small numbers; or words.
    """
    known = {"": str, "times": times, "times3": lambda value: times(value, 3), "three_digits": three_digits}
    if name in known:
        return known[name]
    unit, mark, digits = re.fullmatch(r"(\w*?)([.:]?)(\d+)", name).groups()  # pyright: ignore[reportOptionalMemberAccess]
    write = fixed_or_small if mark == ":" else fixed
    return lambda value: write(value / _UNITS[unit], int(digits))


def read_columns(path: Path, table: str = "", **functions: Mapping[str, Callable[..., Any]]) -> tuple[Column[Any], ...]:
    """Columns from a CSV file with a row for each, under the names of their attributes; "|" breaks lines of a heading.

    Args:
        table: takes the rows that have this name under "table"; "": the file has one table.
        functions: attribute -> path of a field -> function, as in `words={"cycle_s": bound}`.
    """
    with path.open(encoding="utf-8", newline="") as file:
        rows: list[dict[str, Any]] = [row for row in csv.DictReader(file) if row.pop("table", "") == table]
    for row in rows:
        name, row["heading"] = row["read"], row["heading"].replace("|", "\n")
        row["write"] = _writer(row.get("write", ""))
        row["interval"] = True if row.get("interval") == "yes" else row.get("interval") or None
        row |= {mark: row.get(mark) == "yes" for mark in ("choice", "optional")}
        row["terminal"] = int(row.get("terminal") or 0)
        row["justify"] = row.get("justify") or "right"
        row |= {attribute: by_name[name] for attribute, by_name in functions.items() if name in by_name}
    return tuple(Column(**row) for row in rows)


def _field(record: Any, path: str) -> Any:
    """A field of a record, or of its parts; None where a part is None."""
    for name in path.split("."):
        record = None if record is None else getattr(record, name)
    return record


def shown_columns(columns: Iterable[Column[R]], records: Iterable[R]) -> list[Column[R]]:
    """Columns without the optional ones that no record has."""
    rows = list(records)
    return [column for column in columns if not column.optional or any(map(column.known, rows))]


def terminal_columns(columns: Iterable[Column[R]]) -> tuple[Column[R], ...]:
    """Those that the terminal has, in its order."""
    return tuple(sorted((column for column in columns if column.terminal), key=lambda column: column.terminal))


def fill(
    table: Table,
    columns: Iterable[Column[R]],
    records: Named[R],
    style: Callable[[R], str | None] = lambda record: None,
    corner: str | None = None,
    side: str = "left",
) -> Table:
    """Add a column for each number, without optional ones that no record has, and a row for each record.

    Args:
        records: by the name that begins the row, if there is a corner.
        style: of a record's row.
        corner: heading of the column of names; None: there is none.
        side: of the names.
    """
    named = _pairs(records)
    columns = shown_columns(columns, (record for _, record in named))
    names = [] if corner is None else [(corner, side)]
    for heading, justify in (*names, *((column.heading, column.justify) for column in columns)):
        table.add_column(heading, justify="left" if justify == "left" else "right")
    for name, record in named:
        cells = [column.text(record).replace(" ± ", "±") for column in columns]
        table.add_row(*([] if corner is None else [name]), *cells, style=style(record))
    return table


def _pairs(records: Named[R]) -> list[tuple[str, R]]:
    pairs: Iterable[Any] = records.items() if isinstance(records, Mapping) else records
    return list(pairs)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One number of a page's table: its text, its status, and a remark that must not be overlooked."""

    text: str
    status: str | None = None
    alarm: str = ""

    @property
    def css_class(self) -> str:
        """How the status is coloured."""
        return self.status if self.status in STATUSES else "none"


@dataclasses.dataclass(frozen=True)
class Grid(Generic[R]):
    """A table of a page: records across, their numbers down.

    Attributes:
        records: by name.
        columns: a row each; optional ones only where a record has the number.
        title: above it, except for the first table of a device.
        corner: what records are.
        alarm: from a record and a column to a remark that must not be overlooked.
        more: further rows: title, meaning, cells.
    """

    records: Named[R]
    columns: Iterable[Column[R]]
    title: str = ""
    corner: str = ""
    alarm: Callable[[R, Column[R]], str] = lambda record, column: ""
    more: Sequence[tuple[str, str, list[Cell]]] = ()

    @property
    def names(self) -> list[str]:
        """Of the records."""
        return [name for name, _ in _pairs(self.records)]

    @property
    def rows(self) -> list[tuple[str, str, list[Cell]]]:
        """Title, meaning and cells of each row."""
        records = [record for _, record in _pairs(self.records)]
        cells = lambda column: [Cell(column.text(r), column.status(r), self.alarm(r, column)) for r in records]
        own = [(column.title, column.meaning, cells(column)) for column in shown_columns(self.columns, records)]
        return [*own, *self.more]


def interval_in_words(ends: Ends | None, write: Callable[[float], str]) -> str:
    """An interval behind its number, as in " [1.91, 2.05]"; empty where there is none, or no error that widens it."""
    if ends is None or ends.low.number is None or ends.high.number is None or ends.low.number == ends.high.number:
        return ""
    low, high = (write(end).removesuffix("x") for end in (ends.low.number, ends.high.number))
    return f" [{low}, {high}]"


def column_statuses(column: Column[R], records: Iterable[R]) -> str:
    """Status of a column; where records differ, all of them."""
    return " or ".join(dict.fromkeys(status for record in records if (status := column.status(record))))


def statements(intervals: Iterable[HeadlineIntervals | None]) -> list[str]:
    """What the intervals of a table hold: of those that hold most, one sentence each; none where there are none.

    Plain decoding has fewer errors than a draft beside it, and needs no line of its own.
    """
    stated = [each for each in intervals if each is not None and each.statement]
    most = max((len(each.covers) for each in stated), default=0)
    return list(dict.fromkeys(str(each.statement) for each in stated if len(each.covers) == most))
