"""Progress of functions in Python: shown in a notebook; elsewhere the library shows nothing by itself."""

from __future__ import annotations

import io

from rich.console import Console

from jaxspec.report.terminal import notebook_console
from jaxspec.runs.progress import Reporter

__all__ = ["notebook_reporter"]


def notebook_reporter() -> Reporter:
    """A reporter that shows the last line of progress below a cell; one that says nothing where there is no notebook."""
    return Reporter() if notebook_console() is not None else Reporter(Console(file=io.StringIO(), quiet=True))
