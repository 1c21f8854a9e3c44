"""The decision records, which live beside the site's pages."""

from __future__ import annotations

from generated.page import ROOT, Page


def pages() -> list[Page]:
    """The index, and each record as it is."""
    folder = ROOT / "docs" / "decisions"
    paths = [folder / "README.md", *sorted(folder.glob("[0-9]*.md"))]
    return [Page(f"decisions/{path.name}", path.read_text(encoding="utf-8")) for path in paths]
