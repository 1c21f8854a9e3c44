"""The page of a study, which needs nothing but itself, and its figures as files: one for all commands."""

from __future__ import annotations

import dataclasses
import importlib.resources
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import jinja2
from markupsafe import Markup, escape

from jaxspec.partial_files import read_toml_beside, write_text
from jaxspec.report.assumptions import assumptions, device_rows
from jaxspec.report.columns import Grid
from jaxspec.report.formatting import (
    architecture_title,
    device_name,
    device_title,
    fixed,
    model_title,
    provenance,
)
from jaxspec.report.terminal import Table
from jaxspec.results import STATUSES
from jaxspec.results.network_results import DecodingSettings, Lossless, MeasuredResult, WorkloadSettings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "Drawings",
    "Page",
    "Proof",
    "Section",
    "device_slugs",
    "figures_of",
    "lossless_proof",
    "network_section",
    "page_writer",
    "write_page",
]

#: Columns of numbers that stand side by side, on a screen and on paper; further ones follow below.
COLUMNS_ACROSS = 6

#: Figures by name, each as a function that draws it; None where the data is absent.
Drawings: TypeAlias = "Mapping[str, Callable[[], Figure | None]]"

#: What the figure of the stopwatch shows.
STOPWATCH_CAPTION = (
    "Speed over decoding without speculation, both timed in turns here; bars hold 90 % of the repeats, and are 90 % intervals "
    "of predictions."
)

#: What the page of a network that ran says of all its numbers.
NETWORK_RAN = (
    "Acceptance is that of the network that ran here; time is that of the priced architecture, which did not run. The two "
    "meet in the bits that a draft reads per weight of each matrix kind (the mean over the layers of the network that ran) and "
    "in the acceptance at each position of the draft. Whether the priced architecture, compressed alike, would reach the same "
    "acceptance is not known."
)


@dataclasses.dataclass(frozen=True)
class Proof:
    """Whether something holds: "holds", "broken" or "unknown", and a sentence."""

    state: str
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """What a page shows of one device.

    Attributes:
        result: of which title, device data and assumptions are shown.
        headlines: the answer, a sentence each; pays: whether it is a good one.
        provenance: what ran and what was priced.
        tables: the main one first, in front of ratios and proof.
        best: record of the main table that is marked.
        ratios: name, value, remark of comparisons.
        figures: by name, each with a caption of the page.
        blocks: title -> text as it is, such as commands.
        settings: name, value. timing: stage, seconds.
        summary: value and interval by device, for the table over all devices, with the choice last.
        remarks: sentences behind the device's assumptions.
    """

    result: Any  # with `architecture` and `device`
    title: str
    headlines: Sequence[str]
    tables: Sequence[Grid[Any] | Table]
    pays: bool = True
    provenance: str = ""
    best: str | None = None
    ratios: Sequence[tuple[str, str, str]] = ()
    proof: Proof | None = None
    figures: Drawings = dataclasses.field(default_factory=dict)
    blocks: Mapping[str, str] = dataclasses.field(default_factory=dict)
    settings: Sequence[tuple[str, str]] = ()
    timing: Sequence[tuple[str, str]] = ()
    summary: Sequence[tuple[str, str]] = ()
    choice: str = ""
    remarks: Sequence[str] = ()

    @property
    def device(self) -> str:
        """What a person calls it."""
        return device_title(self.result)

    @property
    def device_data(self) -> list[tuple[str, str, str, str]]:
        """Field, value, status, source."""
        return device_rows(self.result)

    @property
    def assumptions(self) -> list[str]:
        """Behind the device's times, and what else there is to say."""
        return [*assumptions(self.result), *self.remarks]


