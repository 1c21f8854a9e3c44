"""The advice as one page that needs nothing but itself, and its figures as files."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from jaxspec.files import write_text
from jaxspec.report.svg import figure_svg, inline_svg
from jaxspec.results import STATUSES
from jaxspec.studies.advise.report import advice_table, figures
from jaxspec.studies.advise.result import AdviseResult
from jaxspec.studies.advise.words import advice_in_words

__all__ = ["advice_html", "device_slug", "write_advice"]

_CAPTIONS = {
    "gain": "Above each batch stands the draft length to use there.",
    "limits": "Each operator's time belongs to what it waits for longest. Hatched: draft steps.",
}

_STYLE = """
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
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem; vertical-align: top; }
small, figcaption { color: var(--soft); font-size: .9rem; }
figure { margin: 1.2rem 0; } figure svg { display: block; width: 100%; height: auto; max-width: 900px; }
pre { background: var(--card); padding: .7rem .9rem; overflow-x: auto; font-size: .85rem; }
"""


def write_advice(results: Sequence[AdviseResult], directory: Path) -> Path:
    """Write `figures/<device>-<figure>.svg` and `report.html`; each file is whole or absent. Returns the page's path."""
    drawn = [_svgs(result) for result in results]
    for result, svgs in zip(results, drawn, strict=True):
        for name, svg in svgs.items():
            write_text(directory / "figures" / f"{device_slug(result.device or '')}-{name}.svg", svg)
    path = directory / "report.html"
    write_text(path, advice_html(results, drawn))
    return path


def advice_html(results: Sequence[AdviseResult], drawn: Sequence[dict[str, str]]) -> str:
    """The page as text.

    Args:
        drawn: of each result its figures as SVG documents, by name.
    """
    sections = "".join(_section(i, result, svgs) for i, (result, svgs) in enumerate(zip(results, drawn, strict=True)))
    statuses = "; ".join(f"{escape(name)}: {escape(meaning)}" for name, meaning in STATUSES.items())
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/><meta name="color-scheme" content="light dark"/>'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"/>'
        f"<title>jaxspec: should this network speculate?</title><style>{_STYLE}</style></head>\n<body>"
        f"<h1>Should this network speculate?</h1><p><small>Every number has a status. {statuses}.</small></p>"
        f"{sections}</body></html>\n"
    )


def device_slug(name: str) -> str:
    """A device's name as part of a file's."""
    return "".join(c if c.isalnum() or c in "-." else "_" for c in name)


def _svgs(result: AdviseResult) -> dict[str, str]:
    drawn = {name: draw() for name, draw in figures(result).items()}
    return {name: figure_svg(figure) for name, figure in drawn.items() if figure is not None}


def _section(number: int, result: AdviseResult, svgs: dict[str, str]) -> str:
    parts = [f'<p class="headline">{escape(advice_in_words(result))}</p>']
    parts.append(f'<div class="scroll">{advice_table(result)._repr_html_()}</div>')
    for name, svg in svgs.items():
        drawing = inline_svg(svg, prefix=f"d{number}-{name}-", label=escape(_CAPTIONS[name]))
        parts.append(f"<figure>{drawing}<figcaption>{escape(_CAPTIONS[name])}</figcaption></figure>")
    for title, command in result.commands.items():
        parts.append(f"<h2>{escape(title)}</h2><pre>{escape(command)}</pre>")
    remarks = [*result.assumptions, *result.notes]
    items = "".join(f"<li>{escape(remark)}</li>" for remark in remarks)
    parts.append(f"<h2>What this rests on: {escape(result.device_title or result.device or '')}</h2><ul>{items}</ul>")
    return f"<section>{''.join(parts)}</section>\n"
