"""The search for a design: ascent, whole numbers, judging, and the design as a drawing."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from scipy.optimize import minimize, nnls
from scipy.stats import qmc

from hwmodels.analysis.design_point import ELEMENTS
from hwmodels.compute.roofline import unit_of
from hwmodels.device import Device
from hwmodels.numerics.scalars import as_float
from jaxspec.errors import InputError
from jaxspec.studies.codesign.config import BUDGETS
from jaxspec.studies.codesign.problem import Problem, Variables

#: A value and its gradients at many places: "design variable" -> "design 1 + limit", "design 1 + limit variable".
Smooth = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


#: Edge of the cube as SLSQP sees it. Its first step is as long as the slopes, which in a unit cube lead from end to end.
_EDGE = 3.0


#: Improvement of log(objective) that a step must make.
_TOLERANCE = 1e-6


#: Room that is left below each limit, so that rounding to single precision does not break it.
_MARGIN = 1e-5


class Together:
    """Questions of several threads, answered in batches of one size."""

    def __init__(self, smooth: Smooth, size: int, threads: int):
        self._smooth, self._size = smooth, size
        self._condition = threading.Condition()
        self._waiting: dict[int, np.ndarray] = {}
        self._answers: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._running = threads  # that may still ask
        self._broken: BaseException | None = None

    def ask(self, who: int, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Value and gradients at a place; waits until all others that run have asked too."""
        with self._condition:
            if self._broken is not None:
                raise self._broken
            self._waiting[who] = place
            self._answer_if_all()
            while who not in self._answers:
                if self._broken is not None:
                    raise self._broken
                self._condition.wait()
            return self._answers.pop(who)

    def stop(self, error: BaseException) -> None:
        """Whoever waits or asks from now on gets an error."""
        with self._condition:
            self._broken = error
            self._condition.notify_all()

    def leave(self) -> None:
        """One thread asks no more."""
        with self._condition:
            self._running -= 1
            self._answer_if_all()

    def _answer_if_all(self) -> None:
        if not self._waiting or len(self._waiting) < self._running:
            return
        places = np.repeat(self._waiting[min(self._waiting)][None], self._size, axis=0)
        for who, place in self._waiting.items():
            places[who] = place
        try:
            values, slopes = self._smooth(places)
        except BaseException as error:
            self._broken = error
            self._condition.notify_all()
            raise
        self._answers |= {who: (values[who], slopes[who]) for who in self._waiting}
        self._waiting.clear()
        self._condition.notify_all()


@dataclasses.dataclass(frozen=True)
class Climb:
    """One start and where it ended.

    Attributes:
        place: in the unit cube.
        path: (log objective, largest excess over a limit as a logarithm) of every question.
    """

    place: np.ndarray
    path: list[tuple[float, float]]


def climb(
    smooth: Smooth,
    starts: np.ndarray,
    *,
    iterations: int,
    fixed: Sequence[bool] = (),
    size: int | None = None,
    questions: int | None = None,
) -> list[Climb]:
    """SLSQP from each start.

    Args:
        smooth: −log objective and logs of numbers over their limits, with gradients.
        starts: "start variable", in the unit cube.
        iterations: of each, at most.
        fixed: variables that stay where the start has them.
        size: of a batch, >= the number of starts; None: that number.
        questions: of each start, at most.
    """
    starts = np.asarray(starts, float)
    size = max(size or len(starts), len(starts))
    together = Together(smooth, size, len(starts))
    held = np.asarray(fixed, bool) if len(fixed) else np.zeros(starts.shape[1], bool)

    def one(who: int) -> Climb:
        try:
            return _climb_one(lambda place: together.ask(who, place), starts[who], held, iterations, questions)
        finally:
            together.leave()

    with ThreadPoolExecutor(len(starts)) as pool:
        try:
            return list(pool.map(one, range(len(starts))))
        except BaseException as error:  # an interrupt reaches this thread alone
            together.stop(error)
            raise


class _EnoughError(Exception):
    pass


