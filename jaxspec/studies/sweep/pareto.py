"""Points that no other point beats in two results, gathered chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from jaxspec.errors import InputError

__all__ = ["ParetoFront", "is_pareto"]

#: Points drawn beside the front.
_CLOUD = 4000


def is_pareto(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Which points no other point beats, less being better in both; of equal points the first.

    Args:
        x, y: "point".
    Returns:
        bool "point"; never a point with a NaN.
    """
    order = np.lexsort((y, x))
    order = order[~(np.isnan(x) | np.isnan(y))[order]]
    sorted_y = y[order]
    before = np.minimum.accumulate(np.concatenate([[np.inf], sorted_y[:-1]]))
    keep = np.zeros(len(x), bool)
    keep[order[sorted_y < before]] = True
    return keep


class ParetoFront:
    """The front of a sweep among the points that fit: columns `x` and `y`, each better when "low" or "high".

    Attributes:
        seen, fitting: numbers of points so far, all and those that fit their memory.
        best: the point with the highest value of each result that is looked for.
    """

    def __init__(self, x: str, y: str, better_x: str = "low", better_y: str = "high"):
        self.axes = {"x": x, "y": y, "better_x": better_x, "better_y": better_y}
        self._signs = (1.0 if better_x == "low" else -1.0, 1.0 if better_y == "low" else -1.0)
        self._front: dict[str, np.ndarray] = {}
        self._cloud: list[np.ndarray] = []
        self.seen = 0
        self.fitting = 0
        self.best: dict[str, Any] = {}

    def check_columns(self, allowed: Iterable[str]) -> None:
        """Raises InputError if an axis of the front is no column of numbers."""
        numbers = [name for name in allowed if name not in ("architecture", "device")]
        for key in ("x", "y"):
            if self.axes[key] not in numbers:
                raise InputError(f"pareto.{key} is {self.axes[key]!r}; allowed are {', '.join(numbers)}")

    def add(self, columns: dict[str, np.ndarray]) -> None:
        """Take in more points; those that do not fit their memory are counted and left out."""
        new_count = len(columns["fits"])
        self.seen += new_count
        fits = np.asarray(columns["fits"], bool)
        columns = {name: np.asarray(values)[fits] for name, values in columns.items()}
        self.fitting += int(fits.sum())
        joined = {
            name: np.concatenate([self._front[name], values]) if self._front else np.asarray(values)
            for name, values in columns.items()
        }
        x, y = (sign * np.asarray(joined[self.axes[key]], float) for key, sign in zip("xy", self._signs))
        keep = is_pareto(x, y)
        self._front = {name: values[keep] for name, values in joined.items()}
        new = np.stack([np.asarray(columns[self.axes[key]], float) for key in "xy"], axis=-1)
        step = max(1, len(new) * (len(self._cloud) + 1) // _CLOUD)
        self._cloud.append(new[::step])
        for name in ("speedup_vs_bf16_ar", "tokens_per_s"):
            values = np.asarray(columns[name], float)
            if len(values) and not np.all(np.isnan(values)):
                i = int(np.nanargmax(values))
                if name not in self.best or values[i] > self.best[name][name]:
                    self.best[name] = {key: _plain(column[i]) for key, column in columns.items()}

    def cloud(self) -> np.ndarray:
        """Some of the points that fit, evenly taken: "point 2", x and y."""
        return np.concatenate(self._cloud) if self._cloud else np.zeros((0, 2))

    def rows(self) -> list[dict[str, Any]]:
        """The front's points, by x."""
        order = np.argsort(self._front[self.axes["x"]]) if self._front else []
        return [{name: _plain(values[i]) for name, values in self._front.items()} for i in order]


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
