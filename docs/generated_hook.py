"""Adds generated pages to the site, and to its navigation where an entry names their folder: `- Notebooks: notebooks/`."""

from __future__ import annotations

import functools
import re
from typing import Any

from generated import commands, decisions, notebooks, papers, reference
from generated.calibrations import error_tables
from generated.page import ROOT, Page
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page as SitePage


def _pictures() -> list[Page]:
    return [Page(f"images/{path.name}", path.read_bytes()) for path in sorted((ROOT / "docs" / "images").iterdir())]


#: Folder of the site -> what writes its pages.
FOLDERS = {
    "images": _pictures,
    "decisions": decisions.pages,
    "notebooks": notebooks.pages,
    "papers": papers.pages,
    "reference": reference.pages,
}

#: What stands in a page's source -> what is shown in its place.
PLACES = {
    "<!-- error tables of calibrations -->": error_tables,
    "<!-- help of commands -->": commands.help_of_commands,
}

#: Links between the folders of `docs` as they work in the repository -> as they work in the site, whose pages lie one higher.
_LINKS = (
    (re.compile(r"\]\(\.\./(images|decisions|notebooks)/"), r"](\1/"),
    (
        re.compile(r"\]\(\.\./\.\./experiments/papers/(\w+)/README\.md"),
        lambda match: f"](papers/{match[1].replace('_', '-')}.md",
    ),
    (re.compile(r"\]\(\.\./pages/"), r"](../"),
    (re.compile(r"(\]\([^)\s:]*)\.ipynb\)"), r"\1.md)"),
)


@functools.cache
def _pages(folder: str) -> tuple[Page, ...]:
    return tuple(FOLDERS[folder]())


def _entries(folder: str) -> list[Any]:
    shown = [page for page in _pages(folder) if page.uri.endswith(".md")]
    return [{page.title: page.uri} if page.title else page.uri for page in shown]


def expanded(nav: list[Any]) -> list[Any]:
    """The navigation with the pages of a folder in place of its name."""
    entries = []
    for entry in nav:
        if isinstance(entry, dict):
            ((title, value),) = entry.items()
            if isinstance(value, list):
                entry = {title: expanded(value)}
            elif value.endswith("/"):
                entry = {title: _entries(value.rstrip("/"))}
        entries.append(entry)
    return entries


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Folders in the navigation become their pages."""
    assert config.nav is not None
    config.nav = expanded(config.nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Generated pages, and the pictures that lie beside the site's pages."""
    for folder in FOLDERS:
        for page in _pages(folder):
            files.append(File.generated(config, page.uri, content=page.content))
    return files


def on_page_markdown(markdown: str, *, page: SitePage, **_: Any) -> str:
    """What is generated within a page, and links that lead out of `docs/pages` on GitHub."""
    for place, write in PLACES.items():
        if place in markdown:
            markdown = markdown.replace(place, write())
    for pattern, link in _LINKS[page.file.src_uri.count("/") > 0 :]:
        markdown = pattern.sub(link, markdown)
    if page.file.src_uri == "api.md":
        markdown = re.sub(r"(^## [^\n]*\n|^::: \S+\n|\n)+\Z", "\n\n" + reference.index() + "\n", markdown, flags=re.M)
    return markdown
