"""What a proposal rests on: elasticities, what an mm2 or a watt buys, which limits hold it, and at which price."""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.optimize import nnls

from jaxspec.studies.codesign.problem import Problem
from jaxspec.studies.codesign.variables import Variables

__all__ = ["Judged", "judge"]

#: A limit is reached when less than this part of it is left, and an end of a variable likewise.
_REACHED = 5e-3


@dataclasses.dataclass(frozen=True)
class Judged:
    """At one place.

    Attributes:
        elasticity: " variable", d log objective / d log variable.
        per_mm2, per_w: " variable", percent of the objective per mm2 or watt spent on that variable; NaN where it takes none.
        multipliers: limit -> d log objective / d log limit, of reached ones; 0 of others.
        ends: " variable", "low", "high" or "".
    """

    elasticity: np.ndarray
    per_mm2: np.ndarray
    per_w: np.ndarray
    multipliers: dict[str, float]
    ends: list[str]


def judge(problem: Problem, values: np.ndarray) -> Judged:
    """Slopes at a design, smoothed as the search has them: those of tile counts are 0 without.

    Multipliers are the non-negative weights of the reached limits' slopes that come nearest to the objective's, ends of
    variables among the limits (Karush, Kuhn and Tucker's conditions by least squares).
    """
    variables = problem.variables
    place = variables.places(values)
    found, slopes = problem.smooth(np.repeat(place[None], problem.batch, axis=0))
    now, slope = found[0], slopes[0]
    per_log = _per_logarithm(variables, values)
    names = list(problem.limits)
    gained = -slope[0]
    numbers = problem.numbers(np.stack([values]))
    spent = {}
    for cost in ("area_mm2", "power_w"):
        level = float(getattr(numbers, cost)[0])
        spent[cost] = _cost_slopes(problem, place, cost) * level
    safe = lambda s: np.where(np.abs(s) > 1e-9, 100.0 * gained / np.where(np.abs(s) > 1e-9, s, 1.0), np.nan)
    ends = ["low" if p < _REACHED else "high" if p > 1 - _REACHED else "" for p in place]
    reached = [i for i in range(len(names)) if now[1 + i] > -_REACHED]
    walls = [-np.eye(len(place))[i] if end == "low" else np.eye(len(place))[i] for i, end in enumerate(ends) if end]
    columns = [*(slope[1 + i] for i in reached), *walls]
    weights = nnls(np.stack(columns, axis=1), gained)[0] if columns else np.zeros(0)
    multipliers = dict.fromkeys(names, 0.0) | {names[i]: float(w) for i, w in zip(reached, weights)}
    return Judged(gained * per_log, safe(spent["area_mm2"]), safe(spent["power_w"]), multipliers, ends)


def _per_logarithm(variables: Variables, values: np.ndarray) -> np.ndarray:
    """d place / d log value."""
    safe = np.where(variables.log > 0, variables.low, 1.0)
    top = np.where(variables.log > 0, variables.high, np.e)
    return np.where(variables.log > 0, 1.0 / np.log(top / safe), values / (variables.high - variables.low))


def _cost_slopes(problem: Problem, place: np.ndarray, cost: str, change: float = 1e-2) -> np.ndarray:
    """d log cost / d place, by differences of an exact posynomial; one-sided at an end."""
    eye = np.eye(len(place)) * change
    above, below = np.clip(place + eye, 0.0, 1.0), np.clip(place - eye, 0.0, 1.0)
    numbers = problem.variables.numbers(np.concatenate([above, below]))
    logs = np.log(np.maximum(np.asarray(getattr(problem.numbers(numbers), cost), float), 1e-300))
    slopes = (logs[: len(place)] - logs[len(place) :]) / np.sum(above - below, axis=1)
    return np.where(np.abs(slopes) > 1e-4, slopes, 0.0)
