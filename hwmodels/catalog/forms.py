"""Tables of a catalog file: what one may hold follows from the class that it describes; see `hwmodels.numerics.fields`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hwmodels.catalog.entries import EntryError, checked_table, near_matches, read_source, read_value, shown
from hwmodels.numerics.fields import FLAG, Rule

__all__ = ["GIVEN", "Form", "TableReader", "form_of", "named_rules", "written", "written_number"]

#: Source of a number that somebody gave in a program.
GIVEN = "given"


@dataclasses.dataclass(frozen=True)
class Form:
    """What a table may hold: numbers by rule (those not required have a default), texts, tables within."""

    build: Callable[..., Any]
    required: Mapping[str, Rule] = dataclasses.field(default_factory=dict)
    optional: Mapping[str, Rule] = dataclasses.field(default_factory=dict)
    texts: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)  # the first is the default
    tables: Mapping[str, Form] = dataclasses.field(default_factory=dict)
    variants: Mapping[str, Mapping[str, Form]] = dataclasses.field(default_factory=dict)  # tables, by their `kind`
    absent: frozenset[str] = frozenset()  # tables that a file may lack
    flags: tuple[str, ...] = ()

    def inner(self) -> list[tuple[str, Form]]:
        """All tables within, those of several kinds once for each."""
        several = [(table, form) for table, forms in self.variants.items() for form in forms.values()]
        return [*self.tables.items(), *several]

    def leaves(self) -> list[str]:
        """Names of all fields, those of tables within after a dot."""
        own = [*self.required, *self.optional, *self.flags, *self.texts]
        kinds = [f"{table}.kind" for table in self.variants]
        within = [f"{table}.{name}" for table, inner in self.inner() for name in inner.leaves()]
        return list(dict.fromkeys([*own, *kinds, *within]))


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
        variants={
            field.name: {kind: form_of(variant) for kind, variant in field.metadata["variants"].items()}
            for field in fields
            if "variants" in field.metadata
        },
        absent=frozenset(
            field.name
            for field in fields
            if field.default is not dataclasses.MISSING and {"part", "variants"} & field.metadata.keys()
        ),
        flags=tuple(field.name for field in fields if "flag" in field.metadata),
    )


def named_rules(form: Form, prefix: str) -> dict[str, Rule]:
    """The rule of each number of a form and of the tables within, by dotted name behind a prefix."""
    rules = {prefix + name: rule for name, rule in {**form.required, **form.optional}.items()}
    for table, inner in form.inner():
        rules |= named_rules(inner, f"{prefix}{table}.")
    return rules


def written_number(value: Any, rule: Rule, source: str, name: str) -> dict[str, Any]:
    """A number as a file has it. Raises EntryError: an array of several, or a traced value."""
    try:
        number = float(np.asarray(value).reshape(()))
    except (TypeError, ValueError) as error:
        raise EntryError(f"{name} is no single number; a file has one: give devices and networks one by one") from error
    return {"value": bool(number) if rule is FLAG else number, "source": source}


def written(tree: Any, form: Form, sources: Mapping[str, str], prefix: str = "") -> dict[str, Any]:
    """The table of a file that `TableReader.read` makes this tree of.

    Args:
        sources: by dotted name; of other numbers it is `GIVEN`, and those at their defaults are left out.
        prefix: of the table's names, with the dot.
    Raises:
        EntryError: a number that no file can have.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(tree)}
    table: dict[str, Any] = {}
    for key, rule in {**form.required, **form.optional}.items():
        value, name = getattr(tree, key), prefix + key
        at_default = value is None or (key in form.optional and not np.ndim(value) and value == defaults[key])
        if not at_default or sources.get(name, GIVEN) != GIVEN:
            table[key] = written_number(value, rule, sources.get(name, GIVEN), name)
    table |= {key: True for key in form.flags if getattr(tree, key)}
    table |= {key: getattr(tree, key) for key in form.texts}
    for key, inner in form.tables.items():
        if getattr(tree, key) is not None:
            table[key] = written(getattr(tree, key), inner, sources, f"{prefix}{key}.")
    for key, kinds in form.variants.items():
        if (value := getattr(tree, key)) is not None:
            kind = next(name for name, one in kinds.items() if one.build is type(value))
            table[key] = {"kind": kind, **written(value, kinds[kind], sources, f"{prefix}{key}.")}
    return table


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
        checked_table(table, prefix, self.where)
        dot = f"{prefix}." if prefix else ""
        numbers = {**form.required, **form.optional}
        allowed = (*form.required, *form.optional, *form.flags, *form.texts, *form.tables, *form.variants)
        if unknown := [dot + key for key in table if key not in allowed]:
            known = (*(dot + name for name in form.leaves()), *also)
            raise EntryError(
                f"{self.where}: unknown key {', '.join(map(repr, unknown))};{near_matches(unknown[0], known)} "
                f"allowed: {', '.join(known)}"
            )
        if missing := [dot + key for key in form.required if key not in table]:
            rest = f", and likewise {', '.join(missing[1:])}" if len(missing) > 1 else ""
            raise EntryError(
                f'{self.where}: {missing[0]} is missing; add {missing[0]} = {{ value = …, source = "…" }}{rest}'
            )
        values: dict[str, Any] = {}
        for key, rule in numbers.items():
            if key in table:
                name = f"{self.where}: {dot + key}"
                values[key] = read_value(table[key], rule, name)
                self.sources[dot + key] = read_source(table[key], name)
        for key in form.flags:
            if key in table and not isinstance(table[key], bool):
                raise EntryError(f"{self.where}: {dot + key} is {shown(table[key])}; it must be true or false")
        values |= {key: table[key] for key in form.flags if key in table}
        for key, choices in form.texts.items():
            if (text := table.get(key, choices[0])) not in choices:
                raise EntryError(f"{self.where}: {dot + key} is {shown(text)}; allowed: {', '.join(choices)}")
            values[key] = text
        for key, inner in form.tables.items():
            if key in table or key not in form.absent:
                values[key] = self.read(table.get(key, {}), inner, dot + key)
        for key, kinds in form.variants.items():
            if key in table or key not in form.absent:
                values[key] = self.read_variant(table.get(key, {}), kinds, dot + key)
        return form.build(**values)

    def read_variant(self, table: Any, kinds: Mapping[str, Form], prefix: str) -> Any:
        """The tree of a table that names which of several kinds it is. Raises EntryError: see `read`; no or another kind."""
        kind = checked_table(table, prefix, self.where).get("kind")
        if not isinstance(kind, str) or kind not in kinds:
            near = near_matches(kind, kinds) if isinstance(kind, str) else ""
            raise EntryError(f"{self.where}: {prefix}.kind is {shown(kind)};{near} allowed: {', '.join(kinds)}")
        return self.read({name: field for name, field in table.items() if name != "kind"}, kinds[kind], prefix)
