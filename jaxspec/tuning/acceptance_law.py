"""Acceptance of a draft as a function of its knobs: a law fitted to measured points, smooth and monotone.

Every knob moves the draft away from its target, from z = 0 (the end of its range that reads most) to z = 1. Hazards add up:

    alpha(z) = exp(−h),   h = h0 + sum over knobs k and powers p of c[k, p] z_k^p,   all c >= 0.

So acceptance falls along every knob, and never leaves (0, 1]. High powers follow truncation, where each cut bit doubles the
error. By position of a chain, hazards have a profile: h of position i is h times profile[i].
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float

from hwmodels.numerics.scalars import as_float
from jaxspec.errors import InputError

__all__ = ["AcceptanceByKnobs", "LawFit", "constant_law", "fit_law", "positions_law"]

#: Powers of a knob's way; 16 is steep enough for a cliff at its end.
_POWERS = (1, 2, 4, 8, 16)

#: Acceptance is kept off both ends, where hazards are infinite or say nothing.
_LEAST, _MOST = 1e-4, 1.0 - 1e-6


@struct.dataclass
class AcceptanceByKnobs:
    """A law; every field but the names is a leaf.

    Attributes:
        constant: h0.
        coefficients: "knob power".
        start, way: " knob"; z = (knob − start) / way.
        profile: " position"; hazard of a position over the mean one; the last holds for all that follow.
        names: static; of the knobs.
    """

    constant: Float[Array, ""]
    coefficients: Float[Array, "knob power"]
    start: Float[Array, " knob"]
    way: Float[Array, " knob"]
    profile: Float[Array, " position"]
    names: tuple[str, ...] = struct.field(pytree_node=False)

    def hazard(self, knobs: Mapping[str, Float[Array, ""]]) -> Float[Array, ""]:
        """Mean −log alpha. Args: knobs: at least those of the law."""
        hazard = jnp.asarray(self.constant)
        for i, name in enumerate(self.names):
            z = jnp.clip((jnp.asarray(as_float(knobs[name])) - self.start[i]) / self.way[i], 0.0, 1.0)
            hazard = hazard + sum(self.coefficients[i, j] * z**power for j, power in enumerate(_POWERS))
        return hazard

    def conditional(self, knobs: Mapping[str, Float[Array, ""]], positions: int) -> Float[Array, " position"]:
        """P(position accepted | all before it accepted), for so many positions (static, >= 1)."""
        places = np.minimum(np.arange(positions), self.profile.shape[0] - 1)
        return jnp.exp(-self.hazard(knobs) * jnp.asarray(self.profile)[places])


@dataclasses.dataclass(frozen=True)
class LawFit:
    """A law and how well it holds.

    Attributes:
        points: it was fitted to.
        rms_error, largest_error: of alpha on these points.
        left_out_error: root mean square of each point's error by the law fitted to all others.
        mean_error: root mean square of the same points about their mean, the simplest predictor.
    """

    law: AcceptanceByKnobs
    points: int
    rms_error: float
    largest_error: float
    left_out_error: float
    mean_error: float


def constant_law(alpha: float) -> AcceptanceByKnobs:
    """The same acceptance whatever the knobs are."""
    none = jnp.zeros(0, jnp.float32)
    hazard = jnp.float32(-np.log(np.clip(alpha, _LEAST, 1.0)))
    return AcceptanceByKnobs(hazard, jnp.zeros((0, len(_POWERS)), jnp.float32), none, none, jnp.ones(1), names=())


def positions_law(rates: Sequence[float]) -> AcceptanceByKnobs:
    """The same acceptance whatever the knobs are, with a rate of its own at each position; one number is that of all."""
    if len(rates) == 1:
        return constant_law(rates[0])
    # A mean hazard of 1, so that the profile is the hazards themselves.
    profile = -jnp.log(jnp.clip(jnp.asarray(rates), _LEAST, 1.0))
    return dataclasses.replace(constant_law(float(np.exp(-1.0))), profile=profile)


def fit_law(
    points: Mapping[str, Sequence[float]], alpha: Sequence[float], *, profile: Sequence[float] = (1.0,)
) -> LawFit:
    """The law that fits measured points best.

    Args:
        points: knob -> its value at each point. A knob that no two points differ in is left out.
        alpha: of each point, in [0, 1].
        profile: by position.
    Raises:
        InputError: lists of other lengths, or fewer than two points.
    """
    chances = np.clip(np.asarray(alpha, float), _LEAST, _MOST)
    values = {name: np.asarray(column, float) for name, column in points.items()}
    if any(len(column) != len(chances) for column in values.values()):
        raise InputError(
            f"acceptance has {len(chances)} points and its knobs {[len(c) for c in values.values()]}; give one value for each"
        )
    values = {name: column for name, column in values.items() if np.ptp(column) > 0}
    if not values or len(chances) < 2:
        raise InputError("acceptance needs two or more points that differ in a knob; give more points, or alpha_token")
    solved = _fit(values, chances)
    predicted = _predict(solved, values)
    errors = predicted - chances
    left_out = [
        _predict(_fit({n: np.delete(c, i) for n, c in values.items()}, np.delete(chances, i)), values)[i] - chances[i]
        for i in range(len(chances))
    ]
    starts, ways, constant, coefficients = solved
    law = AcceptanceByKnobs(
        constant=jnp.float32(constant),
        coefficients=jnp.asarray(coefficients, jnp.float32),
        start=jnp.asarray(starts, jnp.float32),
        way=jnp.asarray(ways, jnp.float32),
        profile=jnp.asarray(profile, jnp.float32),
        names=tuple(values),
    )
    rms = lambda residuals: float(np.sqrt(np.mean(np.square(residuals))))
    return LawFit(law, len(chances), rms(errors), float(np.abs(errors).max()), rms(left_out), float(np.std(chances)))


_Solved = tuple[np.ndarray, np.ndarray, float, np.ndarray]


def _fit(values: dict[str, np.ndarray], chances: np.ndarray) -> _Solved:
    """Start and way of each knob, constant and coefficients; a knob's direction is the one that fits better."""
    from scipy.optimize import nnls  # takes longer to import than most laws to read

    lows, highs = (np.array([end(c) for c in values.values()]) for end in (np.min, np.max))
    ways = np.where(highs > lows, highs - lows, 1.0)
    hazard, best, fit = -np.log(chances), np.inf, None
    for signs in itertools.product((1.0, -1.0), repeat=len(values)):
        direction = np.array(signs)
        starts = np.where(direction > 0, lows, highs)
        design = _design(values, starts, direction * ways)
        # Errors of alpha, not of the hazard: d alpha = −alpha dh.
        solution, residual = nnls(design * chances[:, None], hazard * chances)
        if residual < best - 1e-12:
            best = residual
            fit = starts, direction * ways, float(solution[0]), solution[1:].reshape(len(values), -1)
    assert fit is not None
    return fit


def _design(values: dict[str, np.ndarray], starts: np.ndarray, ways: np.ndarray) -> np.ndarray:
    z = [np.clip((c - start) / way, 0.0, 1.0) for c, start, way in zip(values.values(), starts, ways, strict=True)]
    return np.stack([np.ones_like(z[0]), *(one**power for one in z for power in _POWERS)], axis=1)


def _predict(solved: _Solved, values: dict[str, np.ndarray]) -> np.ndarray:
    starts, ways, constant, coefficients = solved
    return np.exp(-_design(values, starts, ways) @ np.concatenate([[constant], coefficients.ravel()]))
