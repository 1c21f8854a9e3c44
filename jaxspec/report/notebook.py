"""Lines of progress in a notebook: one line below the cell that changes in place."""

from __future__ import annotations

import io
import sys
from typing import Any

from rich.console import Console

from jaxspec.html import lines_html

__all__ = ["notebook_console"]

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
