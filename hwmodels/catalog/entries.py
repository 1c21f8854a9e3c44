"""One catalog entry: a TOML file with a title and, for every field, a value and its source.

title = "My accelerator"
peak_flops_per_s = { value = 10e12, source = "data sheet, page 3" }
...
[memory]
bandwidth_bytes_per_s = { value = 100e9, source = "assumed: …" }
...
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hwmodels.numerics.fields import FLAG, Rule


class EntryError(ValueError):
    """A catalog file is not what it should be: one line with the file, what came and what is allowed."""


class UnknownNameError(ValueError):
    """No catalog entry has this name: one line with what came, what is near, and all that is allowed."""


#: Sizes whose quotients and products single precision holds, as bytes over bandwidths; other numbers are slips.
SMALLEST, LARGEST = 1e-20, 1e20


@dataclasses.dataclass(frozen=True)
class Entry:
    """A file's content; fields of a TOML table carry its name before a dot, as in "memory.efficiency"."""

    title: str
    values: dict[str, float]
    sources: dict[str, str]
    texts: dict[str, str] = dataclasses.field(default_factory=dict)


#: Longest value that a message repeats.
_SHOWN = 60


def shown(value: Any) -> str:
    """A value of a file for a message, on one line and not long."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # Python refuses to print integers of thousands of digits
        return "a number of many digits"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def near_matches(name: str, allowed: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The part of an error message that helps with a slip of the keyboard; empty where nothing is near.

    Args:
        cutoff: similarity that counts as near, in [0, 1].
    """
    near = difflib.get_close_matches(name, list(allowed), n=3, cutoff=cutoff)
    return f" did you mean {' or '.join(map(repr, near))}?" if near else ""


def file_text(given: Any) -> str | None:
    """Content of a file by its path, also in a package; None of anything else. Raises EntryError: it cannot be read."""
    place = Path(given) if isinstance(given, (str, os.PathLike)) else given
    if not hasattr(place, "read_text"):
        return None
    try:
        return place.read_text(encoding="utf-8")
    except OSError as error:
        raise EntryError(f"{place}: cannot be read ({error.strerror}); give the path of a TOML file") from error
    except UnicodeDecodeError as error:
        raise EntryError(f"{place}: is no text in UTF-8 ({error}); give the path of a TOML file") from error


def checked_table(value: Any, name: str, where: str) -> dict[str, Any]:
    """A table of a file. Args: name: of the table. where: of the file, for messages. Raises EntryError: it is none."""
    if not isinstance(value, dict):
        raise EntryError(f"{where}: {name} is {shown(value)}; it must be a table: write [{name}] above its fields")
    return value


def titled_document(text: str, where: str) -> tuple[str, dict[str, Any]]:
    """A file's title and the rest of its content. Raises EntryError: not valid TOML, or no title."""
    try:
        document = tomllib.loads(text.removeprefix("\ufeff"))  # some editors begin a file with a byte-order mark
    except (ValueError, RecursionError) as error:
        raise EntryError(f"{where}: not valid TOML ({error}); fix the file") from error
    title = document.pop("title", None)
    if not isinstance(title, str) or not title.strip():
        raise EntryError(f'{where}: title is {shown(title)}; it must be a text: add a line title = "…" at the top')
    return title, document


def parse_entry(
    text: str,
    rules: Mapping[str, Rule],
    *,
    where: str,
    optional: frozenset[str] = frozenset(),
    texts: tuple[str, ...] = (),
) -> Entry:
    """Read an entry and check it against the rules of its fields.

    Args:
        text: the TOML file's content.
        rules: field -> rule; the fields that the file must have, all of them and no others.
        where: the file's name, for messages.
        optional: fields among them that the file may lack; those it lacks are in neither values nor sources.
        texts: further fields that the file may have, whose values are texts.
    Raises:
        EntryError: not valid TOML; a key unknown, missing or twice; a value that is no finite number or breaks its rule;
            a source missing or empty.
    """
    title, document = titled_document(text, where)
    return read_entry(title, document, rules, where=where, optional=optional, texts=texts)


def read_entry(
    title: str,
    document: dict[str, Any],
    rules: Mapping[str, Rule],
    *,
    where: str,
    optional: frozenset[str] = frozenset(),
    texts: tuple[str, ...] = (),
) -> Entry:
    """The same of the content of a file without its title."""
    fields = _flatten(document, {name.partition(".")[0] for name in rules if "." in name}, where)
    allowed = (*rules, *texts)
    for name in fields:
        if name not in allowed:
            raise EntryError(
                f"{where}: unknown key {name!r};{near_matches(name, allowed)} allowed: title, {', '.join(allowed)}"
            )
    for name in rules:
        if name not in fields and name not in optional:
            raise EntryError(f'{where}: {name} is missing; add {name} = {{ value = …, source = "…" }}')
    return Entry(
        title=title,
        values={name: read_value(fields[name], rules[name], f"{where}: {name}") for name in rules if name in fields},
        sources={name: read_source(fields[name], f"{where}: {name}") for name in allowed if name in fields},
        texts={name: _read_text(fields[name], f"{where}: {name}") for name in texts if name in fields},
    )


def _flatten(document: dict[str, Any], tables: set[str], where: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, content in document.items():
        if key not in tables:
            fields[key] = content
        else:
            fields |= {f"{key}.{name}": field for name, field in checked_table(content, key, where).items()}
    return fields


def read_value(field: Any, rule: Rule, where: str) -> float:
    """The value of { value = …, source = … }, checked. Raises EntryError, which begins with `where`."""
    if not isinstance(field, dict) or set(field) != {"value", "source"}:
        raise EntryError(f'{where} is {shown(field)}; it must be {{ value = …, source = "…" }}')
    value = field["value"]
    # A flag is written as a TOML boolean and nothing else is: `true` bytes per second is a slip.
    if not isinstance(value, (int, float)) or isinstance(value, bool) != (rule is FLAG):
        raise EntryError(f"{where} is {shown(value)}; it must be {rule.words}")
    # TOML integers have no bound, floats do.
    number = float(value) if abs(value) <= sys.float_info.max else math.inf * (1 if value > 0 else -1)
    in_range = number == 0 or SMALLEST <= abs(number) <= LARGEST
    if math.isfinite(number) and rule.holds(number) and not in_range:
        raise EntryError(
            f"{where} is {shown(value)}; sizes of numbers are from {SMALLEST:g} to {LARGEST:g}, in SI units"
        )
    if not in_range or not rule.holds(number):
        raise EntryError(f"{where} is {shown(value)}; it must be {rule.words}")
    return number


def _read_text(field: Any, where: str) -> str:
    if not isinstance(field, dict) or set(field) != {"value", "source"} or not isinstance(field["value"], str):
        raise EntryError(f'{where} is {shown(field)}; it must be {{ value = "…", source = "…" }}')
    return field["value"]


def read_source(field: Any, where: str) -> str:
    """The source of { value = …, source = … }. Raises EntryError, which begins with `where`."""
    source = field["source"]
    if not isinstance(source, str) or not source.strip():
        raise EntryError(
            f'{where} has source {shown(source)}; it must be a text: where the number comes from, or "assumed: why"'
        )
    return source
