"""Fit the numbers of a time model to measured times, by robust least squares on the logarithm of their ratio.

A model is any pure function predict(parameters: dict of name -> number, conditions: dict of name -> array) -> seconds that JAX
can differentiate. All parameters are positive and are fitted as logarithms, within bounds, in double precision.

Source: scipy.optimize.least_squares ("trf", loss soft_l1); standard errors by the sandwich of an M-estimator, summed within
groups (Huber 1967; Liang, Zeger 1986): times of one shape err together, and each counts as little new evidence.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from hwmodels.tables import read_table

__all__ = ["Fit", "Interval", "Parameter", "UnitFit", "fit", "parameters_of", "predicted_rows"]

Unit = TypeVar("Unit")

#: Seconds of every condition, given the parameters by name.
Predict: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, Any]], Any]

Numbers: TypeAlias = npt.NDArray[np.float64]

#: A parameter this near to its bound, in logarithms, is taken to lie on it.
_AT_BOUND = 1e-3

#: Rows that are predicted at once.
_PIECE = 3000

#: Of the loss that finds the start for the last search.
_WIDE_LOSS = 20.0


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A positive number to fit: where the search starts, and between which bounds it stays.

    Raises:
        ValueError: not 0 < lower <= start <= upper, or lower = upper.
    """

    name: str
    start: float
    lower: float
    upper: float

    def __post_init__(self) -> None:
        if not (0 < self.lower <= self.start <= self.upper and self.lower < self.upper):
            raise ValueError(
                f"parameter {self.name}: start {self.start} and bounds {self.lower}, {self.upper} "
                "must satisfy 0 < lower <= start <= upper and lower < upper"
            )


_PARAMETERS = read_table(__package__, "parameters.toml")


def parameters_of(kernels: str) -> tuple[Parameter, ...]:
    """What is fitted for kernels of a kind, a table of `parameters.toml`."""
    return tuple(Parameter(name, *numbers) for name, numbers in _PARAMETERS[kernels].items())


@dataclasses.dataclass(frozen=True)
class Fit:
    """Fitted parameters and how well they are known; of a parameter on a bound nothing is known but that.

    Attributes:
        estimates: name -> value.
        standard_errors: name -> standard error in the parameter's unit; NaN on a bound.
        at_bound: names whose estimate lies on a bound.
        correlation: "parameter parameter", of the logarithms of the estimates; NaN rows on a bound.
        log_covariance: "parameter parameter", of the logarithms; 0 rows on a bound.
        scatter: robust standard deviation of log(predicted / measured).
        predicted, log_residuals: "row", of the rows fitted to.
        converged: whether the solver met its tolerances; if not, the numbers are the best found.
        evaluations: of the model.
    """

    estimates: dict[str, float]
    standard_errors: dict[str, float]
    at_bound: tuple[str, ...]
    correlation: Numbers
    log_covariance: Numbers
    scatter: float
    predicted: Numbers
    log_residuals: Numbers
    converged: bool
    evaluations: int


@dataclasses.dataclass(frozen=True)
class UnitFit(Generic[Unit]):
    """A unit of one kind of kernels, its fit, and what it predicts for every row of the table, "row"."""

    unit: Unit
    fit: Fit
    predicted_s: Numbers


@dataclasses.dataclass(frozen=True)
class Interval:
    """Predicted times and the interval that covers a new measurement with the given probability, "row"."""

    predicted: Numbers
    lower: Numbers
    upper: Numbers


def fit(
    predict: Predict,
    parameters: Sequence[Parameter],
    conditions: Mapping[str, npt.ArrayLike],
    measured_s: npt.ArrayLike,
    *,
    loss_scale: float = 0.02,
    groups: npt.ArrayLike | None = None,
    max_evaluations: int = 200,
    padded_rows: int = 0,
) -> Fit:
    """Parameters that bring predicted times nearest to measured ones, as ratios.

    Args:
        predict: the model; see the module's heading.
        parameters: what to fit; more rows than parameters are needed.
        conditions: name -> "row".
        measured_s: "row", > 0.
        loss_scale: > 0; residuals of log ratio well below it count squared, well above it in proportion.
        groups: "row", labels of rows whose errors may depend on each other; each row is its own group unless given.
        max_evaluations: of the model; the solver stops there.
        padded_rows: of the whole table, where this is a part of it: all parts share a program of so many rows. What fills them
            up counts for nothing. As many rows as parameters are enough then, and the standard errors mean little.
    Raises:
        ValueError: no more rows than parameters, lengths that differ, or a time that is not positive and finite.
    """
    measured = np.asarray(measured_s, np.float64)
    rows = {name: np.asarray(values, np.float64) for name, values in conditions.items()}
    a_part = padded_rows > len(measured)
    _check_rows(rows, measured, len(parameters) if a_part else len(parameters) + 1)
    from scipy.optimize import least_squares

    names = [parameter.name for parameter in parameters]
    log_lower, log_upper = (np.log([getattr(p, side) for p in parameters]) for side in ("lower", "upper"))
    log_start = np.clip(np.log([p.start for p in parameters]), log_lower + 1e-9, log_upper - 1e-9)
    with jax.enable_x64(True):
        residuals, jacobian = _residual_functions(predict, names, rows, measured, padded_rows)
        # A wide loss first: one so narrow has poor optima of its own far from the best.
        for scale in (_WIDE_LOSS * loss_scale, loss_scale):
            solved = least_squares(
                residuals,
                log_start,
                jac=jacobian,  # pyright: ignore[reportArgumentType]
                bounds=(log_lower, log_upper),
                method="trf",
                loss="soft_l1",
                f_scale=scale,
                x_scale=1.0,
                max_nfev=max_evaluations,
            )
            log_start = np.clip(solved.x, log_lower + 1e-9, log_upper - 1e-9)
        at_bound = (solved.x - log_lower < _AT_BOUND) | (log_upper - solved.x < _AT_BOUND)
        log_residuals, slopes = residuals(solved.x), jacobian(solved.x)
    covariance = _sandwich(slopes, log_residuals, loss_scale, at_bound, groups)
    deviations = np.sqrt(np.diag(covariance))
    estimates = np.exp(solved.x)
    deviations = np.where(at_bound, np.nan, deviations)
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = covariance / np.outer(deviations, deviations)
    return Fit(
        estimates=dict(zip(names, map(float, estimates))),
        standard_errors=dict(zip(names, map(float, estimates * deviations))),
        at_bound=tuple(name for name, bound in zip(names, at_bound) if bound),
        correlation=correlation,
        log_covariance=covariance,
        # Of a normal distribution the median absolute deviation is 0.6745 standard deviations.
        scatter=float(np.median(np.abs(log_residuals)) / 0.6745),
        predicted=measured * np.exp(log_residuals),
        log_residuals=log_residuals,
        converged=bool(solved.success),
        evaluations=int(solved.nfev),
    )


