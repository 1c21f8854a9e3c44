"""The decision records, which live beside the site's pages."""

from __future__ import annotations

from generated.page import ROOT, Page


def pages() -> list[Page]:
    """Each record as it is."""
    found = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    return [Page(f"decisions/{path.name}", path.read_text(encoding="utf-8")) for path in found]
