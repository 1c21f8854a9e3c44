"""A number of a result: its value, its status, and its standard error where one was measured."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Generic, Literal, TypeVar

__all__ = [
    "STATUSES",
    "UNKNOWN",
    "Quantity",
    "Status",
    "calibrated",
    "finite",
    "given",
    "measured",
    "predicted",
    "significant",
]

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