def network_section(result: MeasuredResult, *, tables: Sequence[Grid[Any] | Table], **more: Any) -> Section:
    """A section of a network that ran: with its provenance, proof, stopwatch, settings and times, unless given."""
    from jaxspec.report.stopwatch import stopwatch_grids  # loads matplotlib

    own: dict[str, Any] = {
        "title": f"{architecture_title(result)} on {device_title(result)}",
        "provenance": provenance(result),
        "pays": bool(result.pays.value),
        "proof": lossless_proof(result.lossless),
        "settings": network_settings(result),
        "timing": timing(result),
    }
    return Section(result=result, tables=[*tables, *stopwatch_grids(result)], **own | more)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Page:
    """What is around the sections of a page.

    Attributes:
        heading: the question that it answers.
        command: what reproduces the result.
        summary: headings of the table over all devices, after the device's; none: there is no such table.
        assumptions, closing: paragraphs before and behind the assumptions of the devices.
        captions: a sentence or two under each figure, by its name, or by the part of it before a hyphen.
    """

    heading: str
    command: str
    summary: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = (NETWORK_RAN,)
    closing: str = ""
    captions: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def read(cls, module: str) -> Page:
        """The page whose words are in `page.toml` beside a module."""
        words = dict(read_toml_beside(module, "page.toml"))
        for name in {"summary", "assumptions"} & words.keys():
            words[name] = tuple(words[name])
        return cls(**words)

    def caption(self, figure: str) -> str:
        """Of a figure by name."""
        own = {**self.captions, "stopwatch": STOPWATCH_CAPTION}
        return own[figure if figure in own else figure.partition("-")[0]]


def write_page(page: Page, sections: Sequence[Section], out_dir: str | Path) -> Path:
    """Write `figures/<device>-<figure>.svg` and `report.html` into a directory; each file is whole or absent.

    Args:
        sections: one per device, as in result.json.
        out_dir: made where it does not exist; its config.toml, the resolved configuration, is shown in the report.
    Returns:
        The path of the page.
    """
    out_dir = Path(out_dir)
    figures = _svgs(sections)
    for slug, by_name in zip(_section_slugs(sections), figures, strict=True):
        for name, svg in by_name.items():
            write_text(out_dir / "figures" / f"{slug}-{name}.svg", svg)
    beside = out_dir / "config.toml"
    config_toml = beside.read_text(encoding="utf-8") if beside.is_file() else None
    path = out_dir / "report.html"
    write_text(path, _render(page, sections, figures, config_toml))
    return path


def page_writer(module: str, section: Callable[[Any], Section]) -> Callable[[Any, str | Path], Path]:
    """A function that writes the page of several results, or of one, into a directory; see `write_page`.

    Args:
        module: beside which the page's words are, in `page.toml`.
        section: of a result.
    """
    page = Page.read(module)
    return lambda results, out_dir: write_page(
        page, list(map(section, results if isinstance(results, list) else [results])), out_dir
    )


def figures_of(**draw: Callable[[Any], Figure | None]) -> Callable[..., Drawings]:
    """A function from a result, and its directory, which they do not need, to these figures by name; see `Study.figures`."""
    return lambda result, directory=None: {name: partial(figure, result) for name, figure in draw.items()}


def drawn(figures: Drawings) -> dict[str, Figure]:
    """Figures by name, without those whose data is absent."""
    return {name: figure for name, draw in figures.items() if (figure := draw()) is not None}


def _svgs(sections: Sequence[Section]) -> list[dict[str, str]]:
    by_section = [drawn(section.figures) for section in sections]
    if not any(by_section):
        return [{} for _ in by_section]
    from jaxspec.report.figure_style import figure_svg  # loads matplotlib

    return [{name: figure_svg(each) for name, each in figures.items()} for figures in by_section]


def _svg_within(svg: str, prefix: str, caption: str) -> Markup:
    from jaxspec.report.figure_style import inline_svg

    return Markup(inline_svg(svg, prefix=prefix, label=str(escape(caption))))


def device_slugs(names: Iterable[str]) -> list[str]:
    """For each name one that is safe in names of files and in ids, and unlike the others."""
    slugs: list[str] = []
    for name in names:
        base = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "device"
        slug, count = base, 1
        while slug in slugs:
            count += 1
            slug = f"{base}-{count}"
        slugs.append(slug)
    return slugs


def _section_slugs(sections: Sequence[Section]) -> list[str]:
    return device_slugs(device_name(section.result) for section in sections)


