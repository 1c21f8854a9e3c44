"""What a fit found, and its errors on groups of rows that it did not see."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hwmodels.analysis.calibration.intervals import interval_record
from hwmodels.analysis.calibration.least_squares import Parameter, fit, predicted_rows
from hwmodels.analysis.calibration.report import ErrorSummary, relative_error

__all__ = ["FOLDS", "Numbers", "PartFit", "cross_fitted", "folds_of", "robust_fit", "simple_part", "within_reach"]

#: Numbers of rows, in double precision.
Numbers = npt.NDArray[np.float64]

#: Groups of rows are held out in so many turns, or as many as there are groups.
FOLDS = 4

#: Bounds of a rate, as factors of the highest one that was seen.
_SLOWER, _FASTER = 1e4, 4.0

#: Of the robust loss: log ratios well below it count squared.
_LOSS_SCALE = 0.05


@dataclasses.dataclass(frozen=True)
class PartFit:
    """One part of the machine.

    Attributes:
        part: as of `hwmodels.compute.unit.SPREAD_PARTS`, or of a table.
        bits: per weight, 32 where there are none.
        estimates, standard_errors: name -> number; an error is NaN on a bound.
        at_bound: names of numbers on a bound of the fit.
        rows: numbers of the table's rows that it was fitted to.
        predicted: seconds of these rows, by the fit to all of them.
        held_out: seconds of these rows, each by a fit that saw none of its group; NaN where groups or rows are too few.
        errors: of `held_out`.
        interval: of measured over `held_out`: low, high, coverage, covered; None where `held_out` is NaN.
    """

    part: str
    bits: float
    estimates: dict[str, float]
    standard_errors: dict[str, float]
    at_bound: tuple[str, ...]
    rows: npt.NDArray[np.int64]
    predicted: Numbers
    held_out: Numbers
    errors: ErrorSummary
    interval: dict[str, Any] | None


def robust_fit(
    predict: Any,
    parameters: Sequence[Parameter],
    conditions: Mapping[str, Numbers],
    seconds: Numbers,
    groups: Sequence[str],
    train: npt.NDArray[np.int64] | None = None,
) -> Any:
    """`least_squares.fit` with the loss of measurements; rows of one group err together.

    Args:
        train: rows to fit to, all of them unless given; the program is the same for any number of them.
    """
    train = np.arange(len(seconds)) if train is None else train
    return fit(
        predict,
        parameters,
        {name: values[train] for name, values in conditions.items()},
        seconds[train],
        loss_scale=_LOSS_SCALE,
        groups=np.asarray(groups)[train],
        padded_rows=len(seconds),
    )


def within_reach(parameters: Sequence[Parameter], **fastest: float) -> list[Parameter]:
    """The same parameters with rates that begin near what was seen and stay within reach of it.

    Where launches take most of the time, times say little of a rate, which would otherwise run away.

    Args:
        fastest: name of a rate -> the highest one that was seen, all of a time counted for it.
    """
    return [
        Parameter(one.name, fastest[one.name], fastest[one.name] / _SLOWER, fastest[one.name] * _FASTER)
        if one.name in fastest
        else one
        for one in parameters
    ]


def folds_of(groups: Sequence[str]) -> list[npt.NDArray[np.bool_]]:
    """For each fold the rows that it holds out; none where there is one group. Whole groups, drawn by a hash."""
    names = sorted(set(groups), key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    count = min(FOLDS, len(names))
    if count < 2:
        return []
    fold = {name: place % count for place, name in enumerate(names)}
    of_row = np.array([fold[name] for name in groups])
    return [of_row == one for one in range(count)]


def cross_fitted(
    groups: Sequence[str],
    seconds: Numbers,
    least_rows: int,
    predict_without: Callable[[npt.NDArray[np.int64]], Numbers],
) -> tuple[Numbers, ErrorSummary, dict[str, Any] | None]:
    """Seconds of each row by a fit that saw none of its group, their errors, and their interval.

    Args:
        least_rows: that a fit needs; where a fold leaves fewer, nothing is held out.
        predict_without: from the rows to fit to, to the seconds of all rows.
    """
    held = np.full(len(seconds), np.nan)
    folds = folds_of(groups)
    if all(np.count_nonzero(~out) >= least_rows for out in folds):
        for out in folds:
            held[out] = predict_without(np.flatnonzero(~out))[out]
    known = np.isfinite(held)
    if not known.all():
        return held, relative_error([], []), None
    return held, relative_error(held, seconds), interval_record(held, seconds, known, list(groups))


def simple_part(
    part: str,
    predict: Any,
    parameters: Sequence[Parameter],
    conditions: Mapping[str, Numbers],
    seconds: Numbers,
    groups: Sequence[str],
    rows: npt.NDArray[np.int64],
    bits: float = 32.0,
) -> PartFit:
    """A part whose form is the whole model: fitted to all rows, and to those of other groups for the errors."""
    found = robust_fit(predict, parameters, conditions, seconds, groups)

    def without(train: npt.NDArray[np.int64]) -> Numbers:
        one = robust_fit(predict, parameters, conditions, seconds, groups, train)
        return predicted_rows(predict, one.estimates, conditions)

    held, errors, interval = cross_fitted(groups, seconds, len(parameters), without)
    return PartFit(
        part,
        bits,
        found.estimates,
        found.standard_errors,
        found.at_bound,
        rows,
        predicted_rows(predict, found.estimates, conditions),
        held,
        errors,
        interval,
    )
