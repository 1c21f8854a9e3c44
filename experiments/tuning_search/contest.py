"""Rows of a contest: every search from the same start, at equal cost; and what they say together."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Protocol

import numpy as np
from scipy.stats import t as student

from experiments.tuning_search.searches import RIVALS

__all__ = ["GRADIENT", "Contested", "contest", "entries", "summary"]

#: Name of the tuner's own search.
GRADIENT = "gradient"


class Contested(Protocol):
    """Scores of drafts for one seed: places are vectors in the unit box of all knobs."""

    @property
    def origin(self) -> np.ndarray:
        """The best point of the uniform grid, where every search begins."""
        ...

    def step_cost(self) -> float:
        """A gradient step's time over a hard evaluation's."""
        ...

    def speedup(self, place: np.ndarray) -> float:
        """Of the hard draft on calibration text: one evaluation."""
        ...

    def held_out(self, place: np.ndarray) -> float:
        """The same on held-out prompts."""
        ...

    def climbed(self) -> np.ndarray:
        """Where the gradient's steps end."""
        ...


def entries(budgets: tuple[int, ...]) -> list[tuple[str, int]]:
    """Search and budget of each row of a seed: the gradient once, each rival at each multiple of the gradient's cost."""
    return [(GRADIENT, 1), *((name, budget) for budget in budgets for name in RIVALS)]


def contest(
    scores: Contested,
    *,
    steps: int,
    seed: int,
    budgets: tuple[int, ...],
    done: Collection[tuple[str, int]] = (),
    step_cost: float | None = None,
) -> Iterator[dict[str, Any]]:
    """A row for each search and budget that is not done.

    Args:
        steps: of the gradient.
        step_cost: of a gradient step in hard evaluations; None measures it.
    """
    step_cost = scores.step_cost() if step_cost is None else step_cost
    # One more, by which the gradient's end is compared with its start.
    cost = max(round(steps * step_cost), 1) + 1
    start = np.asarray(scores.origin)
    begun, begun_held_out = scores.speedup(start), scores.held_out(start)
    for name, budget in entries(budgets):
        if (name, budget) in done:
            continue
        if name == GRADIENT:
            place = max(start, scores.climbed(), key=scores.speedup)
        else:
            place = RIVALS[name](lambda where: float(np.log(scores.speedup(where))), start, budget * cost, seed)
        yield {
            "search": name,
            "budget": budget,
            "evaluations": budget * cost,
            "step_cost": step_cost,
            "over_grid_calibration": scores.speedup(place) / begun,
            "over_grid_held_out": scores.held_out(place) / begun_held_out,
            "status": "predicted",
        }


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean over seeds and half its 95 % interval (Student's t), by temperature, budget and search; the best first."""
    found = []
    keys = sorted({(row["temperature"], row["budget"], row["search"]) for row in rows})
    for temperature, budget, search in keys:
        here = [
            row for row in rows if (row["temperature"], row["budget"], row["search"]) == (temperature, budget, search)
        ]
        kept, promised = (np.array([row[f"over_grid_{text}"] for row in here]) for text in ("held_out", "calibration"))
        several = kept.size > 1
        half = student.ppf(0.975, kept.size - 1) * kept.std(ddof=1) / np.sqrt(kept.size) if several else None
        found.append(
            {
                "temperature": temperature,
                "budget": budget,
                "search": search,
                "seeds": kept.size,
                "evaluations": float(np.mean([row["evaluations"] for row in here])),
                "over_grid_held_out": float(kept.mean()),
                "half_interval": None if half is None else float(half),
                "over_grid_calibration": float(promised.mean()),
                "optimism": float((promised / kept).mean() - 1),
            }
        )
    return sorted(found, key=lambda row: (row["temperature"], row["budget"], -row["over_grid_held_out"]))
