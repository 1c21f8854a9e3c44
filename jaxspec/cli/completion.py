"""What the tab key offers for the value of an option: the names that a setting takes, or files. Loads no JAX."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem

from jaxspec.settings.fields import choices_of, names_of, takes_several, takes_text

__all__ = ["Completion", "completion_of", "names_of_catalog", "words_or_files"]

#: What Click calls to complete a value that is begun.
Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def completion_of(field: dataclasses.Field, annotation: Any) -> Completion | None:
    """Completion of one setting; None: it takes no text."""
    if choices := choices_of(annotation):
        return lambda _, __, begun: _names(choices, begun, annotation)
    if not takes_text(annotation):
        return None
    return lambda _, __, begun: _names(names_of(field), begun, annotation) or _files(begun)


def words_or_files(words: Iterable[str]) -> Completion:
    """Completion of an argument that is a file, or one of a few words."""
    # bash forgets what came before an item that asks for files.
    return lambda _, __, begun: [*_files(begun), *_items(words, begun)]


def names_of_catalog(names: Callable[[], Iterable[str]]) -> Completion:
    """Completion of an argument that is a name of the catalog, which is read when the tab key asks."""
    return lambda _, __, begun: _items(names(), begun)


def _names(names: Iterable[str], begun: str, annotation: Any) -> list[CompletionItem]:
    """Names in any case; of several separated by commas the last one, which is none of those before."""
    before, comma, last = begun.rpartition(",") if takes_several(annotation) else ("", "", begun)
    return _items((name for name in names if name not in before.split(",")), last, before + comma)


def _items(names: Iterable[str], begun: str, before: str = "") -> list[CompletionItem]:
    found = (name for name in names if name.casefold().startswith(begun.casefold()))
    return [CompletionItem(f"{before}{name}") for name in found]


def _files(begun: str) -> list[CompletionItem]:
    return [CompletionItem(begun, type="file")]
