"""Tokens per cycle as a law of the verification length: AAT(x) = A + B ln(x − C).

Source: Boosting the Performance of Tree-Based Speculative Decoding of LLMs on FPGAs, III-A, Eq. (3).

The law of tokens per cycle fitted from a few measured lengths, and how well it is known.

Measuring a tree of every size is slow; three or more sizes fix the law, and held-out sizes tell how far to trust it.

Source: Boosting the Performance of Tree-Based Speculative Decoding of LLMs on FPGAs, III-A, Eq. (3), and
    Fig. 5 (a curve from few points, R²).
Departs: the paper gives no fitting method. Here: least squares with C kept below the smallest length measured.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
from flax import struct
from jaxtyping import Float, Num

from jaxspec.errors import InputError

__all__ = [
    "AATLaw",
    "checked_points",
    "curve_interval",
    "fit_aat_law",
    "law_on_host",
    "r_squared",
]


@struct.dataclass
class AATLaw:
    """A + B ln(x − C); each may be a batch of numbers, as for several context lengths.

    Attributes:
        intercept: A, tokens per cycle.
        log_slope: B, tokens per cycle and unit of the logarithm.
        shift: C, tokens; the law holds for x > C.
    """

    intercept: Any
    log_slope: Any
    shift: Any


def r_squared(
    law: AATLaw, verification_length: Num[npt.ArrayLike, " point"], tokens_per_cycle: Num[npt.ArrayLike, " point"]
) -> float:
    """Share of the variance of measured points that the law explains: 1 − Σ residual² / Σ (measured − mean)².

    Args:
        law: single numbers.
        verification_length, tokens_per_cycle: "point", two or more; held out, if the law is to be judged.
    Returns:
        At most 1; below 0 where the points' own mean predicts better.
    Raises:
        InputError: lengths that differ, fewer than two points, a number that is not finite, all points equal, or x <= C.
    """
    length, tokens = checked_points(verification_length, tokens_per_cycle, at_least=2)
    if length.min() <= float(law.shift):
        raise InputError(
            f"verification length {length.min():g} is not above the law's C = {float(law.shift):g}; leave it out"
        )
    total = float(np.sum((tokens - tokens.mean()) ** 2))
    if total == 0:
        raise InputError(f"all {tokens.size} points are {tokens[0]:g} tokens per cycle; R² needs points that differ")
    return 1.0 - float(np.sum((tokens - law_on_host(law, length)) ** 2)) / total


def law_on_host(law: AATLaw, length: np.ndarray) -> np.ndarray:
    """The law in double precision, which JAX has not by default."""
    return float(law.intercept) + float(law.log_slope) * np.log(length - float(law.shift))


def checked_points(length: npt.ArrayLike, tokens: npt.ArrayLike, *, at_least: int) -> tuple[np.ndarray, np.ndarray]:
    """Measured points as arrays of double precision.

    Raises:
        InputError: lists of other shapes, a number that is not finite, a length below 1, or fewer than `at_least` lengths.
    """
    lengths, measured = np.asarray(length, np.float64), np.asarray(tokens, np.float64)
    if lengths.ndim != 1 or lengths.shape != measured.shape:
        raise InputError(
            f"lengths have shape {lengths.shape} and tokens per cycle {measured.shape}; give one list of points for each"
        )
    if not (np.isfinite(lengths).all() and np.isfinite(measured).all()):
        raise InputError("a verification length or its tokens per cycle is not a finite number; leave the point out")
    if lengths.size and lengths.min() < 1:
        raise InputError(f"verification length {lengths.min():g} is below 1; count the root, as 1")
    if np.unique(lengths).size < at_least:
        raise InputError(
            f"{np.unique(lengths).size} different verification lengths came; {at_least} or more are needed"
        )
    return lengths, measured


#: Bounds of the distance from C to the smallest length: tokens, and multiples of the span of lengths. Nearer to 0 the law
#: meets the first point by a jump; further off it is a straight line, and A, B and C grow without limit.
_NEAREST, _FURTHEST = 1e-3, 1e3

#: A distance this near to a bound, in logarithms, is taken to lie on it.
_AT_BOUND = 1e-3


@dataclasses.dataclass(frozen=True)
class AATFit:
    """A fitted law and how well it is known.

    Attributes:
        law: the estimates, Python floats.
        standard_errors: of A, B and C; NaN where the points cannot tell (three points without errors of their own, C on a
            bound).
        intervals: (3, 2), lower and upper ends for A, B and C that cover at `confidence`; NaN likewise.
        covariance: (3, 3), of A, B and C; rows and columns of a C on its bound are 0, those of A and B then hold for that C.
        shift_at_bound: the points prefer a straight line or a jump to a logarithm; neither C nor predictions below the
            smallest length measured mean anything then.
        residual_scatter: standard deviation of the points about the law, tokens per cycle; in units of the points' own
            errors where these were given (1 is expected). NaN without a degree of freedom.
        r_squared: on the points fitted to; use `r_squared` on held-out ones.
        smallest_length, degrees_of_freedom, confidence: of the fit. Infinite degrees where the points' errors were given.
    """

    law: AATLaw
    standard_errors: AATLaw
    intervals: Float[np.ndarray, "3 2"]
    covariance: Float[np.ndarray, "3 3"]
    shift_at_bound: bool
    residual_scatter: float
    r_squared: float
    smallest_length: float
    degrees_of_freedom: float
    confidence: float


@dataclasses.dataclass(frozen=True)
class AATInterval:
    """The law at some lengths and the ends of its pointwise interval, "length"."""

    mean: Float[np.ndarray, " length"]
    lower: Float[np.ndarray, " length"]
    upper: Float[np.ndarray, " length"]


def _linear_start(length: np.ndarray, tokens: np.ndarray, weight: np.ndarray, log_gap: np.ndarray) -> np.ndarray:
    """For fixed C the law is linear in A and B: the best of a grid of distances, so that no start ends in a side valley."""
    best, start = np.inf, np.zeros(3)
    for gap in log_gap:
        columns = np.stack([np.ones_like(length), np.log(length - length.min() + np.exp(gap))], axis=1)
        linear, *_ = np.linalg.lstsq(columns * weight[:, None], tokens * weight, rcond=None)
        loss = float(np.sum(((columns @ linear - tokens) * weight) ** 2))
        if loss < best:
            best, start = loss, np.array([*linear, gap])
    return start


def fit_aat_law(
    verification_length: Num[npt.ArrayLike, " point"],
    tokens_per_cycle: Num[npt.ArrayLike, " point"],
    *,
    standard_error: Num[npt.ArrayLike, "*point"] | None = None,
    confidence: float = 0.95,
) -> AATFit:
    """Fit A, B and C to measured points by least squares, C below the smallest length. On the host.

    Args:
        verification_length: "point", >= 1; three or more different ones. A length may be measured more than once.
        tokens_per_cycle: "point".
        standard_error: "point" or one number, > 0, of each point's tokens per cycle. Points then count by 1 / error², and the
            law's own errors follow from them; without, points count equally and their scatter about the law is the error.
        confidence: in (0, 1), of the intervals (Student's t for the points' scatter, normal for given errors).
    Raises:
        InputError: fewer than three different lengths, a length below 1, a number that is not finite, lists that differ in
            length, an error that is not positive, or a confidence outside (0, 1).
    Source: Eq. (3); standard errors by the Gauss-Newton approximation at the optimum.
    Departs: points are taken as independent. Points that were measured on the same prompts err together, so that A is known
        less well and B better than stated; resample prompts and fit again for exact intervals.
    """
    length, tokens = checked_points(verification_length, tokens_per_cycle, at_least=3)
    if not 0 < confidence < 1:
        raise InputError(f"confidence is {confidence}; it must be strictly between 0 and 1, for instance 0.95")
    weight = np.ones_like(tokens)
    if standard_error is not None:
        errors = np.asarray(standard_error, np.float64)
        if errors.shape not in ((), tokens.shape) or not (np.isfinite(errors) & (errors > 0)).all():
            raise InputError(
                f"standard_error must be one positive number, or {tokens.size} of them, one for each point"
            )
        weight = np.broadcast_to(1.0 / errors, tokens.shape)
    from scipy.optimize import least_squares
    from scipy.stats import norm, t

    smallest = float(length.min())
    low, high = np.log(_NEAREST), np.log(_FURTHEST * np.ptp(length))
    above = length - smallest

    def residuals(theta: np.ndarray) -> np.ndarray:
        return (theta[0] + theta[1] * np.log(above + np.exp(theta[2])) - tokens) * weight

    def jacobian(theta: np.ndarray) -> np.ndarray:
        """By A, B and the logarithm of the distance from C to the smallest length."""
        distance = above + np.exp(theta[2])
        columns = [np.ones_like(distance), np.log(distance), theta[1] * np.exp(theta[2]) / distance]
        return np.stack(columns, axis=1) * weight[:, None]

    start = _linear_start(length, tokens, weight, np.linspace(low, high, 64))
    solved = least_squares(
        residuals,
        np.clip(start, [-np.inf, -np.inf, low + 1e-9], [np.inf, np.inf, high - 1e-9]),
        jac=jacobian,  # pyright: ignore[reportArgumentType]
        bounds=([-np.inf, -np.inf, low], [np.inf, np.inf, high]),
        x_scale="jac",
        xtol=1e-12,
        ftol=1e-14,
        gtol=1e-14,
    )
    intercept, log_slope, log_gap = map(float, solved.x)
    law = AATLaw(intercept=intercept, log_slope=log_slope, shift=smallest - float(np.exp(log_gap)))

    at_bound = min(log_gap - low, high - log_gap) < _AT_BOUND
    free = 2 if at_bound else 3
    # d/dC instead of d/d(log distance): the distance falls as C grows.
    slopes = jacobian(solved.x) / np.array([1.0, 1.0, -np.exp(log_gap)])
    squares, degrees = float(np.sum(solved.fun**2)), length.size - free
    scatter = float(np.sqrt(squares / degrees)) if degrees else float("nan")
    covariance = np.zeros((3, 3))
    covariance[:free, :free] = _inverse(slopes[:, :free]) * (scatter**2 if standard_error is None else 1.0)
    deviations = np.sqrt(np.diag(covariance))
    deviations[free:] = np.nan
    quantile = (1 + confidence) / 2
    if standard_error is None:
        width = float(t.ppf(quantile, degrees)) if degrees else float("nan")
    else:
        width = float(norm.ppf(quantile))
    estimates = np.array([law.intercept, law.log_slope, law.shift], np.float64)
    return AATFit(
        law=law,
        standard_errors=AATLaw(*map(float, deviations)),
        intervals=np.stack([estimates - width * deviations, estimates + width * deviations], axis=1),
        covariance=covariance,
        shift_at_bound=at_bound,
        residual_scatter=scatter,
        r_squared=r_squared(law, length, tokens) if np.ptp(tokens) > 0 else float("nan"),
        smallest_length=smallest,
        degrees_of_freedom=float(degrees) if standard_error is None else float("inf"),
        confidence=confidence,
    )


def _inverse(slopes: np.ndarray) -> np.ndarray:
    """(JᵀJ)⁻¹ by a QR factorization, NaN where the points do not determine the numbers (as C where B is 0)."""
    scale = np.linalg.norm(slopes, axis=0)
    if not (scale > 0).all():
        return np.full((slopes.shape[1],) * 2, np.nan)
    triangle = np.linalg.qr(slopes / scale, mode="r")
    if np.abs(np.diag(triangle)).min() < 1e-12:
        return np.full((slopes.shape[1],) * 2, np.nan)
    inverse = np.linalg.inv(triangle)
    return inverse @ inverse.T / np.outer(scale, scale)


def curve_interval(fit: AATFit, verification_length: Num[npt.ArrayLike, " length"]) -> AATInterval:
    """The fitted law with its pointwise interval at the fit's confidence, by the delta method. On the host.

    Args:
        verification_length: "length", > C.
    Returns:
        Where C lies on a bound, for that C. NaN ends where the fit has no standard errors. A new measurement scatters about the
        law besides.
    Raises:
        InputError: a length that is not above C.
    """
    from scipy.stats import norm, t

    length = np.atleast_1d(np.asarray(verification_length, np.float64))
    shift, log_slope = float(fit.law.shift), float(fit.law.log_slope)
    if not (length > shift).all():
        raise InputError(f"verification length {length.min():g} is not above the fitted C = {shift:g}; ask above it")
    slopes = np.stack([np.ones_like(length), np.log(length - shift), -log_slope / (length - shift)], axis=1)
    deviation = np.sqrt(np.einsum("li,ij,lj->l", slopes, fit.covariance, slopes))
    quantile, degrees = (1 + fit.confidence) / 2, fit.degrees_of_freedom
    width = norm.ppf(quantile) if np.isinf(degrees) else t.ppf(quantile, degrees) if degrees else np.nan
    mean = law_on_host(fit.law, length)
    return AATInterval(mean=mean, lower=mean - width * deviation, upper=mean + width * deviation)
