"""Tables of a catalog file: what one may hold follows from the class that it describes; see `hwmodels.numerics.fields`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any

from hwmodels.catalog.entries import EntryError, near_matches, read_source, read_value
from hwmodels.numerics.fields import Rule

__all__ = ["Form", "TableReader", "form_of", "named_rules", "rules_of"]


@dataclasses.dataclass(frozen=True)
class Form:
    """What a table may hold: numbers by rule (those not required have a default), texts, tables within."""

    build: Callable[..., Any]
    required: Mapping[str, Rule] = dataclasses.field(default_factory=dict)
    optional: Mapping[str, Rule] = dataclasses.field(default_factory=dict)
    texts: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)  # the first is the default
    tables: Mapping[str, Form] = dataclasses.field(default_factory=dict)  # all required
    kinds: Mapping[str, Mapping[str, type]] = dataclasses.field(
        default_factory=dict
    )  # tables with a kind, all optional
    flags: tuple[str, ...] = ()

    def leaves(self) -> list[str]:
        """Names of all fields, those of tables within after a dot."""
        own = [*self.required, *self.optional, *self.flags, *self.texts, *self.kinds]
        return own + [f"{table}.{name}" for table, inner in self.tables.items() for name in inner.leaves()]


@functools.cache
def form_of(kind: type) -> Form:
    """The form of a class whose fields are made by `hwmodels.numerics.fields`; other fields are no matter of a file."""
    fields = dataclasses.fields(kind)
    numbers = [field for field in fields if "rule" in field.metadata]
    needed = [field for field in numbers if field.default is dataclasses.MISSING]
    return Form(
        kind,
        required={field.name: field.metadata["rule"] for field in needed},
        optional={field.name: field.metadata["rule"] for field in numbers if field not in needed},
        texts={field.name: field.metadata["choices"] for field in fields if "choices" in field.metadata},
        tables={field.name: form_of(field.metadata["part"]) for field in fields if "part" in field.metadata},
        kinds={field.name: field.metadata["kinds"] for field in fields if "kinds" in field.metadata},
        flags=tuple(field.name for field in fields if "flag" in field.metadata),
    )


def named_rules(form: Form, prefix: str) -> dict[str, Rule]:
    """The rule of each number of a form and of the tables within, by dotted name behind a prefix."""
    rules = {prefix + name: rule for name, rule in {**form.required, **form.optional}.items()}
    for table, inner in form.tables.items():
        rules |= named_rules(inner, f"{prefix}{table}.")
    return rules


def rules_of(tree: Any, prefix: str) -> dict[str, Rule]:
    """`named_rules` of a tree's class and of the trees of some kind within it."""
    form = form_of(type(tree))
    rules = named_rules(form, prefix)
    for name in form.kinds:
        rules |= rules_of(getattr(tree, name), f"{prefix}{name}.")
    return rules


class TableReader:
    """Reads tables of one file and gathers the sources of their numbers.

    Attributes:
        where: the file's name, for messages.
        sources: dotted field name -> where its number comes from.
        calibration: of the matrix unit, where it is calibrated.
    """

    def __init__(self, where: str):
        self.where = where
        self.sources: dict[str, str] = {}
        self.calibration: str | None = None

    def read(self, table: Any, form: Form, prefix: str, also: tuple[str, ...] = ()) -> Any:
        """The tree of a table.

        Args:
            prefix: name of the table, empty for the file itself.
            also: keys that the file may have beside the form's.
        Raises:
            EntryError: a key unknown or missing; a value that breaks its rule; a source missing.
        """
        if not isinstance(table, dict):
            raise EntryError(
                f"{self.where}: {prefix} is {table!r}; it must be a table: write [{prefix}] above its fields"
            )
        dot = f"{prefix}." if prefix else ""
        numbers = {**form.required, **form.optional}
        allowed = (*form.required, *form.optional, *form.flags, *form.texts, *form.tables, *form.kinds)
        for key in table:
            if key not in allowed:
                shown = (*(dot + name for name in form.leaves()), *also)
                raise EntryError(
                    f"{self.where}: unknown key {dot + key!r};{near_matches(dot + key, shown)} "
                    f"allowed: {', '.join(shown)}"
                )
        for key in form.required:
            if key not in table:
                raise EntryError(
                    f'{self.where}: {dot + key} is missing; add {dot + key} = {{ value = …, source = "…" }}'
                )
        values: dict[str, Any] = {}
        for key, rule in numbers.items():
            if key in table:
                name = f"{self.where}: {dot + key}"
                values[key] = read_value(table[key], rule, name)
                self.sources[dot + key] = read_source(table[key], name)
        for key in form.flags:
            if key in table and not isinstance(table[key], bool):
                raise EntryError(f"{self.where}: {dot + key} is {table[key]!r}; it must be true or false")
        values |= {key: table[key] for key in form.flags if key in table}
        for key, choices in form.texts.items():
            if (text := table.get(key, choices[0])) not in choices:
                raise EntryError(f"{self.where}: {dot + key} is {text!r}; allowed: {', '.join(choices)}")
            values[key] = text
        for key, inner in form.tables.items():
            values[key] = self.read(table.get(key, {}), inner, dot + key)
        for key, kinds in form.kinds.items():
            if key in table:
                values[key] = self.read_kind(table[key], kinds, dot + key)
        return form.build(**values)

    def read_kind(self, table: Any, kinds: Mapping[str, type], name: str) -> Any:
        """The tree of a table whose `kind` says which class it describes. Raises EntryError: see `read`, `kind_of`."""
        kind, rest = self.kind_of(table, kinds, name)
        return self.read(rest, form_of(kinds[kind]), name)

    def kind_of(self, table: Any, kinds: Collection[str], name: str) -> tuple[str, dict[str, Any]]:
        """The kind that a table names, and the rest of it. Raises EntryError: no table, or of a kind that does not exist."""
        if not isinstance(table, dict):
            raise EntryError(f"{self.where}: {name} is {table!r}; it must be a table: write [{name}]")
        rest = dict(table)
        kind = rest.pop("kind", None)
        if not isinstance(kind, str) or kind not in kinds:
            near = near_matches(kind, kinds) if isinstance(kind, str) else ""
            raise EntryError(f"{self.where}: {name}.kind is {kind!r};{near} allowed: {', '.join(kinds)}")
        return kind, rest
