"""Searches that see hard scores alone, over the unit box of all knobs; each returns the best place that it asked about."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jaxspec.errors import InputError

__all__ = ["RIVALS", "Score", "Search"]

#: From a place to what shall be large.
Score = Callable[[np.ndarray], float]

#: Score, start, evaluations (the start's among them), seed; gives the best place.
Search = Callable[[Score, np.ndarray, int, int], np.ndarray]

#: First step of every search, in the unit box: a bit of eight, a tenth of a pruning ratio.
_STEP = 0.1


class _Asked:
    """Counts evaluations and keeps the best place.

    Attributes:
        left: evaluations.
        best, place: highest score so far, and where.
    """

    def __init__(self, score: Score, start: np.ndarray, evaluations: int):
        self._score, self.left = score, evaluations
        self.best, self.place = -np.inf, start
        self(start)

    def __call__(self, place: np.ndarray) -> float:
        place = np.clip(place, 0.0, 1.0)
        self.left -= 1
        found = self._score(place)
        if found > self.best:
            self.best, self.place = found, place
        return found


def local(score: Score, start: np.ndarray, evaluations: int, seed: int) -> np.ndarray:
    """Gaussian steps from the best place, longer after a success and shorter after failures.

    Source: the (1 + 1) evolution strategy with the one-fifth rule, Rechenberg 1973; factors of Kern et al. 2004.
    """
    rng, asked, step = np.random.default_rng(seed), _Asked(score, start, evaluations), _STEP
    while asked.left > 0:
        before = asked.best
        success = asked(asked.place + step * rng.standard_normal(start.size)) > before
        step *= np.exp(0.8 if success else -0.2) ** (1 / np.sqrt(start.size))
    return asked.place


def coordinates(score: Score, start: np.ndarray, evaluations: int, seed: int) -> np.ndarray:
    """One knob at a time, in random order: a step up, else a step down; what helps is kept."""
    rng, asked = np.random.default_rng(seed), _Asked(score, start, evaluations)
    while asked.left > 0:
        for i in rng.permutation(start.size):
            for step in (_STEP, -_STEP):
                before, tried = asked.best, asked.place.copy()
                tried[i] += step
                if asked.left > 0 and asked(tried) > before:
                    break
    return asked.place


def simultaneous(score: Score, start: np.ndarray, evaluations: int, seed: int) -> np.ndarray:
    """Two scores at opposite random steps of all knobs give a slope along them; gains fall as Spall advises.

    The first move is as long as the first step of the others, whatever the scale of the score.

    Source: SPSA, Spall 1998, "Implementation of the simultaneous perturbation algorithm", exponents 0.602 and 0.101.
    """
    rng, asked = np.random.default_rng(seed), _Asked(score, start, evaluations)
    place, first, steady, turn = start, None, evaluations / 20, 0
    while asked.left >= 2:
        turn += 1
        width = _STEP / turn**0.101
        signs = rng.choice([-1.0, 1.0], start.size)
        slope = (asked(place + width * signs) - asked(place - width * signs)) / (2 * width)
        if first is None and slope:
            first = _STEP / abs(slope) * (steady + 1) ** 0.602
        if first is not None:
            place = np.clip(place + first / (turn + steady) ** 0.602 * slope * signs, 0.0, 1.0)
    if asked.left > 0:
        asked(place)
    return asked.place


def covariance(score: Score, start: np.ndarray, evaluations: int, seed: int) -> np.ndarray:
    """CMA-ES of the package cma, places outside the box moved onto its edge.

    Raises:
        InputError: the package is missing.
    """
    try:
        import cma  # pyright: ignore[reportMissingImports] - an extra
    except ImportError as error:
        raise InputError("the peer cma is missing; pip install jaxspec[searches]") from error
    asked = _Asked(score, start, evaluations)
    options = {"bounds": [0.0, 1.0], "seed": seed + 1, "verbose": -9, "maxfevals": max(asked.left, 1)}
    strategy = cma.CMAEvolutionStrategy(start, _STEP, options)
    while asked.left > 0:
        places = strategy.ask()
        scores = [asked(place) for place in places[: asked.left]]
        if len(scores) == len(places):
            strategy.tell(places, [-found for found in scores])
    return asked.place


#: Search by name.
RIVALS: dict[str, Search] = {
    "random local search": local,
    "coordinate descent": coordinates,
    "CMA-ES": covariance,
    "SPSA": simultaneous,
}
