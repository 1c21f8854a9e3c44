"""The page that needs nothing but itself, and its figures as files, for every command that writes one."""

from __future__ import annotations

import dataclasses
import importlib.resources
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import jinja2
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from jaxspec.files import write_text
from jaxspec.report.figures.style import figure_svg, inline_svg
from jaxspec.report.titles import architecture_title, device_name, device_title
from jaxspec.results import STATUSES
from jaxspec.results.network_results import MeasuredResult

__all__ = ["Drawings", "Page", "render_page", "write_page"]


#: Columns of numbers that stand side by side, on a screen and on paper; further ones follow below.
COLUMNS_ACROSS = 6


#: Figures by name, each as a function that draws it; None where the data is absent.
Drawings = Mapping[str, Callable[[], Figure | None]]

R = TypeVar("R", bound=MeasuredResult)


@dataclasses.dataclass(frozen=True)
class Page(Generic[R]):
    """What a command's page is made of.

    Attributes:
        heading: the question that it answers.
        summary: headings of the table over all devices, after the device's.
        section: what the template needs of one device, its figures apart.
        figures: of one device by name, without those whose data is absent.
        captions: name of a figure -> what it shows, in a sentence or two under it.
        closing: the last of the assumptions.
        command: what reproduces the result.
    """

    heading: str
    summary: tuple[str, ...]
    section: Callable[[R], dict[str, Any]]
    figures: Callable[[R], dict[str, Figure]]
    captions: Mapping[str, str]
    closing: str
    command: str


def write_page(page: Page[R], results: Sequence[R], out_dir: str | Path, *, config_toml: str | None = None) -> Path:
    """Write `figures/<device>-<figure>.svg` and `report.html` into a directory; each file is whole or absent.

    Args:
        results: one per device, as in result.json.
        out_dir: made where it does not exist.
        config_toml: the resolved configuration, shown in the report; that of `out_dir`/config.toml where it exists,
            unless given.
    Returns:
        The path of the page.
    """
    out_dir = Path(out_dir)
    figures = _svgs(page, results)
    for slug, by_name in zip(_slugs(results), figures):
        for name, svg in by_name.items():
            write_text(out_dir / "figures" / f"{slug}-{name}.svg", svg)
    beside = out_dir / "config.toml"
    if config_toml is None and beside.is_file():
        config_toml = beside.read_text(encoding="utf-8")
    path = out_dir / "report.html"
    write_text(path, _render(page, results, figures, config_toml=config_toml))
    return path


def render_page(page: Page[R], results: Sequence[R], *, config_toml: str | None = None) -> str:
    """The page as text; arguments as in `write_page`."""
    return _render(page, results, _svgs(page, results), config_toml=config_toml)


def _svgs(page: Page[R], results: Sequence[R]) -> list[dict[str, str]]:
    return [{name: figure_svg(figure) for name, figure in page.figures(result).items()} for result in results]


def _slugs(results: Iterable[MeasuredResult]) -> list[str]:
    """A name for each entry that is safe in file names and in ids, and unlike the others."""
    slugs: list[str] = []
    for result in results:
        base = re.sub(r"[^a-z0-9]+", "-", device_name(result).lower()).strip("-") or "device"
        slug, count = base, 1
        while slug in slugs:
            count += 1
            slug = f"{base}-{count}"
        slugs.append(slug)
    return slugs


def _render(
    page: Page[R], results: Sequence[R], figures: Sequence[Mapping[str, str]], *, config_toml: str | None
) -> str:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    source = importlib.resources.files("jaxspec.report").joinpath("template.html.j2").read_text(encoding="utf-8")
    return environment.from_string(source).render(
        title=", ".join(dict.fromkeys(f"{architecture_title(e)} on {device_title(e)}" for e in results)) or "no device",
        heading=page.heading,
        summary=page.summary,
        closing=page.closing,
        statuses=STATUSES,
        columns_across=COLUMNS_ACROSS,
        sections=[
            page.section(result) | {"id": slug, "figures": _inline(slug, svgs, page.captions)}
            for result, slug, svgs in zip(results, _slugs(results), figures)
        ],
        versions=_versions(results),
        command=page.command,
        config_toml=config_toml,
    )


def _inline(slug: str, svgs: Mapping[str, str], captions: Mapping[str, str]) -> list[dict[str, Any]]:
    """Figures for the page, with their captions."""
    found = []
    for name, svg in svgs.items():
        element = inline_svg(svg, prefix=f"{slug}-{name}", label=str(escape(captions[name])))
        found.append({"svg": Markup(element), "caption": captions[name]})
    return found


def _versions(results: Sequence[MeasuredResult]) -> list[tuple[str, str]]:
    found: dict[str, list[str]] = {}
    for result in results:
        for name, version in result.versions.items():
            found.setdefault(str(name), []).append(str(version))
    return [(name, " / ".join(dict.fromkeys(values))) for name, values in sorted(found.items())]
