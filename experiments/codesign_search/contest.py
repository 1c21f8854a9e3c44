"""One problem and one seed: three searches over the same cube of variables, at equal evaluations and at equal time.

All of them see the same space (logarithmic, counts in their steps), the same exact pricing and the same limits; a design counts
if it keeps every limit. A value with its gradients counts as `GRADIENT_COST` evaluations, the bound of reverse differentiation.
Programs are compiled before any clock starts; the clock is that of the processor, all threads together.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable

import numpy as np

from jaxspec.errors import InputError
from jaxspec.studies.codesign.hardening import harden, merit
from jaxspec.studies.codesign.problem import Problem
from jaxspec.studies.codesign.run import start_places
from jaxspec.studies.codesign.search import climb

__all__ = ["GRADIENT_COST", "METHODS", "Found", "gradient", "surrogate", "uniform"]

#: Evaluations that a value with all gradients counts as: at most five times the operations, Griewank and Walther 2008, (4.21).
GRADIENT_COST = 5

#: Random designs are priced in batches.
_BATCH = 64


@dataclasses.dataclass(frozen=True)
class Found:
    """The best design of one search.

    Attributes:
        objective: 0 where no design kept every limit.
        evaluations: it took, gradients counted as `GRADIENT_COST`.
    """

    objective: float
    evaluations: int
    seconds: float


def _stepped(problem: Problem, places: np.ndarray) -> np.ndarray:
    """Numbers at places, those with a step at their nearest multiples."""
    numbers, variables = problem.variables.numbers(places), problem.variables
    for i, step in enumerate(variables.steps):
        if step is not None:
            numbers[:, i] = np.clip(np.round(numbers[:, i] / step) * step, variables.low[i], variables.high[i])
    return numbers


def _objective(merits: np.ndarray) -> float:
    return float(np.exp(-merits.min())) if merits.min() < 1e5 else 0.0


def gradient(problem: Problem, *, evaluations: int | None, seconds: float | None, seed: int) -> Found:
    """Climbs whose best end is rounded: of eight starts again and again where time counts, of one where evaluations do."""
    began, spent, best, place = time.process_time(), 0, 0.0, seed
    while True:
        places = start_places(dataclasses.replace(problem, config=dataclasses.replace(problem.config, seed=place)))
        if evaluations is not None:
            # A fifth looks for a place to begin at, half climbs, rounding takes the rest.
            looked = np.random.default_rng(place).random((_BATCH, len(problem.before)))
            count = min(_BATCH, evaluations // 5)
            values = problem.tabled(_stepped(problem, looked))[:count]
            spent += count
            # Least excess first, as a climb mends that sooner than it finds another valley.
            order = np.argsort(values[:, 0] + 4.0 * np.maximum(values[:, 1:].max(axis=1), 0.0))
            climbs = climb(
                problem.smooth,
                looked[order[:1]],
                iterations=60,
                size=problem.batch,
                questions=evaluations // (2 * GRADIENT_COST),
            )
        else:
            climbs = climb(problem.smooth, places, iterations=60, size=problem.batch)
        spent += GRADIENT_COST * sum(len(one.path) for one in climbs)
        ends = np.stack([one.place for one in climbs])
        values, _ = problem.smooth(np.concatenate([ends, np.repeat(ends[:1], problem.batch - len(ends), axis=0)]))
        spent += GRADIENT_COST * len(ends)
        chosen = ends[[int(np.argmin(merit(values[: len(ends)])))]]
        allowed = None if evaluations is None else evaluations - spent
        hardened = harden(problem, chosen, climbed=1, allowed=allowed, gradient_cost=GRADIENT_COST)
        spent += hardened.evaluations + GRADIENT_COST * hardened.questions
        best = max(best, _objective(merit(problem.values(hardened.values[None]))))
        place += 1000
        took = time.process_time() - began
        if evaluations is not None or (seconds is not None and took >= seconds):
            return Found(best, spent, took)


def uniform(problem: Problem, *, evaluations: int | None, seconds: float | None, seed: int) -> Found:
    """Designs drawn evenly from the cube, priced 64 at a time."""
    rng, began, spent, best = np.random.default_rng(seed), time.process_time(), 0, 0.0
    while True:
        count = _BATCH if evaluations is None else min(_BATCH, evaluations - spent)
        numbers = _stepped(problem, rng.random((_BATCH, len(problem.before))))
        best = max(best, _objective(merit(problem.tabled(numbers)[:count])))
        spent += count
        took = time.process_time() - began
        if (evaluations is not None and spent >= evaluations) or (seconds is not None and took >= seconds):
            return Found(best, spent, took)


def surrogate(problem: Problem, *, evaluations: int | None, seconds: float | None, seed: int) -> Found:
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
            row = _stepped(problem, np.array([[trial.params[name] for name in names]]))
            values = problem.tabled(np.repeat(row, _BATCH, axis=0))[0]
            trial.set_user_attr("excess", values[1:].tolist())
            study.tell(trial, float(values[0]))
            best, spent = max(best, _objective(merit(values[None]))), spent + 1
            took = time.process_time() - began
            if (evaluations is not None and spent >= evaluations) or (seconds is not None and took >= seconds):
                return Found(best, spent, took)


#: Search by name.
METHODS: dict[str, Callable[..., Found]] = {"gradient": gradient, "random": uniform, "bayesian": surrogate}
