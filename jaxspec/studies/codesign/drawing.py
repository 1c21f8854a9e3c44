"""Designs drawn from the whole space before anything climbs: cheap, and able to leave the valley that a slope leads into."""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.stats import qmc

from jaxspec.studies.codesign.hardening import merit
from jaxspec.studies.codesign.problem import Problem

__all__ = ["Drawn", "best_that_differ", "draw"]

#: Two designs differ if one variable of theirs does by this part of its range.
_APART = 0.1


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Designs, the best one first.

    Attributes:
        values: "design variable", counts at their steps.
        merits: " design", see `jaxspec.studies.codesign.hardening.merit`.
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
