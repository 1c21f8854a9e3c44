"""The notebooks as pages, with the outputs that they are committed with: nothing is executed while the site is built.

nbconvert writes them as Markdown, so that they get the site's own styles, search and formulas. A plugin that shows the
notebook's own HTML brings scripts, a second style sheet and its own typesetting, which the site does without.
"""

from __future__ import annotations

import re
from pathlib import Path

from generated.page import ROOT, Page

#: In the order in which a newcomer reads them; others follow by name.
_FIRST = ("first_plot", "from_network_to_draft", "tree_speculation", "pack_a_checkpoint")

_HEADING = re.compile(r"^# (.*)$", re.MULTILINE)

#: Of HTML in outputs: tables of results keep their tags, but bring no style of their own.
_STYLE = re.compile(r"<style.*?</style>", re.DOTALL)


def notebooks() -> list[Path]:
    """All of them, in reading order."""
    paths = {path.stem: path for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))}
    return [paths.pop(name) for name in _FIRST if name in paths] + list(paths.values())


def as_markdown(path: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook's text and, by name, its pictures."""
    import nbformat
    from nbconvert import MarkdownExporter

    text, resources = MarkdownExporter().from_notebook_node(
        nbformat.read(path, as_version=4), {"unique_key": path.stem}
    )
    return _STYLE.sub("", text), dict(resources["outputs"])


def pages() -> list[Page]:
    """Each notebook and its pictures."""
    made = []
    for path in notebooks():
        text, pictures = as_markdown(path)
        heading = _HEADING.search(text)
        made.append(Page(f"notebooks/{path.stem}.md", text, heading[1] if heading else path.stem))
        made += [Page(f"notebooks/{name}", picture) for name, picture in pictures.items()]
    return made
