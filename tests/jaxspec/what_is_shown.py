"""Checks of what a person sees: every number of a table is whole at every width."""

import io
import re
from collections import Counter

from rich.cells import cell_len
from rich.console import Console

from jaxspec.report.terminal import show

#: A number as a table may show it.
NUMBER = re.compile(r"[-+−±]?\d[\d.,]*(?:[eE][-+]?\d+)?[x%]?")

#: The last one is a pipe's.
WIDTHS = (60, 80, 100, 120, 1_000_000)


def printed(table, width):
    """What a terminal of this width shows."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    show(table, console=console)
    return console.file.getvalue()


def numbers_are_whole(table, widths=WIDTHS):
    """Every number of every cell, of the title and of the caption stands uncut in the output, at every width."""
    cells = [cell for row in table.rows for cell in row.cells]
    expected = Counter(NUMBER.findall("\n".join([*cells, table.title.plain, table.caption.plain])))
    words = Counter(word for cell in cells for word in cell.split() if len(word) <= 20)
    for width in widths:
        text = printed(table, width)
        lost = expected - Counter(NUMBER.findall(text))
        assert not lost, (width, lost, text)
        lost = words - Counter(text.split()) if width != min(widths) else Counter()
        assert not lost, (width, lost, text)
        assert "…" not in text
        for line in text.splitlines():
            assert cell_len(line) <= width or " " not in line.strip(), (width, line)
