"""What Griffe must be told to read this code: where sections begin, and which comments document."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from griffe import Attribute, Docstring, Extension, Object

#: Sections that Griffe knows, once an empty line stands before them.
_KNOWN = re.compile(r"\n(?=(?:Args|Attributes|Raises):\n)")

#: Sections that become a paragraph: what follows the word on its line and the indented lines below.
_PARAGRAPH = re.compile(r"\n(Returns|Source|Departs|Gradient):((?:[^\n]*)(?:\n[ ]+[^\n]+)*)")

_ABOVE = re.compile(r"\s*#: ?(.*)")
_BEHIND = re.compile(r".*?\s{2}# (.*)")


@cache
def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def comment_of(lines: list[str], first: int, last: int) -> str:
    """The `#:` lines above a definition on lines first to last (from 1 on), or the comment behind it; else nothing."""
    above: list[str] = []
    while first - 2 - len(above) >= 0 and (line := _ABOVE.fullmatch(lines[first - 2 - len(above)])):
        above.insert(0, line[1])
    behind = _BEHIND.fullmatch(lines[last - 1])
    return " ".join(above) or (behind[1] if behind and first == last else "")


def rewrite(docstring: str) -> str:
    """The docstring as Griffe's Google style reads it; the star of an axis name does not begin an emphasis."""
    text = _KNOWN.sub("\n\n", docstring)
    text = _PARAGRAPH.sub(lambda match: f"\n\n**{match[1]}**: {' '.join(match[2].split())}\n", text)
    return text.replace('"*', '"\\*')


class HouseDocstrings(Extension):
    """Splits sections and gives attributes their comments as docstrings."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Sections told apart."""
        if obj.docstring is not None:
            obj.docstring.value = rewrite(obj.docstring.value)

    def on_attribute_instance(self, *, attr: Attribute, **_: Any) -> None:
        """A constant or a field is documented by its comment where it has no docstring."""
        if attr.docstring is None and attr.lineno is not None and isinstance(attr.filepath, Path):
            text = comment_of(_lines(attr.filepath), attr.lineno, attr.endlineno or attr.lineno)
            if text:
                attr.docstring = Docstring(text, lineno=attr.lineno, parent=attr)
