"""The report: one page that needs nothing but itself, and its figures as files."""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from jaxspec.files import write_text
from jaxspec.report.entries import STATUSES, Entry, architecture_title, device_name, device_title, lookup
from jaxspec.report.figures import (
    acceptance_figure,
    convergence_figure,
    knobs_figure,
    operator_time_figure,
    roofline_figure,
    tokens_figure,
)
from jaxspec.report.section import section
from jaxspec.report.svg import figure_svg, inline_svg

#: The complete, resolved configuration lies beside the report.
DEFAULT_COMMAND = "jaxspec tune --config config.toml"

#: Figure -> what it shows, in a sentence under it.
_CAPTIONS = {
    "acceptance": "Each point of the grid is one pair of knobs for all matrices, measured on calibration text; the "
    "configurations are measured on held-out prompts. Up and left is better; what is fastest depends on the device too.",
    "knobs": "What the tuned draft leaves out of each matrix, and of keys and values. These are settings, not results.",
    "convergence": "Rising lines are the draft as the optimiser sees it, with smooth masks and bits; level lines are the hard, "
    "bit-exact configurations that are reported.",
    "tokens": "Both on the same prompts. The expected number follows from the acceptance at each position, the counted "
    "one is what decoding really yielded.",
    "roofline": "A step is a mixture of operators, so its point may lie below the roof although each operator touches it.",
    "operator_time": "One bar is one step; a cycle is several draft steps and one verification.",
}


def write_report(
    entries: Sequence[Entry],
    metrics: Sequence[Mapping[str, Any]],
    out_dir: str | Path,
    *,
    command: str = DEFAULT_COMMAND,
    config_toml: str | None = None,
) -> Path:
    """Write `figures/<device>-<figure>.svg` and `report.html` into a directory; each file is whole or absent.

    Args:
        entries: one per device, as in result.json.
        metrics: lines with device, stage, step, speedup and temperature, of all devices.
        out_dir: made where it does not exist.
        command: what reproduces the result.
        config_toml: the resolved configuration, shown in the report; that of `out_dir`/config.toml where it exists,
            unless given.
    Returns:
        The path of the page.
    """
    out_dir = Path(out_dir)
    figures = _all_figures(entries, metrics)
    for slug, by_name in zip(_slugs(entries), figures):
        for name, svg in by_name.items():
            write_text(out_dir / "figures" / f"{slug}-{name}.svg", svg)
    beside = out_dir / "config.toml"
    if config_toml is None and beside.is_file():
        config_toml = beside.read_text(encoding="utf-8")
    page = out_dir / "report.html"
    write_text(page, _render(entries, figures, command=command, config_toml=config_toml))
    return page


def report_html(
    entries: Sequence[Entry],
    metrics: Sequence[Mapping[str, Any]],
    *,
    command: str = DEFAULT_COMMAND,
    config_toml: str | None = None,
) -> str:
    """The page as text; arguments as in `write_report`."""
    return _render(entries, _all_figures(entries, metrics), command=command, config_toml=config_toml)


def draw_figures(entry: Entry, metrics: Sequence[Mapping[str, Any]]) -> dict[str, Figure]:
    """All figures of one device by name, without those whose data is absent."""
    drawn = {
        "acceptance": acceptance_figure(entry),
        "knobs": knobs_figure(entry),
        "convergence": convergence_figure(entry, metrics),
        "tokens": tokens_figure(entry),
        "roofline": roofline_figure(entry),
        "operator_time": operator_time_figure(entry),
    }
    return {name: figure for name, figure in drawn.items() if figure is not None}


def _all_figures(entries: Sequence[Entry], metrics: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    return [{name: figure_svg(figure) for name, figure in draw_figures(entry, metrics).items()} for entry in entries]


def _slugs(entries: Iterable[Entry]) -> list[str]:
    """A name for each entry that is safe in file names and in ids, and unlike the others."""
    slugs: list[str] = []
    for entry in entries:
        base = re.sub(r"[^a-z0-9]+", "-", device_name(entry).lower()).strip("-") or "device"
        slug, count = base, 1
        while slug in slugs:
            count += 1
            slug = f"{base}-{count}"
        slugs.append(slug)
    return slugs


def _render(
    entries: Sequence[Entry], figures: Sequence[Mapping[str, str]], *, command: str, config_toml: str | None
) -> str:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    source = importlib.resources.files("jaxspec.report").joinpath("template.html.j2").read_text(encoding="utf-8")
    return environment.from_string(source).render(
        title=", ".join(dict.fromkeys(f"{architecture_title(e)} on {device_title(e)}" for e in entries)) or "no device",
        statuses=STATUSES,
        sections=[
            section(entry) | {"id": slug, "figures": _inline(slug, svgs)}
            for entry, slug, svgs in zip(entries, _slugs(entries), figures)
        ],
        versions=_versions(entries),
        command=command,
        config_toml=config_toml,
    )


def _inline(slug: str, svgs: Mapping[str, str]) -> list[dict[str, Any]]:
    """Figures for the page, with their captions."""
    found = []
    for name, svg in svgs.items():
        element = inline_svg(svg, prefix=f"{slug}-{name}", label=str(escape(_CAPTIONS[name])))
        found.append({"svg": Markup(element), "caption": _CAPTIONS[name]})
    return found


def _versions(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    found: dict[str, list[str]] = {}
    for entry in entries:
        for name, version in (lookup(entry, "versions") or {}).items():
            found.setdefault(str(name), []).append(str(version))
    return [(name, " / ".join(dict.fromkeys(values))) for name, values in sorted(found.items())]
