"""Adds the decision records, which live beside the site's pages, to the site and to its navigation."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

DECISIONS = Path(__file__).parent / "decisions"


def _records() -> list[Path]:
    return sorted(DECISIONS.glob("[0-9]*.md"))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """One navigation entry for each record, titled by its first heading."""
    assert config.nav is not None
    config.nav.append({"Decision records": [f"decisions/{path.name}" for path in _records()]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The records as pages of the site."""
    for path in _records():
        files.append(File.generated(config, f"decisions/{path.name}", abs_src_path=str(path)))
    return files
