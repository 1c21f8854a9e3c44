"""One problem and one seed: three searches over the same cube of variables, at equal evaluations and at equal time.

All of them see the same space (logarithmic, counts in their steps), the same exact pricing and the same limits; none is told
the design before. A design counts if it keeps every limit, and if it was found in time: what a search has at hand when its
evaluations or seconds are over is dropped.

An evaluation is one design's objective with all its limits. A value with the gradients of all of them counts as
`gradient_cost` evaluations, measured by processor time, in batches of equal size. Programs are compiled before any clock
starts; the clock is that of the processor, all threads together.
"""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.clock import median_s, medians_s
from jaxspec.errors import InputError
from jaxspec.studies.codesign.problem import Problem
from jaxspec.studies.codesign.search import Drawn, best_that_differ, climb, draw, harden, merit

__all__ = ["METHODS", "Allowance", "Found", "gradient", "gradient_cost", "quickest_batch", "surrogate", "uniform"]

#: At least what the theory says of a value with one gradient, Griewank and Walther 2008, (4.21).
_LEAST_COST = 5

#: Designs that random search may price together.
_BATCHES = (64, 128, 256, 512)

#: Part of an allowance that goes into draws before anything climbs, and the best of them that hardening compares with.
_DRAWN, _COMPARED = 0.25, 8

#: Starts of climbs at most, and questions of one climb.
_STARTS, _QUESTIONS = 64, 120

#: Values with gradients that are worth a climb.
_FEWEST = 8


@dataclasses.dataclass(frozen=True)
class Allowance:
    """What one search may spend.

    Attributes:
        evaluations, seconds: of one of them; the other is None.
        gradient_cost: evaluations that a value with its gradients counts as.
        batch: designs that are priced together where all are known beforehand.
    """

    evaluations: int | None
    seconds: float | None
    gradient_cost: int
    batch: int


@dataclasses.dataclass(frozen=True)
class Found:
    """The best design of one search.

    Attributes:
        objective: 0 where no design kept every limit.
        evaluations: it took, gradients counted as `gradient_cost`.
    """

    objective: float
    evaluations: int
    seconds: float


def gradient_cost(problem: Problem, *, repeats: int = 40) -> int:
    """Processor time of a value with all gradients over that of a value, rounded up; at least `_LEAST_COST`."""
    places = np.random.default_rng(0).random((problem.batch, len(problem.before)))
    numbers = problem.variables.stepped(places)
    calls = (lambda: problem.smooth(places), lambda: problem.tabled(numbers))
    smooth_s, tabled_s = medians_s(calls, repeats, clock=time.process_time)
    return max(math.ceil(smooth_s / tabled_s), _LEAST_COST)


def quickest_batch(problem: Problem, *, repeats: int = 5) -> int:
    """The number of designs priced together that gives the most of them in a second."""
    rng, rates = np.random.default_rng(0), {}
    for batch in _BATCHES:
        numbers = problem.variables.stepped(rng.random((batch, len(problem.before))))
        rates[batch] = batch / median_s(
            lambda numbers=numbers: problem.tabled(numbers), repeats, clock=time.process_time
        )
    return max(rates, key=lambda batch: rates[batch])


def _objective(merits: np.ndarray) -> float:
    return float(np.exp(-merits.min())) if merits.min() < 1e5 else 0.0


def gradient(problem: Problem, allowed: Allowance, seed: int) -> Found:
    """Draws, then climbs from the best that differ: eight together where time counts, one after the other else."""
    problem = dataclasses.replace(problem, counted={})  # widths that another run counted
    return _climbs_in_turn(problem, allowed, seed) if allowed.seconds is None else _many_climbs(problem, allowed, seed)


def _climbs_in_turn(problem: Problem, allowed: Allowance, seed: int) -> Found:
    """Climb from the best draw for half of what is left, round with the rest, and so on."""
    assert allowed.evaluations is not None
    began, cost, spent = time.process_time(), allowed.gradient_cost, int(_DRAWN * allowed.evaluations)
    drawn = draw(problem, spent, np.random.default_rng(seed))
    best = _objective(drawn.merits)
    for start in best_that_differ(problem, drawn, _STARTS):
        left = allowed.evaluations - spent
        if left < _FEWEST * cost:
            break
        place = problem.variables.places(start)[None]
        questions = left // (2 * cost)
        (end,) = climb(problem.smooth, place, iterations=60, size=problem.batch, questions=questions)
        spent += cost * len(end.path)
        left = allowed.evaluations - spent
        hardened = harden(problem, end.place[None], drawn=start[None], climbed=1, allowed=left, gradient_cost=cost)
        spent += hardened.evaluations + cost * hardened.questions
        if spent <= allowed.evaluations:
            best = max(best, _objective(merit(problem.tabled(hardened.values[None]))))
    return Found(best, spent, time.process_time() - began)


