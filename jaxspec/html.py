"""Tables as HTML, for notebooks: no script, no colours of their own, so that they fit a light page and a dark one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["html_table", "lines_html"]

#: Style of a row -> CSS of the same.
_CSS = {"bold": "font-weight: bold", "dim": "opacity: 0.6"}


def html_table(
    columns: Sequence[tuple[str, str]],
    rows: Iterable[tuple[Sequence[str], str | None]],
    *,
    title: str = "",
    caption: str = "",
) -> str:
    """A table with a title above and a caption below; everything is escaped.

    Args:
        columns: heading, and the side on which its cells stand.
        rows: cells, one for each column, and the style of the row: "bold", "dim" or None.
    """
    sides = [side for _, side in columns]
    head = "".join(_cell("th", heading, side) for heading, side in columns)
    body = ""
    for cells, style in rows:
        css = f' style="{_CSS[style]}"' if style in _CSS else ""
        body += f"<tr{css}>{''.join(_cell('td', text, side) for text, side in zip(cells, sides, strict=True))}</tr>"
    above = f"<p><b>{escape(title)}</b></p>" if title else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div>{above}{table}{lines_html(caption.splitlines())}</div>"


def lines_html(lines: Iterable[str]) -> str:
    """Remarks, one below the other, in small letters."""
    text = "<br/>".join(map(escape, lines))
    return f"<p><small>{text}</small></p>" if text else ""


def _cell(tag: str, text: str, side: str) -> str:
    return f'<{tag} style="text-align: {side}">{escape(text).replace(chr(10), "<br/>")}</{tag}>'