def predicted_rows(
    predict: Predict, estimates: Mapping[str, float], conditions: Mapping[str, npt.ArrayLike]
) -> Numbers:
    """Times of all conditions, "row", in double precision.

    Args:
        predict: the model.
        estimates: name -> value, as a `Fit` has them.
        conditions: name -> "row".
    """
    rows = {name: np.asarray(values, np.float64) for name, values in conditions.items()}
    length = len(next(iter(rows.values())))
    at, predictions = np.log(list(estimates.values())), []
    with jax.enable_x64(True):
        # Pieces of one size, that of most fits, so that all tables share its program.
        for start in range(0, length, _PIECE):
            piece = {name: values[start : start + _PIECE] for name, values in rows.items()}
            times = np.ones(min(_PIECE, length - start))
            logs, _ = _residual_functions(predict, list(estimates), piece, times, _PIECE)
            predictions.append(np.exp(logs(at)))
    return np.concatenate(predictions)


def _residual_functions(
    predict: Predict, names: list[str], rows: Mapping[str, Numbers], measured: Numbers, padded_rows: int = 0
) -> tuple[Callable[[Numbers], Numbers], Callable[[Numbers], Numbers]]:
    """log(predicted / measured) and its derivatives by the logarithms of the parameters; programs of so many rows or more."""
    count = len(next(iter(rows.values())))
    if count < padded_rows:
        rows = {name: np.resize(values, padded_rows) for name, values in rows.items()}
        measured = np.resize(measured, padded_rows)
    inputs = {name: jnp.asarray(values) for name, values in rows.items()}
    compiled, derivative = _compiled(predict, tuple(names))
    times = jnp.asarray(measured)
    return (
        lambda x: np.asarray(compiled(jnp.asarray(x), inputs, times))[:count],
        lambda x: np.asarray(derivative(jnp.asarray(x), inputs, times))[:count],
    )


@functools.lru_cache(maxsize=32)
def _compiled(predict: Predict, names: tuple[str, ...]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The logarithms and their derivatives as programs of (values, conditions, times): fits of one model share them."""

    def logs(log_values: jax.Array, inputs: Mapping[str, Any], times: jax.Array) -> jax.Array:
        values = jnp.exp(log_values)
        return jnp.log(predict({name: values[i] for i, name in enumerate(names)}, inputs) / times)

    return jax.jit(logs), jax.jit(jax.jacfwd(logs))


def _sandwich(
    slopes: Numbers, residuals: Numbers, scale: float, at_bound: npt.NDArray[np.bool_], groups: npt.ArrayLike | None
) -> Numbers:
    free = ~at_bound
    weights = 1.0 / np.sqrt(1.0 + (residuals / scale) ** 2)
    inside = slopes[:, free]
    curvature = inside.T @ (weights[:, None] * inside)
    scores = inside * (weights * residuals)[:, None]
    if groups is not None:
        _, index = np.unique(np.asarray(groups), return_inverse=True)
        sums = np.zeros((int(index.max()) + 1, inside.shape[1]))
        np.add.at(sums, index, scores)
        scores = sums
    # A pseudo-inverse: what the rows say nothing about gets no error at all only where its slope is 0.
    inverse = np.linalg.pinv(curvature, hermitian=True)
    covariance = np.zeros((len(at_bound),) * 2)
    covariance[np.ix_(free, free)] = inverse @ (scores.T @ scores) @ inverse
    return covariance


def _check_rows(rows: Mapping[str, Numbers], measured: Numbers, least_rows: int) -> None:
    lengths = {name: values.shape for name, values in rows.items() if values.shape != measured.shape}
    if measured.ndim != 1 or lengths:
        raise ValueError(f"measured_s has shape {measured.shape} and conditions {lengths}; all must be of one length")
    if len(measured) < least_rows:
        raise ValueError(f"{len(measured)} rows for numbers that need {least_rows}; measure more conditions")
    if not np.all(np.isfinite(measured) & (measured > 0)):
        raise ValueError("measured_s holds times that are not positive and finite; leave those rows out")
