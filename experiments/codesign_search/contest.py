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

import numpy as np
from scipy.stats import qmc

from jaxspec.errors import InputError
from jaxspec.studies.codesign.hardening import harden, merit
from jaxspec.studies.codesign.problem import Problem
from jaxspec.studies.codesign.search import climb

__all__ = ["METHODS", "Allowance", "Found", "gradient", "gradient_cost", "quickest_batch", "surrogate", "uniform"]

#: At least what the theory says of a value with one gradient, Griewank and Walther 2008, (4.21).
_LEAST_COST = 5

#: Designs that random search may price together; those that a climb chooses its start from at most.
_BATCHES, _LOOKS = (64, 1024, 4096), 64

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
    ratio = _median_s(lambda: problem.smooth(places), repeats) / _median_s(lambda: problem.tabled(numbers), repeats)
    return max(math.ceil(ratio), _LEAST_COST)


def quickest_batch(problem: Problem, *, repeats: int = 5) -> int:
    """The number of designs priced together that gives the most of them in a second."""
    rng, rates = np.random.default_rng(0), {}
    for batch in _BATCHES:
        numbers = problem.variables.stepped(rng.random((batch, len(problem.before))))
        rates[batch] = batch / _median_s(lambda numbers=numbers: problem.tabled(numbers), repeats)
    return max(rates, key=lambda batch: rates[batch])


def _median_s(call: Callable[[], object], repeats: int) -> float:
    call()
    found = []
    for _ in range(repeats):
        began = time.process_time()
        call()
        found.append(time.process_time() - began)
    return float(np.median(found))


def _objective(merits: np.ndarray) -> float:
    return float(np.exp(-merits.min())) if merits.min() < 1e5 else 0.0


def gradient(problem: Problem, allowed: Allowance, seed: int) -> Found:
    """Climbs whose best end is rounded: of eight starts together where time counts, of one after the other else."""
    problem = dataclasses.replace(problem, counted={})  # widths that another run counted
    return _climbs_in_turn(problem, allowed, seed) if allowed.seconds is None else _many_climbs(problem, allowed, seed)


def _climbs_in_turn(problem: Problem, allowed: Allowance, seed: int) -> Found:
    """Look for places to begin at; climb from the best for half of what is left, round with the rest, and so on."""
    assert allowed.evaluations is not None
    began, cost = time.process_time(), allowed.gradient_cost
    looks = min(_LOOKS, allowed.evaluations // 5)
    looked = np.random.default_rng(seed).random((looks, len(problem.before)))
    values = problem.tabled(problem.variables.stepped(looked))
    best, spent = _objective(merit(values)), looks
    # Least excess first, as a climb mends that sooner than it finds another valley.
    order = np.argsort(values[:, 0] + 4.0 * np.maximum(values[:, 1:].max(axis=1), 0.0))
    for place in looked[order]:
        left = allowed.evaluations - spent
        if left < _FEWEST * cost:
            break
        questions = left // (2 * cost)
        (end,) = climb(problem.smooth, place[None], iterations=60, size=problem.batch, questions=questions)
        spent += cost * len(end.path)
        left = allowed.evaluations - spent
        hardened = harden(problem, end.place[None], climbed=1, allowed=left, gradient_cost=cost)
        spent += hardened.evaluations + cost * hardened.questions
        if spent <= allowed.evaluations:
            best = max(best, _objective(merit(problem.tabled(hardened.values[None]))))
    return Found(best, spent, time.process_time() - began)


def _many_climbs(problem: Problem, allowed: Allowance, seed: int) -> Found:
    assert allowed.seconds is not None
    began, spent, best, rng = time.process_time(), 0, 0.0, np.random.default_rng(seed)
    while True:
        places = qmc.LatinHypercube(len(problem.before), rng=rng).random(problem.batch)
        climbs = climb(problem.smooth, places, iterations=60, size=problem.batch)
        ends = np.stack([one.place for one in climbs])
        values, _ = problem.smooth(ends)
        hardened = harden(problem, ends[[int(np.argmin(merit(values)))]], climbed=1)
        questions = len(ends) + hardened.questions + sum(len(one.path) for one in climbs)
        spent += hardened.evaluations + allowed.gradient_cost * questions
        found = _objective(merit(problem.tabled(hardened.values[None])))
        took = time.process_time() - began
        if took > allowed.seconds:
            return Found(best, spent, took)
        best = max(best, found)


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
    space = dict.fromkeys(names, optuna.distributions.FloatDistribution(0.0, 1.0))
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
