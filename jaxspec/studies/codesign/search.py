"""Climbing from several places at once: SciPy's SLSQP, whose questions are answered for all starts together.

Each start runs in a thread of its own and asks for one value with its gradients at a time. When all that still run have asked,
one program answers them: a batch of always the same shape, in which every start has its own row, so that an answer depends on
neither who else asks nor which thread is the quicker.
Source: Kraft 1988, DFVLR-FB 88-28 (SLSQP), as in scipy.optimize.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from scipy.optimize import minimize

__all__ = ["Climb", "Together", "climb"]

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
        """Whoever waits or asks from now on is told of an error."""
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
        found = minimize(
            lambda x: at(x)[0][0],
            start[free] * _EDGE,
            jac=lambda x: at(x)[1][0].copy(),  # SciPy writes into what it gets
            bounds=[(0.0, _EDGE)] * int(free.sum()),
            constraints={
                "type": "ineq",
                "fun": lambda x: -(at(x)[0][1:] + _MARGIN),
                "jac": lambda x: -at(x)[1][1:],
            },
            method="SLSQP",
            options={"maxiter": iterations, "ftol": _TOLERANCE},
        )
        place = start.copy()
        place[free] = np.clip(found.x / _EDGE, 0.0, 1.0)
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