def _render(
    page: Page, sections: Sequence[Section], figures: Sequence[Mapping[str, str]], config_toml: str | None
) -> str:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    source = importlib.resources.files("jaxspec.report").joinpath("template.html.j2").read_text(encoding="utf-8")
    results = [section.result for section in sections]
    return environment.from_string(source).render(
        title=", ".join(dict.fromkeys(f"{architecture_title(e)} on {device_title(e)}" for e in results)) or "no device",
        page=page,
        statuses=STATUSES,
        columns_across=COLUMNS_ACROSS,
        sections=[
            {"id": slug, "drawn": _inline(slug, svgs, page), "of": section}
            for section, slug, svgs in zip(sections, _section_slugs(sections), figures, strict=True)
        ],
        versions=_versions(results),
        config_toml=config_toml,
    )


def _inline(slug: str, svgs: Mapping[str, str], page: Page) -> list[dict[str, Any]]:
    """Figures for the page, with their captions."""
    return [
        {"svg": _svg_within(svg, f"{slug}-{name}", page.caption(name)), "caption": page.caption(name)}
        for name, svg in svgs.items()
    ]


def _versions(results: Sequence[Any]) -> list[tuple[str, str]]:
    versions: dict[str, list[str]] = {}
    for result in results:
        for name, version in getattr(result, "versions", {}).items():
            versions.setdefault(str(name), []).append(str(version))
    return [(name, " / ".join(dict.fromkeys(values))) for name, values in sorted(versions.items())]


def lossless_proof(proof: Lossless) -> Proof:
    """The proof that drafts change speed and nothing else, in a line."""
    mismatches = proof.mismatches.number
    if mismatches is None:
        return Proof("unknown", "Lossless: not checked in this run.")
    where = f"{fixed(proof.tokens.number, 0)} tokens of {fixed(proof.prompts.number, 0)} prompts"
    ties, margin = proof.ties.number, proof.smallest_margin.number
    more = "" if ties is None else f", {ties:.0f} {'tie' if ties == 1 else 'ties'}"
    more += "" if margin is None else f"; smallest margin between the two best tokens {margin:.3g}"
    if mismatches:
        differ = f"{mismatches:.0f} of {where} differ between speculative and autoregressive output{more}"
        return Proof("broken", f"NOT lossless: {differ}.")
    agree = f"speculative and autoregressive output agree in all {where}, 0 mismatches{more}"
    return Proof("holds", f"Lossless: {agree}.")


def network_settings(result: MeasuredResult, **more: str | None) -> list[tuple[str, str]]:
    """What the result holds for.

    Args:
        more: further settings, before text and seed.
    """
    facts: dict[str, Any] = {
        "model": model_title(result),
        "note": result.model.note,
        "architecture": result.architecture,
        "device": result.device,
        "scheme": result.scheme,
        **more,
        "text": result.text,
        "prompts": result.prompts,
        "seed": result.seed,
        "workload": _in_words(result.workload),
        "decoding": _in_words(result.decoding),
    }
    notes = [(f"note {i}", note) for i, note in enumerate(result.notes, start=1)]
    return [*((name, str(value)) for name, value in facts.items() if value is not None), *notes]


def _in_words(part: WorkloadSettings | DecodingSettings) -> str | None:
    known = {name: value for name, value in part.plain().items() if value is not None}
    parts = [f"{name.replace('_', ' ')} {_word(value)}" for name, value in known.items()]
    return ", ".join(parts) or None


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def timing(result: MeasuredResult) -> list[tuple[str, str]]:
    """Seconds by kind of stage, what stands before a slash in the stages' names; the longest first."""
    totals: dict[str, float] = {}
    for stage, seconds in result.timing_s.items():
        if seconds.number is not None:
            kind = stage.partition("/")[0].replace("_", " ")
            totals[kind] = totals.get(kind, 0.0) + seconds.number
    longest_first = sorted(totals.items(), key=lambda entry: -entry[1])
    return [(kind, f"{seconds:.1f} s") for kind, seconds in longest_first]
