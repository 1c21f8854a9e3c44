"""Records of a result: from typed dataclasses to JSON's own types and back, with a table of statuses where one is due.

A field holds a `Quantity`, another record, a list or table (dict) of these, or plain data. A record's JSON has a key for each
field, and one more for a standard error that has a name of its own.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from jaxspec.errors import InputError
from jaxspec.files import plain, read_json
from jaxspec.results.quantity import UNKNOWN, Quantity
from jaxspec.results.status_tables import status_in, status_table

__all__ = ["Record", "Result", "quantity_field", "spread_field"]

_ERROR, _SPREAD = "error", "spread"


def quantity_field(error: str) -> Any:
    """Field of a quantity whose standard error stands under a key of its own."""
    return dataclasses.field(default=UNKNOWN, metadata={_ERROR: error})


def spread_field() -> Any:
    """Field of a table whose entries stand among the record's own keys."""
    return dataclasses.field(default_factory=dict, metadata={_SPREAD: True})


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
        found: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.metadata.get(_SPREAD):
                found |= {name: _plain(item) for name, item in value.items()}
                continue
            found[field.name] = _plain(value)
            if error := field.metadata.get(_ERROR):
                found[error] = plain(value.standard_error)
        if self.has_status_table:
            found["status"] = self.statuses()
        return found

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
        found: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            error = field.metadata.get(_ERROR)
            known |= {field.name, error}
            if field.metadata.get(_SPREAD):
                continue
            value = _load(raw.get(field.name), kinds[field.name], table, (*path, field.name))
            if value is not None:
                found[field.name] = dataclasses.replace(value, standard_error=raw.get(error)) if error else value
        for field in dataclasses.fields(cls):
            if field.metadata.get(_SPREAD):
                rest = {key: value for key, value in raw.items() if key not in known}
                found[field.name] = _load(rest, kinds[field.name], table, path)
        return cls(**found)


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
    def load(cls, path: str | Path) -> list[Self]:
        """The results in a `result.json`.

        Raises:
            InputError: it cannot be read, or is no JSON of results.
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
