"""Exact counts on the host: rational arithmetic on numbers as their decimals are written.

Whether 40 units of 25.6 bytes are enough for 1024 must not depend on how 25.6 is rounded in binary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from fractions import Fraction

import numpy as np
from jax.core import Tracer

from hwmodels.numerics.folds import Whole
from hwmodels.numerics.scalars import Number

__all__ = ["exact_counts", "round_up"]


def round_up(work: Fraction, rate: Fraction) -> int:
    """The smallest whole number of units of this rate (> 0) that do the work (>= 0)."""
    return -int(-work // rate)


def exact_counts(
    count: Callable[[dict[str, Fraction]], int],
    arguments: Mapping[str, Number],
    *,
    positive: Collection[str] = (),
    whole: Collection[str] = (),
    may_be_infinite: Collection[str] = (),
) -> Whole:
    """A count for each entry of arguments that are broadcast together.

    Args:
        count: from one entry's arguments; those that are infinite are left out.
        arguments: name -> "*b", numbers >= 0.
        positive, whole, may_be_infinite: names of which more, or less, is asked.
    Returns:
        "*b"; a Python integer where all arguments are single numbers, int64 otherwise.
    Raises:
        ValueError: a number is traced, or not what is asked.
    """
    for name, value in arguments.items():
        if isinstance(value, Tracer):
            raise ValueError(
                f"{name} is traced, but exact counts need known numbers; under jit use the smooth function"
            )
    columns = {name: np.asarray(value) for name, value in arguments.items()}
    shape = np.broadcast_shapes(*(column.shape for column in columns.values()))
    counts = []
    for row in zip(*(np.broadcast_to(column, shape).flat for column in columns.values())):
        written = {}
        for name, value in zip(columns, row):
            infinite = math.isinf(value) and value > 0 and name in may_be_infinite
            if not infinite and not (math.isfinite(value) and (value > 0 or (value == 0 and name not in positive))):
                raise ValueError(f"{name} is {value}; it must be a finite number {'>' if name in positive else '>='} 0")
            if name in whole and value != math.floor(value):
                raise ValueError(f"{name} is {value}; it must be a whole number")
            if not infinite:
                written[name] = Fraction(str(value))
        counts.append(count(written))
    return counts[0] if not shape else np.array(counts, np.int64).reshape(shape)
