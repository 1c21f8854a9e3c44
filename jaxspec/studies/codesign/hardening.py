"""From a place of the search to a design that can be built: multiples of every step, the rest climbed again, priced exactly."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from jaxspec.studies.codesign.problem import Problem
from jaxspec.studies.codesign.search import climb

__all__ = ["Hardened", "harden", "merit"]

#: Designs that exceed a limit by less, as a logarithm, keep it: the last digit of single precision.
ALLOWED_EXCESS = 2.0**-23

#: Roundings looked at for one place, and those whose other variables are climbed again.
_CORNERS, _CLIMBED = 64, 4

#: Rounds of steps to the next multiples.
_ROUNDS = 8

#: Widths of the clouds of designs around the best one, in edges of the cube, and clouds of each width at most.
_CLOUDS, _REPEATS = (0.1, 0.03, 0.01, 0.003), 8


@dataclasses.dataclass(frozen=True)
class Hardened:
    """A design that can be built.

    Attributes:
        values: of the variables.
        evaluations: exact ones that it took, and questions with gradients.
    """

    values: np.ndarray
    evaluations: int
    questions: int


def merit(values: np.ndarray) -> np.ndarray:
    """What is to be small: −log objective within the limits; beyond them worse than any design within, by the excess.

    Args:
        values: "design 1 + limit", of `Problem.values`.
    """
    excess = np.maximum(values[:, 1:].max(axis=1), 0.0)
    return np.where(excess <= ALLOWED_EXCESS, values[:, 0], 1e6 * (1.0 + excess))


def harden(
    problem: Problem,
    places: np.ndarray,
    *,
    drawn: np.ndarray | None = None,
    climbed: int = _CLIMBED,
    allowed: int | None = None,
    gradient_cost: int = 1,
) -> Hardened:
    """The best design near some places of the search.

    Roundings of every place to neighbouring multiples are evaluated exactly; from the best of them, the variables without a
    step are climbed again. Clouds of designs around the best one then mend what slopes do not show, kinks where another draft
    or another limit takes over, as long as one of them helps; last, single steps are tried until none helps.

    Args:
        places: "place variable", of the unit cube.
        drawn: "design variable", designs that can be built; the proposal is no worse than any of them.
        climbed: roundings that are climbed from.
        allowed: evaluations at most, a question counting as `gradient_cost`; None: as many as it takes.
    """
    variables, size = problem.variables, problem.batch
    left = lambda: None if allowed is None else max(allowed - evaluations - gradient_cost * questions, 0)
    stepped = [step is not None for step in variables.steps]
    corners = np.concatenate([_corners(problem, variables.numbers(place)) for place in places])
    corners = np.unique(corners, axis=0)
    if allowed is not None:
        corners = corners[: max(1, allowed // 4)]
    if drawn is not None:
        corners = np.concatenate([drawn, corners])
    evaluations, questions = len(corners), 0
    values = problem.values(corners)
    merits = merit(values)
    best, lowest = corners[np.argmin(merits)], float(merits.min())
    spare = left()
    if not all(stepped) and (spare is None or spare > 2 * gradient_cost * climbed):
        # What exceeds a limit may keep it once the others have moved.
        chosen = corners[_promising(values)[: min(climbed, size)]]
        ends = climb(
            problem.smooth,
            variables.places(chosen),
            iterations=problem.config.iterations,
            fixed=stepped,
            size=size,
            questions=None if spare is None else spare // (2 * gradient_cost * climbed),
        )
        again = np.where(stepped, chosen, variables.numbers(np.stack([one.place for one in ends])))
        evaluations, questions = evaluations + len(again), sum(len(one.path) for one in ends)
        merits = merit(problem.values(again))
        if merits.min() < lowest:
            best, lowest = again[np.argmin(merits)], float(merits.min())
    rng = np.random.default_rng(problem.config.seed)
    for width in _CLOUDS:
        for _ in range(_REPEATS):
            cloud = _cloud(problem, best, width, rng)[: left()]
            evaluations += len(cloud)
            merits = merit(problem.values(cloud)) if len(cloud) else np.array([np.inf])
            if merits.min() >= lowest:
                break
            best, lowest = cloud[np.argmin(merits)], float(merits.min())
    for _ in range(_ROUNDS):
        moved = _steps(problem, best)[: left()]
        evaluations += len(moved)
        merits = merit(problem.values(moved)) if len(moved) else np.array([np.inf])
        if merits.min() >= lowest - 1e-7:
            break
        best, lowest = moved[np.argmin(merits)], float(merits.min())
    return Hardened(best, evaluations, questions)


def _corners(problem: Problem, numbers: np.ndarray) -> np.ndarray:
    """Roundings of all stepped variables; of many, those nearest to the place.

    Distances are sums over the variables, so the nearest roundings of some are made of the nearest ones of fewer.
    """
    variables, found = problem.variables, numbers[None]
    for i, value in enumerate(numbers):
        choices = variables.neighbours(i, float(value))
        found = np.repeat(found, len(choices), axis=0)
        found[:, i] = np.resize(choices, len(found))
        if len(found) > _CORNERS:
            away = np.abs(variables.places(found) - variables.places(numbers)).sum(axis=1)
            found = found[np.argsort(away, kind="stable")[:_CORNERS]]
    return found


def _promising(values: np.ndarray) -> Sequence[int]:
    """Corners by how good they are, an excess counting as much as it would cost to take it back."""
    return np.argsort(values[:, 0] + np.maximum(values[:, 1:].max(axis=1), 0.0), kind="stable").tolist()


def _cloud(problem: Problem, values: np.ndarray, width: float, rng: np.random.Generator) -> np.ndarray:
    """Designs around one, half of whose variables moved; knobs without a step stay, as their widths take long to count."""
    variables, stepped = problem.variables, np.array([step is not None for step in problem.variables.steps])
    shape = (_CORNERS, len(values))
    moves = width * rng.standard_normal(shape) * (rng.random(shape) < 0.5)
    found = variables.stepped(np.clip(variables.places(values) + moves, 0.0, 1.0))
    fixed = ~stepped & np.array([name.startswith("draft.") for name in variables.names])
    return np.where(fixed, values, found)


def _steps(problem: Problem, values: np.ndarray) -> np.ndarray:
    """One step of one variable up or down, of every variable; and one up, another down, which may keep a limit."""
    variables = problem.variables
    moves = [(i, sign) for i, step in enumerate(variables.steps) if step is not None for sign in (-1.0, 1.0)]
    pairs = [(a, b) for a, b in itertools.combinations(moves, 2) if a[0] != b[0] and a[1] != b[1]]
    found = []
    for chosen in [*((move,) for move in moves), *pairs]:
        moved = values.copy()
        for i, sign in chosen:
            moved[i] += sign * (variables.steps[i] or 0.0)
        if np.all(moved >= variables.low - 1e-9) and np.all(moved <= variables.high + 1e-9):
            found.append(moved)
    return np.array(found).reshape(-1, len(values))