def _many_climbs(problem: Problem, allowed: Allowance, seed: int) -> Found:
    """Draw for a part of the time; then climb from the best that differ, eight at a time."""
    assert allowed.seconds is not None
    began, rng, parts = time.process_time(), np.random.default_rng(seed), []
    while not parts or time.process_time() - began < _DRAWN * allowed.seconds:
        parts.append(draw(problem, allowed.batch, rng))
    values, merits = (np.concatenate([getattr(part, name) for part in parts]) for name in ("values", "merits"))
    order = np.argsort(merits, kind="stable")
    drawn = Drawn(values[order], merits[order])
    spent, best, size = len(order), _objective(drawn.merits), problem.batch
    starts = problem.variables.places(best_that_differ(problem, drawn, _STARTS))
    for first in range(0, len(starts) - size + 1, size):
        climbs = climb(problem.smooth, starts[first : first + size], iterations=60, size=size, questions=_QUESTIONS)
        ends = np.stack([one.place for one in climbs])
        values, _ = problem.smooth(ends)
        chosen = ends[[int(np.argmin(merit(values)))]]
        hardened = harden(problem, chosen, drawn=drawn.values[:_COMPARED], climbed=1)
        questions = len(ends) + hardened.questions + sum(len(one.path) for one in climbs)
        spent += hardened.evaluations + allowed.gradient_cost * questions
        found = _objective(merit(problem.tabled(hardened.values[None])))
        if time.process_time() - began > allowed.seconds:
            break
        best = max(best, found)
    return Found(best, spent, time.process_time() - began)


def uniform(problem: Problem, allowed: Allowance, seed: int) -> Found:
    """Designs drawn evenly from the cube."""
    rng, began, spent, best = np.random.default_rng(seed), time.process_time(), 0, 0.0
    while True:
        count = allowed.batch if allowed.evaluations is None else min(allowed.batch, allowed.evaluations - spent)
        numbers = problem.variables.stepped(rng.random((allowed.batch, len(problem.before))))
        found = _objective(merit(problem.tabled(numbers)[:count]))
        spent, took = spent + count, time.process_time() - began
        if allowed.seconds is not None and took > allowed.seconds:
            return Found(best, spent, took)
        best = max(best, found)
        if allowed.evaluations is not None and spent >= allowed.evaluations:
            return Found(best, spent, took)


def surrogate(problem: Problem, allowed: Allowance, seed: int) -> Found:
    """Optuna's tree-structured Parzen estimator over all variables together, with its model of what keeps the limits."""
    try:
        import optuna  # pyright: ignore[reportMissingImports] - an extra
    except ImportError as error:
        raise InputError("the peer optuna is missing; pip install jaxspec[benchmarks]") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    names = [f"x{i:02d}" for i in range(len(problem.before))]
    space: dict[str, Any] = dict.fromkeys(names, optuna.distributions.FloatDistribution(0.0, 1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # parts of it are called experimental
        sampler = optuna.samplers.TPESampler(
            seed=seed, multivariate=True, constraints_func=lambda trial: trial.user_attrs["excess"]
        )
        study = optuna.create_study(sampler=sampler, direction="minimize")
        began, spent, best = time.process_time(), 0, 0.0
        while True:
            trial = study.ask(space)
            values = problem.tabled(problem.variables.stepped(np.array([[trial.params[name] for name in names]])))[0]
            trial.set_user_attr("excess", values[1:].tolist())
            study.tell(trial, float(values[0]))
            spent, took = spent + 1, time.process_time() - began
            if allowed.seconds is not None and took > allowed.seconds:
                return Found(best, spent, took)
            best = max(best, _objective(merit(values[None])))
            if allowed.evaluations is not None and spent >= allowed.evaluations:
                return Found(best, spent, took)


#: Search by name.
METHODS: dict[str, Callable[[Problem, Allowance, int], Found]] = {
    "gradient": gradient,
    "random": uniform,
    "bayesian": surrogate,
}
