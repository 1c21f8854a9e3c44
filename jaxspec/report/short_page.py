"""One short page for studies that run no network: per device a sentence, a table, figures and what they rest on."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from html import escape
from pathlib import Path

from jaxspec.files import write_text
from jaxspec.report.figures.style import figure_svg, inline_svg
from jaxspec.report.page import Drawings
from jaxspec.report.print_style import PRINT_STYLE
from jaxspec.report.terminal import Table
from jaxspec.results import STATUSES

__all__ = ["SHORT_STYLE", "ShortSection", "device_slug", "write_short_page"]

#: Of pages without a template: on a narrow screen tables and figures scroll, and their text stays as large as that around them.
SHORT_STYLE = """
:root { --paper: #ffffff; --ink: #24292f; --soft: #57606a; --line: #d0d7de; --card: #f6f8fa; }
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #15191e; --ink: #e6e9ec; --soft: #9aa4ae; --line: #3a424b; --card: #1d232a; } }
body { margin: 0 auto; padding: 1.5rem; max-width: 62rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; overflow-wrap: anywhere; }
.headline { font-size: 1.12rem; border-left: 4px solid #116329; padding: .5rem .9rem; background: var(--card);
  overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem; vertical-align: top; min-width: 2.5rem; }
td { white-space: nowrap; }
small, figcaption { color: var(--soft); font-size: .9rem; }
figure { margin: 1.2rem 0; } figure svg { display: block; width: 100%; height: auto; max-width: 900px; }
@media screen { figure { overflow-x: auto; } figure svg { min-width: 34rem; } figcaption { position: sticky; left: 0; } }
pre { background: var(--card); padding: .7rem .9rem; overflow-x: auto; font-size: .85rem; }
"""


@dataclasses.dataclass(frozen=True)
class ShortSection:
    """What the page says of one device.

    Attributes:
        device: its name, of which files are called; `title`, as readers know it.
        headlines: the answer, a sentence each.
        figures: by name; None where the data is absent.
        captions: of figures, a sentence each.
        blocks: title -> text as it is, such as commands.
        remarks: what the numbers rest on, a sentence each.
    """

    device: str
    title: str
    headlines: Sequence[str]
    table: Table
    figures: Drawings
    captions: dict[str, str]
    remarks: Sequence[str]
    blocks: dict[str, str] = dataclasses.field(default_factory=dict)


def write_short_page(heading: str, sections: Sequence[ShortSection], directory: Path) -> Path:
    """Write `figures/<device>-<figure>.svg` and `report.html`; each file is whole or absent. Returns the page's path.

    Args:
        heading: the question that the page answers.
    """
    drawn = [_svgs(section) for section in sections]
    for section, svgs in zip(sections, drawn, strict=True):
        for name, svg in svgs.items():
            write_text(directory / "figures" / f"{device_slug(section.device)}-{name}.svg", svg)
    path = directory / "report.html"
    write_text(path, _html(heading, sections, drawn))
    return path


def device_slug(name: str) -> str:
    """A device's name as part of a file's."""
    return "".join(c if c.isalnum() or c in "-." else "_" for c in name)


def _html(heading: str, sections: Sequence[ShortSection], drawn: Sequence[dict[str, str]]) -> str:
    body = "".join(_section(i, each, svgs) for i, (each, svgs) in enumerate(zip(sections, drawn, strict=True)))
    statuses = "; ".join(f"{escape(name)}: {escape(meaning)}" for name, meaning in STATUSES.items())
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/><meta name="color-scheme" content="light dark"/>'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"/>'
        f"<title>jaxspec: {escape(heading[0].lower() + heading[1:])}</title>"
        f"<style>{SHORT_STYLE}{PRINT_STYLE}</style></head>\n<body>"
        f"<h1>{escape(heading)}</h1><p><small>Every number has a status. {statuses}.</small></p>"
        f"{body}</body></html>\n"
    )


def _svgs(section: ShortSection) -> dict[str, str]:
    drawn = {name: draw() for name, draw in section.figures.items()}
    return {name: figure_svg(figure) for name, figure in drawn.items() if figure is not None}


def _section(number: int, section: ShortSection, svgs: dict[str, str]) -> str:
    parts = [f'<p class="headline">{"<br/>".join(map(escape, section.headlines))}</p>']
    parts.append(f'<div class="scroll">{section.table._repr_html_()}</div>')
    for name, svg in svgs.items():
        caption = escape(section.captions[name])
        drawing = inline_svg(svg, prefix=f"d{number}-{name}-", label=caption)
        parts.append(f"<figure>{drawing}<figcaption>{caption}</figcaption></figure>")
    for title, text in section.blocks.items():
        parts.append(f"<h2>{escape(title)}</h2><pre>{escape(text)}</pre>")
    items = "".join(f"<li>{escape(remark)}</li>" for remark in section.remarks)
    parts.append(f"<h2>What this rests on: {escape(section.title)}</h2><ul>{items}</ul>")
    return f"<section>{''.join(parts)}</section>\n"
