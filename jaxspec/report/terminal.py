"""What a command shows on a terminal: tables and sentences, folded, divided or turned to fit, with every number whole.

The rule, the same for every table of every command:

1. A table that fits is printed as it is.
2. Otherwise headings fold at word borders, then cells of text; a line break never enters a number.
3. If that is not enough, the columns are divided into several tables, one below the other, each with the first column.
4. If the first column and one more do not fit either, each row becomes a list of "heading: value".

Nothing is dropped or cut; characters that a terminal would obey are replaced, since names of files come from anywhere. Output
that goes to a file or a pipe has no width: tables take what they need there, unless COLUMNS says otherwise.
"""

from __future__ import annotations

import dataclasses
import io
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.text import Text

from jaxspec.errors import printable
from jaxspec.html import html_table, lines_html

__all__ = ["Shown", "Table", "fold", "new_console", "note_lines", "notebook_console", "say", "show", "shown_run"]

#: Width of what is not a terminal: no line is as long.
_NO_LIMIT = 1_000_000


#: Narrower terminals break lines themselves.
_LEAST_WIDTH = 20


#: Spaces between two columns.
_GAP = 2


#: Words that are not longer stay whole while a table can be divided instead.
_WHOLE_IN_HEADING, _WHOLE_IN_CELL = 11, 20


#: A number with its sign, exponent and unit sign: "-1,024.5e-06", "2.33x", "0.06±0.01" is two of them.
_NUMBER = re.compile(r"[-+−±]?\d[\d.,]*(?:[eE][-+]?\d+)?[x%]?")


#: A long name is broken behind one of these if possible.
_JOINTS = "._/-:=,;|"


def new_console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """A console for tables and sentences: of the terminal's width, or without a limit where there is no terminal."""
    console = Console(stderr=stderr, quiet=quiet, highlight=False, markup=False, emoji=False)
    if not console.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        console.width = _NO_LIMIT
    return console


def show(*tables: Table, console: Console | None = None) -> None:
    """Print tables, on standard output unless a console is given."""
    console = console or new_console()
    for table in tables:
        # Not cropped: a number that is wider than the terminal is whole all the same.
        console.print(table, crop=False)


def say(text: str, *, console: Console | None = None, indent: str = "") -> None:
    """Print a sentence, folded at word borders; a long path stays whole.

    Args:
        indent: put before every line but the first.
    """
    console = console or new_console()
    lines = fold(printable(text), console.width, break_words=False, indent=indent)
    console.print(Text("\n".join(lines)), soft_wrap=True, highlight=False)


def fold(text: str, width: int, *, break_words: bool = True, indent: str = "") -> list[str]:
    """Lines of at most `width` characters, broken at word borders; "\\n" is a border that stays.

    Args:
        break_words: whether a word that is longer than a line is broken, behind a joint of it if possible; never within a
            number, which makes the line longer than `width` instead. Otherwise such a word is a line of its own.
        indent: before every line but the first of each paragraph.
    """
    lines: list[str] = []
    for paragraph in text.split("\n"):
        begin = paragraph[: len(paragraph) - len(paragraph.lstrip(" "))]
        line = begin
        for word in paragraph.split():
            parts = [word]
            if break_words and cell_len(word) > width:
                parts = _broken(word, max(width - len(indent), 1))
            for part in parts:
                spaced = f"{line} {part}" if line.strip() else line + part
                if cell_len(spaced) <= width or not line.strip():
                    line = spaced
                else:
                    lines.append(line)
                    line = indent + part if cell_len(indent + part) <= width else part
        lines.append(line)
    return lines


def _broken(word: str, width: int) -> list[str]:
    """Parts of a word, none longer than `width` unless it is a number."""
    parts = []
    while cell_len(word) > width:
        numbers = [match.span() for match in _NUMBER.finditer(word)]
        places = [i for i in range(1, len(word)) if not any(start < i < end for start, end in numbers)]
        near = [i for i in places if i <= width]
        joints = [i for i in near if word[i - 1] in _JOINTS and 3 * i >= width]
        if not places:
            break
        at = joints[-1] if joints else near[-1] if near else places[0]
        parts.append(word[:at])
        word = word[at:]
    return [*parts, word]


@dataclasses.dataclass(frozen=True)
class Column:
    """A heading, and on which side its cells stand."""

    heading: str
    justify: Literal["left", "right"] = "left"


@dataclasses.dataclass(frozen=True)
class Row:
    """The cells of a row, one for each column, and the style of all of them."""

    cells: tuple[str, ...]
    style: str | None = None


