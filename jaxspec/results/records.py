"""Records of a result: from typed dataclasses to JSON's own types and back, with a table of statuses where one is due.

A field holds a `Quantity`, another record, a list or table (dict) of these, or plain data. A record's JSON has a key for each
field, and one more for a standard error that has a name of its own.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

from jaxspec.errors import InputError
from jaxspec.partial_files import plain, read_json

__all__ = [
    "STATUSES",
    "UNKNOWN",
    "Quantity",
    "Record",
    "Result",
    "Status",
    "calibrated",
    "finite",
    "flat_table",
    "given",
    "inline_dict_field",
    "measured",
    "one_word",
    "predicted",
    "quantities",
    "quantity_field",
    "rest_table",
    "significant",
    "status_in",
    "status_table",
]

# A number of a result: its value, its status, and its standard error where one was measured.

#: Kinds of a reported number.
Status = Literal["measured", "predicted", "calibrated", "input"]

#: Each kind with its meaning.
STATUSES: dict[str, str] = {
    "measured": "ran here",
    "predicted": "from a model, not fitted to these numbers",
    "calibrated": "from a model that was fitted to some of these numbers",
    "input": "given, or taken from a paper or a data sheet",
}

T = TypeVar("T", covariant=True)
V = TypeVar("V")


@dataclasses.dataclass(frozen=True)
class Quantity(Generic[T]):
    """A number, or numbers of one kind.

    Attributes:
        value: None where it is not known.
        status: one of `STATUSES`; None where nothing says so.
        standard_error: of a measured mean.
    """

    value: T | None
    status: str | None = None
    standard_error: float | None = None

    @property
    def known(self) -> T:
        """The value of a number that a result always has.

        Raises:
            ValueError: it does not have it.
        """
        if self.value is None:
            raise ValueError("the result does not have this number; it is that of another version, or was cut")
        return self.value

    @property
    def number(self) -> float | None:
        """The value, if it is one finite number."""
        return finite(self.value)


#: Stands for a number that a result does not have.
UNKNOWN: Quantity[Any] = Quantity(None)


def measured(value: V | None, standard_error: float | None = None) -> Quantity[V]:
    """A number that was measured here."""
    return Quantity(value, "measured", standard_error)


def predicted(value: V | None) -> Quantity[V]:
    """A number from a model that was not fitted to it."""
    return Quantity(value, "predicted")


def calibrated(value: V | None) -> Quantity[V]:
    """A number from a model that was fitted to some of the same numbers."""
    return Quantity(value, "calibrated")


def given(value: V | None) -> Quantity[V]:
    """A number that a user, a paper or a data sheet gave."""
    return Quantity(value, "input")


def quantities(
    status: Callable[[Any], Quantity[Any]], source: Any, *names: str, of: Callable[[Any], Any] = lambda value: value
) -> dict[str, Any]:
    """Attributes of an object as numbers of one status, by name. Args: of: from an attribute to its number."""
    return {name: status(of(getattr(source, name))) for name in names}


def finite(value: Any) -> float | None:
    """A finite number as a float; None for everything else."""
    if isinstance(value, bool):
        return None
    try:
        value = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def significant(value: float, digits: int) -> str:
    """A number with so many digits; a larger one has all before the point, as in "14,336", and no exponent."""
    return f"{value:,.0f}" if abs(value) >= 10.0**digits - 0.5 else f"{value:.{digits}g}"


_ERROR, _INLINE = "error", "inline"


def quantity_field(error: str) -> Any:
    """Field of a quantity whose standard error stands under a key of its own."""
    return dataclasses.field(default=UNKNOWN, metadata={_ERROR: error})


def inline_dict_field() -> Any:
    """Field of a table whose entries stand among the record's own keys."""
    return dataclasses.field(default_factory=dict, metadata={_INLINE: True})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """Base of the parts of a result."""

    #: Whether its JSON has a table "status" of its own.
    has_status_table: ClassVar[bool] = False
    #: Whether one word stands for a part all of whose numbers have the same status.
    one_status: ClassVar[bool] = True
    #: Arrangement of its table of statuses: from `status_table` to what JSON holds.
    arrange_statuses: ClassVar[Callable[[dict[str, Any]], Any]] = dict

    def plain(self) -> dict[str, Any]:
        """The record in JSON's own types."""
        table: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.metadata.get(_INLINE):
                table |= {name: _plain(item) for name, item in value.items()}
                continue
            table[field.name] = _plain(value)
            if error := field.metadata.get(_ERROR):
                table[error] = plain(value.standard_error)
        if self.has_status_table:
            table["status"] = self.statuses()
        return table

    def statuses(self) -> Any:
        """Status of each number by its name, or one for all where the record is arranged so."""
        return type(self).arrange_statuses(status_table(self))

    @classmethod
    def from_plain(cls, raw: Any, statuses: Mapping[str, Any] | None = None, path: tuple[str, ...] = ()) -> Self:
        """The record of a JSON object; what is absent or null is unknown.

        Args:
            statuses: table of the record around it; of a record with a table of its own, that one counts.
            path: names from the record with the table down to this one.
        """
        raw = raw if isinstance(raw, Mapping) else {}
        if cls.has_status_table:
            statuses, path = raw.get("status"), ()
        table = statuses if isinstance(statuses, Mapping) else {}
        if isinstance(statuses, str):  # of all numbers
            table = {"everything else": statuses}
        kinds, known = _kinds(cls), {"status"}
        values: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            error = field.metadata.get(_ERROR)
            known |= {field.name, error}
            if field.metadata.get(_INLINE):
                continue
            value = _load(raw.get(field.name), kinds[field.name], table, (*path, field.name))
            if value is not None:
                values[field.name] = dataclasses.replace(value, standard_error=raw.get(error)) if error else value
        for field in dataclasses.fields(cls):
            if field.metadata.get(_INLINE):
                rest = {key: value for key, value in raw.items() if key not in known}
                values[field.name] = _load(rest, kinds[field.name], table, path)
        return cls(**values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result(Record):
    """Base of results: what a command writes to `result.json`, for one device or altogether."""

    has_status_table = True

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        # Before the decorator of dataclasses, which would write out thousands of numbers.
        cls.__repr__ = Result.__repr__

    def __repr__(self) -> str:
        known = [getattr(self, name, None) for name in ("architecture", "device")]
        about = " on ".join(name for name in known if isinstance(name, str))
        return f"<{type(self).__name__}{f': {about}' if about else ''}>"

    @classmethod
    def from_plain(cls, raw: Any, statuses: Mapping[str, Any] | None = None, path: tuple[str, ...] = ()) -> Self:
        """As of `Record`. Raises InputError: its keys have the meaning of another `schema_version`."""
        ours = getattr(cls, "schema_version", None)
        if ours is not None and isinstance(raw, Mapping) and (theirs := raw.get("schema_version", ours)) != ours:
            raise InputError(
                f"the result's schema_version is {theirs!r}, and this version of jaxspec reads {ours}; open it with the "
                "version that run.json names, or start the run anew with --force"
            )
        return super().from_plain(raw, statuses, path)

    @classmethod
    def load(cls, path: str | Path) -> list[Self]:
        """The results in a `result.json`.

        Raises:
            InputError: it cannot be read, is no JSON of results, or has another `schema_version`.
        """
        try:
            raw = read_json(path)
        except OSError as error:
            raise InputError(f"result {str(path)!r} cannot be read ({error.strerror}); give a result.json") from error
        except ValueError as error:
            raise InputError(f"{str(path)!r} is not valid JSON ({error}); give a result.json") from error
        entries = raw if isinstance(raw, list) else [raw]
        if not entries or not all(isinstance(entry, dict) for entry in entries):
            raise InputError(f"{str(path)!r} holds no results; give a result.json")
        return [cls.from_plain(entry) for entry in entries]


@functools.cache
def _kinds(cls: type[Record]) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _plain(value: Any) -> Any:
    if isinstance(value, Quantity):
        return plain(value.value)
    if isinstance(value, Record):
        return value.plain()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return plain(value)


def _load(raw: Any, kind: Any, table: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """A value of a field's type; None where there is none, so that the field keeps its default."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Quantity:
        number = arguments[0] not in (float, int) or Quantity(raw).number is not None
        return Quantity(raw if number else None, status_in(table, path))
    if isinstance(kind, type) and issubclass(kind, Record):
        return kind.from_plain(raw, table, path)
    if raw is None:
        return None
    if origin in (types.UnionType, typing.Union):
        inner = next(argument for argument in arguments if argument is not types.NoneType)
        return _load(raw, inner, table, path)
    if origin is dict:
        items = raw.items() if isinstance(raw, Mapping) else ()
        inner = arguments[1]
        return {key: _load(item, inner, table, (*path, key)) for key, item in items if item is not None or inner is Any}
    if origin is list:
        items = raw if isinstance(raw, list) else ()
        return [_load(item, arguments[0], table, path) for item in items]
    return raw


def status_table(record: Any) -> dict[str, Any]:
    """Status of each number of a `Record`, by name.

    Parts whose numbers differ in status, and lists, have a table of their own, by name or column.

    Parts with a table of their own are left out.
    """
    statuses: dict[str, Any] = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if field.metadata.get("inline"):
            statuses |= {name: part for name, item in value.items() if (part := _statuses(item))}
        elif part := _statuses(value):
            statuses[field.name] = part
        if (error := field.metadata.get("error")) and value.status is not None:
            statuses[error] = value.status
    return statuses


def _statuses(value: Any) -> Any:
    """One status, a table of them, or None where nothing has one."""
    if isinstance(value, Quantity):
        return value.status
    if dataclasses.is_dataclass(value):
        part: Any = value
        if part.has_status_table:
            return None
        table = status_table(part)
        return one_word(table) if part.one_status else table
    if isinstance(value, Mapping):
        return one_word({name: part for name, item in value.items() if (part := _statuses(item))})
    if isinstance(value, list):
        columns: dict[str, Any] = {}
        for row in value:
            columns |= status_table(row) if dataclasses.is_dataclass(row) else {}
        return columns
    return None


def one_word(table: dict[str, Any]) -> Any:
    """The status that all numbers share, or the table where they differ."""
    words = set(_leaves(table))
    return words.pop() if len(words) == 1 else table


def _leaves(table: Mapping[str, Any]) -> Iterator[str]:
    for part in table.values():
        if isinstance(part, Mapping):
            yield from _leaves(part)
        else:
            yield part


def flat_table(table: Mapping[str, Any]) -> dict[str, str]:
    """The same without tables within: each number under its own name."""
    flat: dict[str, str] = {}
    for name, part in table.items():
        flat |= flat_table(part) if isinstance(part, Mapping) else {name: part}
    return flat


def rest_table(table: Mapping[str, Any]) -> dict[str, Any]:
    """Only what differs from the commonest status, numbers within parts by dotted names, and that status for the rest."""
    common, _ = Counter(_leaves(table)).most_common(1)[0]
    return {name: word for name, word in _dotted(table) if word != common} | {"everything else": common}


def _dotted(table: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, str]]:
    """Statuses of a table and of those within it, by dotted names."""
    for name, part in table.items():
        if isinstance(part, Mapping):
            yield from _dotted(part, f"{within}{name}.")
        else:
            yield f"{within}{name}", part


def status_in(table: Mapping[str, Any], path: tuple[str, ...]) -> str | None:
    """Status of a number: under the name of the part that holds it, its own name, or its dotted path."""
    inner = table
    for name in path:
        part = inner.get(name)
        if isinstance(part, str):
            return part
        inner = part if isinstance(part, Mapping) else inner
    status = table.get(".".join(path)) or table.get("everything else")
    return status if isinstance(status, str) else None
