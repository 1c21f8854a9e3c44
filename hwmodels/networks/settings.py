"""A parsed config.json as values of known kinds: each read says in one line what came and what is allowed."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from hwmodels.catalog.entries import EntryError

__all__ = ["Settings", "shown"]

T = TypeVar("T")

#: Beyond any network; keeps products of sizes finite, and a mistyped exponent from being priced.
LARGEST_SIZE = 2**40
LARGEST_LAYERS = 2**16

_LAYERS = "num_hidden_layers"


def shown(value: Any) -> str:
    """A value of any kind, short and on one line."""
    try:
        return " ".join(reprlib.repr(value).split())
    except ValueError:  # Python prints no integer of thousands of digits
        return f"a {type(value).__name__} too long to show"


def is_positive(value: Any) -> bool:
    """Whether a value is a finite number above 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= sys.float_info.max


class Settings:
    """Values of one config.json, with its family's defaults behind them.

    A family may spell a key in its own way, or in several: every lookup is by the usual name, and messages name the
    spelling that the file has. A default may be a function of the settings, of a size that follows from others: it also
    counts where the file says null. A list of one whole number per layer, the same in all, counts as that number where the
    family has a number.

    Attributes:
        raw: the file.
        read: keys that were asked for, in all spellings.
    """

    def __init__(
        self, raw: Mapping[str, Any], defaults: Mapping[str, Any], spellings: Mapping[str, tuple[str, ...]], where: str
    ):
        self.raw, self._defaults, self._spellings, self.where = raw, defaults, spellings, where
        self.read: set[str] = set()

    def stated(self, key: str) -> bool:
        """Whether the file itself has the key, null or not."""
        return self._find(key)[1]

    def get(self, key: str) -> Any:
        """The value, of whatever kind; null where neither the file nor the family has one."""
        spelling, is_stated = self._find(key)
        default = self._defaults.get(key)
        if not is_stated or (callable(default) and self.raw[spelling] is None):
            return default(self) if callable(default) else default
        stated = self.raw[spelling]
        first = stated[0] if isinstance(stated, list) and stated else None
        if isinstance(first, int) and key != _LAYERS and (isinstance(default, int) or callable(default)):
            return first if stated == [first] * self.size(_LAYERS, most=LARGEST_LAYERS) else stated
        return stated

    def size(self, key: str, *, least: int = 1, most: int = LARGEST_SIZE) -> int:
        """A whole number in [least, most]; raises EntryError."""
        value = self.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            state = f"is {shown(value)}" if value is not None or self.stated(key) else "is missing"
            listed = ", the same in all layers" if isinstance(value, list) else ""
            raise self.error(key, f"{state}; it must be a whole number from {least} to {most}{listed}")
        return value

    def optional_size(self, key: str, *, least: int = 1) -> int | None:
        """A whole number, or None where the value is null; raises EntryError."""
        return None if self.get(key) is None else self.size(key, least=least)

    def positive(self, key: str) -> float:
        """A finite number above 0; raises EntryError."""
        value = self.get(key)
        if not is_positive(value):
            raise self.error(key, f"is {shown(value)}; it must be a finite number above 0")
        return float(value)

    def positives(self, key: str, count: int) -> tuple[float, ...]:
        """A list of so many finite numbers above 0; raises EntryError."""
        value = self.get(key)
        if not isinstance(value, list) or len(value) != count or not all(map(is_positive, value)):
            raise self.error(key, f"is {shown(value)}; it must be a list of {count} finite numbers above 0")
        return tuple(map(float, value))

    def flag(self, key: str, *, null: bool = True) -> bool:
        """True or false; null counts as false where it is allowed. Raises EntryError."""
        value = self.get(key)
        if not isinstance(value, bool) and not (null and value is None):
            raise self.error(key, f"is {shown(value)}; it must be true or false")
        return bool(value)

    def names(self, key: str) -> list[str] | None:
        """A list of texts, one per layer, or None where the value is null; raises EntryError."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise self.error(key, f"is {shown(value)}; it must be a list of texts, one per layer")
        layers = self.size("num_hidden_layers", most=LARGEST_LAYERS)
        if len(value) != layers:
            raise self.error(key, f"has {len(value)} entries for {layers} layers; it must have one per layer")
        return value

    def marks(self, key: str) -> list[bool]:
        """A list of 0 and 1, one per layer; raises EntryError."""
        value, layers = self.get(key), self.size("num_hidden_layers", most=LARGEST_LAYERS)
        if not isinstance(value, list) or len(value) != layers or any(entry not in (0, 1) for entry in value):
            raise self.error(
                key, f"is {shown(value)}; it must be a list of 0 and 1, one for each of the {layers} layers"
            )
        return list(map(bool, value))

    def layer_numbers(self, key: str) -> set[int]:
        """The distinct layers that a list names, empty where it is null; numbers beyond the last layer are dropped, as
        there is nothing that they could mean. Raises EntryError.
        """
        value = [] if self.get(key) is None else self.get(key)
        if not isinstance(value, list) or not all(isinstance(n, int) and not isinstance(n, bool) for n in value):
            raise self.error(key, f"is {shown(value)}; it must be a list of layers' numbers")
        layers = self.size("num_hidden_layers", most=LARGEST_LAYERS)
        return {number for number in value if 0 <= number < layers}

    def fitted(self, kind: Callable[..., T], **values: Any) -> T:
        """An object of values that must fit together; raises EntryError."""
        try:
            return kind(**values)
        except ValueError as error:
            raise EntryError(f"{self.prefix}{error}") from error

    def error(self, key: str, problem: str) -> EntryError:
        """A fault of one key, to be raised."""
        return EntryError(f"{self.prefix}{self._find(key)[0]} {problem}")

    @property
    def prefix(self) -> str:
        """Beginning of messages; empty where a caller puts the file's name there."""
        return f"{self.where}: " if self.where else ""

    def _find(self, key: str) -> tuple[str, bool]:
        """The spelling that the file has, or the usual one; and whether the file has any."""
        spellings = (key, *self._spellings.get(key, ()))
        self.read.update(spellings)
        present = [name for name in spellings if name in self.raw]
        if len({shown(self.raw[name]) for name in present}) > 1:
            values = ", ".join(f"{name} = {shown(self.raw[name])}" for name in present)
            raise EntryError(f"{self.prefix}{values}: these name one thing and differ; keep one of them")
        # A family's own spelling comes last and is the one that its users know.
        return (present[0], True) if present else (spellings[-1], False)