class Table:
    """A table with a title above and a caption below, printed by this module's rule wherever rich prints it."""

    def __init__(self, title: str = "", caption: str = ""):
        self.columns: list[Column] = []
        self.rows: list[Row] = []
        self.title, self.caption = title, caption

    @property
    def title(self) -> Text:
        """Above the table; plain text."""
        return self._title

    @title.setter
    def title(self, text: str | Text) -> None:
        self._title = Text(printable(str(text)))

    @property
    def caption(self) -> Text:
        """Below the table; plain text, a line per remark."""
        return self._caption

    @caption.setter
    def caption(self, text: str | Text) -> None:
        self._caption = Text(printable(str(text)))

    def add_column(self, heading: str, *, justify: Literal["left", "right"] = "left") -> None:
        """Add a column; the first one stands again in every part of a divided table."""
        self.columns.append(Column(printable(heading), justify))

    def add_columns(self, first: str, *numbers: str) -> None:
        """Add a column of names, and columns of numbers behind it."""
        self.add_column(first)
        for heading in numbers:
            self.add_column(heading, justify="right")

    def add_row(self, *cells: str | Text, style: str | None = None) -> None:
        """Add a row with a cell for each column; those that are left out are empty.

        Raises:
            ValueError: more cells than columns.
        """
        if len(cells) > len(self.columns):
            raise ValueError(f"{len(cells)} cells came for {len(self.columns)} columns; add columns first")
        texts = [printable(str(cell)) for cell in cells]
        self.rows.append(Row((*texts, *[""] * (len(self.columns) - len(texts))), style))

    def __repr__(self) -> str:
        """The table as text, as wide as it is."""
        return "\n".join(line.rstrip() for line, _ in self._lines(_NO_LIMIT))

    def _repr_html_(self) -> str:
        return html_table(
            [(" ".join(column.heading.split()), column.justify) for column in self.columns],
            [(row.cells, row.style) for row in self.rows],
            title=self.title.plain,
            caption=self.caption.plain,
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(options.max_width, _LEAST_WIDTH)
        for line, style in self._lines(width):
            yield Segment(line.rstrip(), console.get_style(style) if style else None)
            yield Segment.line()

    def _lines(self, width: int) -> Iterable[tuple[str, str | None]]:
        """Every line with its style."""
        if self.title.plain:
            yield from ((line, "table.title") for line in fold(self.title.plain, width, break_words=False))
        parts = self._parts(width)
        if parts is None:
            yield from self._records(width)
        else:
            for number, (columns, widths) in enumerate(parts):
                if number:
                    yield "", None
                yield from self._grid(columns, widths)
        if self.caption.plain:
            yield from ((line, "table.caption") for line in fold(self.caption.plain, width, break_words=False))
        yield "", None

    def _grid(self, columns: Sequence[int], widths: Sequence[int]) -> Iterable[tuple[str, str | None]]:
        headings = Row(tuple(column.heading for column in self.columns), "table.header")
        for row in (headings, *self.rows):
            cells = [fold(row.cells[column], width) for column, width in zip(columns, widths, strict=True)]
            height = max(map(len, cells), default=0)
            for i in range(height):
                # Headings stand on the rule below them, cells hang from the top of their row.
                at = i - height if row is headings else i
                texts = [lines[at] if -len(lines) <= at < len(lines) else "" for lines in cells]
                sides = [self.columns[column].justify for column in columns]
                yield (" " * _GAP).join(map(_pad, texts, widths, sides)), row.style
            if row is headings and columns:
                yield (" " * _GAP).join("─" * width for width in widths), None

    def _records(self, width: int) -> Iterable[tuple[str, str | None]]:
        """Each row as a list, for a terminal in which two columns do not fit side by side."""
        for row in self.rows:
            for i, (column, cell) in enumerate(zip(self.columns, row.cells, strict=True)):
                heading = " ".join(column.heading.split())
                text = f"{heading}: {' '.join(cell.split())}" if heading else cell
                lines = fold(text if i == 0 else f"  {text}", width, indent="    ")
                yield from ((line, "table.header" if i == 0 else row.style) for line in lines)

    def _parts(self, width: int) -> list[tuple[list[int], list[int]]] | None:
        """The columns of each part of the table with their widths; None if two columns do not fit."""
        everything = list(range(len(self.columns)))
        if (widths := self._fitted(everything, width)) is not None:
            return [(everything, widths)]
        parts: list[tuple[list[int], list[int]]] = []
        columns, part_width = [0], None
        for column in everything[1:]:
            wider = self._fitted([*columns, column], width)
            if wider is None:
                if part_width is None:
                    return None
                parts.append((columns, part_width))
                columns, wider = [0], self._fitted([0, column], width)
            columns, part_width = [*columns, column], wider
        return None if part_width is None else [*parts, (columns, part_width)]

    def _fitted(self, columns: Sequence[int], width: int) -> list[int] | None:
        """Widths of these columns side by side: first headings give way, then text; None if that is not enough."""
        sizes = [self._sizes(column) for column in columns]
        widths = [size[0] for size in sizes]
        excess = sum(widths) + _GAP * (len(widths) - 1) - width
        for level in (1, 2):
            while excess > 0:
                spare = [i for i, size in enumerate(sizes) if widths[i] > size[level]]
                if not spare:
                    break
                widest = max(spare, key=lambda i: widths[i])
                widths[widest] -= 1
                excess -= 1
        return widths if excess <= 0 else None

    def _sizes(self, column: int) -> tuple[int, int, int]:
        """Widths of a column: as it is, with a folded heading, with folded cells."""
        heading, cells = self.columns[column].heading, [row.cells[column] for row in self.rows]
        least_heading = _least((heading,), _WHOLE_IN_HEADING)
        least = max(least_heading, _least(cells, _WHOLE_IN_CELL))
        as_they_are = _longest_line(cells)
        return max(as_they_are, _longest_line([heading])), max(as_they_are, least_heading), least


def _pad(text: str, width: int, side: str) -> str:
    missing = " " * (width - cell_len(text))
    return missing + text if side == "right" else text + missing


def _longest_line(texts: Iterable[str]) -> int:
    return max((cell_len(line) for text in texts for line in text.split("\n")), default=0)


def _least(texts: Iterable[str], whole: int) -> int:
    """The width in which no word of up to `whole` characters and no number is broken."""
    least = 0
    for word in {word for text in texts for word in text.split()}:
        numbers = [match.end() - match.start() for match in _NUMBER.finditer(word)]
        least = max(least, min(cell_len(word), whole), *numbers, 0)
    return least


#: Wider than any line.
_WIDTH = 10_000


def notebook_console() -> Console | None:
    """A console that shows its last line below the cell, in place of the one before; None where there is no notebook."""
    if (display := _notebook_display()) is None:
        return None
    stream = _OneLine(display)
    return Console(file=stream, width=_WIDTH, force_terminal=False, force_jupyter=False, highlight=False, markup=False)


def _notebook_display() -> Any:
    """IPython's `display`, where this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display


class _OneLine(io.StringIO):
    """A stream whose last line is shown, in place of the one before."""

    def __init__(self, display: Any):
        super().__init__()
        self._display, self._handle, self._text = display, None, ""

    def write(self, text: str, /) -> int:
        self._text += text
        *whole, self._text = self._text.split("\n")
        if lines := [line for line in whole if line.strip()]:
            data = {"text/html": lines_html(lines[-1:]), "text/plain": lines[-1]}
            if self._handle is None:
                self._handle = self._display(data, raw=True, display_id=True)
            else:
                self._handle.update(data, raw=True)
        return len(text)


@dataclasses.dataclass(frozen=True)
class Shown:
    """A result as the command line presents it.

    Attributes:
        result: written by `--json`.
        tables: on standard output, `commands` below them, then `lines`.
        commands: of other programs, to copy: no line of them is folded, which would end the command or part a text in it.
        lines: sentences, folded to the width of the terminal.
        files: where more is to be found, on standard error; "": nowhere.
        first: sentences above the tables.
    """

    result: Any
    tables: Sequence[Table]
    lines: Sequence[str] = ()
    files: str = ""
    commands: Sequence[str] = ()
    first: Sequence[str] = ()


def note_lines(results: Sequence[Any]) -> list[str]:
    """A line for each note of the results, with the device that it is about, unless that is None; none twice."""
    lines = []
    for result in results:
        device = f" on {result.device}" if result.device else ""
        lines += [f"note{device}: {note}" for note in result.notes]
    return list(dict.fromkeys(lines))


def shown_run(
    run: tuple[Sequence[Any], Any],
    tables: Sequence[Table],
    lines: Sequence[str] | None = None,
    page: str = "report.html",
) -> Shown:
    """How a run of a result for each device ends.

    Args:
        run: results and their run directory.
        lines: notes of the results, unless given.
        page: of the directory, named last.
    """
    results, directory = run
    said = f"{'report' if page.endswith('.html') else 'result'}: {directory.path / page}"
    return Shown([each.plain() for each in results], tables, note_lines(results) if lines is None else lines, said)
