"""The API reference in pages by room: what `docs/pages/api.md` lists, each name on the page of its package."""

from __future__ import annotations

import ast
import re

from generated.page import ROOT, Page

_LISTED = re.compile(r"^::: (\S+)$", re.MULTILINE)


def listed() -> list[str]:
    """Names of packages and modules, in the order in which `api.md` has them."""
    return _LISTED.findall((ROOT / "docs" / "pages" / "api.md").read_text(encoding="utf-8"))


def room(name: str) -> str:
    """The package whose page documents a module: one below the top, or the top for a module of its own file."""
    parts = name.split(".")[:2]
    return ".".join(parts) if (ROOT.joinpath(*parts) / "__init__.py").is_file() else parts[0]


def rooms() -> dict[str, list[str]]:
    """Room -> what its page documents; the room's own names come first."""
    modules: dict[str, list[str]] = {}
    for name in sorted(listed(), key=lambda name: name != room(name)):
        modules.setdefault(room(name), []).append(name)
    return {name: modules[name] for name in sorted(modules)}


def sentence(package: str) -> str:
    """The first sentence of a package's docstring, in one line."""
    source = (ROOT.joinpath(*package.split(".")) / "__init__.py").read_text(encoding="utf-8")
    text = " ".join((ast.get_docstring(ast.parse(source)) or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.]) ", text)[0].rstrip(".")


def index() -> str:
    """What `api.md` shows in place of its list: rooms, with their first sentences."""
    lines = [f"| [`{name}`](reference/{name}.md) | {sentence(name)} |" for name in rooms()]
    return "\n".join(["| package | what it holds |", "|---|---|", *lines])


def pages() -> list[Page]:
    """A page for each room."""
    made = []
    for name, members in rooms().items():
        blocks = "\n\n".join(f"::: {member}" for member in members)
        made.append(Page(f"reference/{name}.md", f"# {name}\n\n{blocks}\n", name))
    return made