def _climb_one(
    ask: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    start: np.ndarray,
    held: np.ndarray,
    iterations: int,
    questions: int | None,
) -> Climb:
    path: list[tuple[float, float]] = []
    places: list[np.ndarray] = []
    free = ~held
    if not free.any():
        values, _ = ask(start)
        return Climb(start, [(-values[0], float(values[1:].max()))])
    last: dict[str, Any] = {}

    def at(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        key = x.tobytes()
        if last.get("key") != key:
            if questions is not None and len(path) >= questions:
                raise _EnoughError
            place = start.copy()
            place[free] = np.clip(x / _EDGE, 0.0, 1.0)
            values, slopes = ask(place)
            last["key"], last["answer"] = key, (values, slopes[:, free] / _EDGE)
            path.append((-float(values[0]), float(values[1:].max())))
            places.append(place)
        return last["answer"]

    try:
        optimum = minimize(
            lambda x: at(x)[0][0],
            start[free] * _EDGE,
            jac=lambda x: at(x)[1][0].copy(),  # SciPy writes into what it gets
            bounds=[(0.0, _EDGE)] * int(free.sum()),
            constraints={"type": "ineq", "fun": lambda x: -(at(x)[0][1:] + _MARGIN), "jac": lambda x: -at(x)[1][1:]},
            method="SLSQP",
            options={"maxiter": iterations, "ftol": _TOLERANCE},
        )
        place = start.copy()
        place[free] = np.clip(optimum.x / _EDGE, 0.0, 1.0)
    except _EnoughError:
        place = places[-1]
    # The last question is not always the best one: a step out of what is allowed may end a climb.
    good = [i for i, (_, excess) in enumerate(path) if excess <= 0]
    if good:
        best = max(good, key=lambda i: path[i][0])
        at_end = next((path[i] for i in range(len(places)) if np.array_equal(places[i], place)), None)
        if at_end is None or at_end[1] > 0 or at_end[0] < path[best][0]:
            place = places[best]
    return Climb(place, path)


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
    variables, corners = problem.variables, numbers[None]
    for i, value in enumerate(numbers):
        choices = variables.neighbours(i, float(value))
        corners = np.repeat(corners, len(choices), axis=0)
        corners[:, i] = np.resize(choices, len(corners))
        if len(corners) > _CORNERS:
            away = np.abs(variables.places(corners) - variables.places(numbers)).sum(axis=1)
            corners = corners[np.argsort(away, kind="stable")[:_CORNERS]]
    return corners


def _promising(values: np.ndarray) -> Sequence[int]:
    """Corners by how good they are, an excess counting as much as it would cost to take it back."""
    return np.argsort(values[:, 0] + np.maximum(values[:, 1:].max(axis=1), 0.0), kind="stable").tolist()


def _cloud(problem: Problem, values: np.ndarray, width: float, rng: np.random.Generator) -> np.ndarray:
    """Designs around one, half of whose variables moved; knobs without a step stay, as their widths take long to count."""
    variables, stepped = problem.variables, np.array([step is not None for step in problem.variables.steps])
    shape = (_CORNERS, len(values))
    moves = width * rng.standard_normal(shape) * (rng.random(shape) < 0.5)
    cloud = variables.stepped(np.clip(variables.places(values) + moves, 0.0, 1.0))
    fixed = ~stepped & np.array([name.startswith("draft.") for name in variables.names])
    return np.where(fixed, values, cloud)


def _steps(problem: Problem, values: np.ndarray) -> np.ndarray:
    """One step of one variable up or down, of every variable; and one up, another down, which may keep a limit."""
    variables = problem.variables
    moves = [(i, sign) for i, step in enumerate(variables.steps) if step is not None for sign in (-1.0, 1.0)]
    pairs = [(a, b) for a, b in itertools.combinations(moves, 2) if a[0] != b[0] and a[1] != b[1]]
    steps = []
    for chosen in [*((move,) for move in moves), *pairs]:
        moved = values.copy()
        for i, sign in chosen:
            moved[i] += sign * (variables.steps[i] or 0.0)
        if np.all(moved >= variables.low - 1e-9) and np.all(moved <= variables.high + 1e-9):
            steps.append(moved)
    return np.array(steps).reshape(-1, len(values))


#: Two designs differ if one variable of theirs does by this part of its range.
_APART = 0.1


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Designs, the best one first.

    Attributes:
        values: "design variable", counts at their steps.
        merits: " design", see `merit`.
    """

    values: np.ndarray
    merits: np.ndarray


def draw(problem: Problem, count: int, rng: np.random.Generator) -> Drawn:
    """A Latin hypercube of designs, priced as `Problem.tabled` does.

    Args:
        count: >= 1.
    """
    values = problem.variables.stepped(qmc.LatinHypercube(len(problem.before), rng=rng).random(count))
    merits = merit(problem.tabled(values))
    order = np.argsort(merits, kind="stable")
    return Drawn(values[order], merits[order])


def best_that_differ(problem: Problem, drawn: Drawn, count: int) -> np.ndarray:
    """The best designs no two of which are neighbours, "design variable"; filled up with the next best ones.

    Args:
        count: of designs; fewer only where fewer were drawn.
    """
    places = problem.variables.places(drawn.values)
    chosen: list[int] = []
    for i, place in enumerate(places):
        if len(chosen) == count:
            break
        if not chosen or np.abs(places[chosen] - place).max(axis=1).min() >= _APART:
            chosen.append(i)
    rest = (i for i in range(len(places)) if i not in chosen)
    chosen += [i for _, i in zip(range(count - len(chosen)), rest, strict=False)]
    return drawn.values[chosen]


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
    logs, slopes = problem.smooth(np.repeat(place[None], problem.batch, axis=0))
    now, slope = logs[0], slopes[0]
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


#: Slopes of logarithms over the whole range of a variable: of the objective, and of a cost. Less is rounding.
_SLOPE, _COST = 1e-3, 1e-6


_TECHNOLOGY = "device.technology."


def refuse_free_lunches(problem: Problem, places: np.ndarray) -> None:
    """Every number of the device takes from a budget where it makes designs better; a larger array takes area and power.

    Args:
        places: "design variable", of the unit cube, at which slopes are taken.
    Raises:
        InputError: a variable for which that is not so, by its name.
    """
    _, slopes = problem.smooth(places)
    better = -slopes[:, 0]
    spent = slopes[:, [1 + i for i, name in enumerate(problem.limits) if name in BUDGETS]]
    for i, name in enumerate(problem.variables.names):
        if not name.startswith("device."):
            continue
        direction = np.where(np.abs(better[:, i]) > _SLOPE, np.sign(better[:, i]), 0.0)[:, None]
        rises, falls = spent[:, :, i] > _COST, spent[:, :, i] < -_COST
        if direction.any():
            costs = bool((np.where(direction > 0, rises, falls) & (direction != 0)).any())
        else:
            # Times do not notice it. How a chip is made always trades one cost for another; sizes cost anyway.
            costs = bool(rises.any() and falls.any() if name.startswith(_TECHNOLOGY) else (rises | falls).any())
        if not costs:
            budgets = ", ".join(name for name in problem.limits if name in BUDGETS)
            raise InputError(
                f"variables.{name} is a free lunch: making it better costs nothing under {budgets}; add what it costs, as "
                f"[costs.name] with of = {{ {_key(name)} = 1 }}, or a budget that it counts in, or take it out"
            )
    _refuse_free_arrays(problem)


def _refuse_free_arrays(problem: Problem) -> None:
    variables = problem.variables
    middle = np.clip(problem.before, variables.low, variables.high)
    for i, name in enumerate(variables.names):
        ends = np.stack([middle, middle])
        ends[:, i] = variables.low[i], variables.high[i]
        sizes = [_array_size(problem.model.tree(row)["device"]) for row in ends]
        if sizes[0] == sizes[1]:
            continue
        ends_numbers = problem.numbers(ends)
        for cost in ("area_mm2", "power_w"):
            if not np.diff(getattr(ends_numbers, cost)) * np.diff(sizes) > 0:
                of = "peak_flops_per_s" if unit_of(problem.device).elements is None else ELEMENTS
                raise InputError(
                    f"variables.{name} is a free lunch: a larger array costs no {cost}; add [costs.name] with "
                    f"of = {{ {of} = 1 }} and {cost}"
                )


def _array_size(device: Device) -> float:
    """Elements of the matrix unit; the peak where that is all that is known of the array."""
    elements = unit_of(device).elements
    return float(as_float(device.peak_flops_per_s if elements is None else elements))


def _key(name: str) -> str:
    """As a key of TOML."""
    inner = name.removeprefix("device.")
    return f'"{inner}"' if "." in inner else inner
