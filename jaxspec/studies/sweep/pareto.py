"""Points that no other point beats, in two or three results and within each group, gathered chunk by chunk."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from jaxspec.errors import InputError, hint

__all__ = ["ParetoFront", "is_pareto"]

#: Points drawn beside the front.
_CLOUD = 4000

#: Points that all others are compared with first, in three results.
_SIEVE = 48

#: Fronts of more points are kept whole in the file and evenly thinned in a result.
_ROWS = 2000

#: Groups beyond this number are a slip: each has a front of its own.
_GROUPS = 256


def is_pareto(x: np.ndarray, y: np.ndarray, z: np.ndarray | None = None) -> np.ndarray:
    """Which points no other point beats, less being better in all; of equal points the first.

    Args:
        x, y, z: "point"; None: there are two.
    Returns:
        bool "point"; never a point with a NaN.
    """
    return _of_two(x, y) if z is None else _of_three(x, y, z)


def _of_two(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    order = np.lexsort((y, x))
    order = order[~(np.isnan(x) | np.isnan(y))[order]]
    sorted_y = y[order]
    before = np.minimum.accumulate(np.concatenate([[np.inf], sorted_y[:-1]]))
    keep = np.zeros(len(x), bool)
    keep[order[sorted_y < before]] = True
    return keep


def _of_three(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """By falling x, a staircase in y and z holds what came before; most points fall to a few good ones first.

    Source: Kung, Luccio, Preparata 1975, doi:10.1145/321906.321910.
    """
    keep = np.zeros(len(x), bool)
    left = np.flatnonzero(~(np.isnan(x) | np.isnan(y) | np.isnan(z)))
    if not left.size:
        return keep
    points = np.stack([x[left], y[left], z[left]], axis=1)
    if len(left) > _SIEVE:
        ranks = np.argsort(np.argsort(points, axis=0, kind="stable"), axis=0, kind="stable").sum(axis=1)
        alive = np.ones(len(points), bool)
        for i in np.argsort(ranks, kind="stable")[:_SIEVE]:
            one = points[i]
            alive &= ~((points >= one).all(axis=1) & (points > one).any(axis=1))
        left, points = left[alive], points[alive]
    order = np.lexsort((left, points[:, 2], points[:, 1], points[:, 0]))
    # The staircase: y rises and z falls, none beaten by another.
    ys: list[float] = []
    zs: list[float] = []
    for i in order.tolist():
        _, b, c = points[i].tolist()
        place = bisect.bisect_right(ys, b)
        if place and zs[place - 1] <= c:
            continue
        keep[left[i]] = True
        start = bisect.bisect_left(ys, b)
        end = start
        while end < len(ys) and zs[end] >= c:
            end += 1
        ys[start:end], zs[start:end] = [b], [c]
    return keep


class ParetoFront:
    """The front of a sweep among the points that fit: two or three columns, each better when "low" or "high".

    Attributes:
        axes: the columns and which way each is better; `z` is None where there are two.
        groups: columns by whose values the points are divided, each group with a front of its own.
        seen, fitting: numbers of points so far, all and those that fit their memory.
        unknown: column of the front -> fitting points without a number of it, which are on no front.
        best: the point with the highest value of each result that is looked for.
    """

    def __init__(
        self,
        x: str,
        y: str,
        better_x: str = "low",
        better_y: str = "high",
        z: str | None = None,
        better_z: str = "low",
        group: Sequence[str] | None = None,
        facets: str | None = None,
    ):
        self.axes = {"x": x, "y": y, "better_x": better_x, "better_y": better_y, "z": z, "better_z": better_z}
        self.group, self.facets = list(group or ()), facets
        divided: list[str] = [*self.group, *([facets] if facets else [])]
        self.groups = list(dict.fromkeys(divided))
        self._keys = [key for key in "xyz" if self.axes[key] is not None]
        self._signs = [1.0 if self.axes[f"better_{key}"] == "low" else -1.0 for key in self._keys]
        self._fronts: dict[tuple, dict[str, np.ndarray]] = {}
        self._cloud: list[dict[str, np.ndarray]] = []
        self.seen = 0
        self.fitting = 0
        self.unknown = dict.fromkeys(self.columns, 0)
        self.best: dict[str, Any] = {}

    @property
    def columns(self) -> list[str]:
        """Names of the two or three columns."""
        return [str(self.axes[key]) for key in self._keys]

    def check_columns(self, allowed: Iterable[str], axes: Iterable[str]) -> None:
        """Raises InputError if a column of the front is no column of numbers, or a group's no axis."""
        names = ("architecture", "device")
        numbers = [name for name in allowed if name not in names]
        for key in self._keys:
            if self.axes[key] not in numbers:
                raise InputError(f"pareto.{key} is {self.axes[key]!r}{hint(self.axes[key], numbers)}")
        if len(set(self.columns)) < len(self.columns):
            twice = next(name for name in self.columns if self.columns.count(name) > 1)
            raise InputError(f"pareto has {twice!r} on two axes; a front needs columns that differ")
        divided = [*names, *axes]
        for key, given in (("group", self.group), ("facets", [self.facets] if self.facets else [])):
            for name in given:
                if name not in divided:
                    raise InputError(f"pareto.{key} has {name!r}{hint(name, divided)}")

    def add(self, columns: dict[str, np.ndarray]) -> None:
        """Take in more points; those that do not fit their memory are counted and left out.

        Raises:
            InputError: more groups than can be meant.
        """
        new_count = len(columns["fits"])
        self.seen += new_count
        fits = np.asarray(columns["fits"], bool)
        columns = {name: np.asarray(values)[fits] for name, values in columns.items()}
        self.fitting += int(fits.sum())
        for name in self.columns:
            self.unknown[name] += int(np.isnan(np.asarray(columns[name], float)).sum())
        for key, rows in self._divided(columns):
            self._join(key, columns if rows is None else {name: values[rows] for name, values in columns.items()})
        drawn = dict.fromkeys([*self.columns, *self.groups])
        step = max(1, len(columns["fits"]) * (len(self._cloud) + 1) // _CLOUD)
        self._cloud.append({name: columns[name][::step] for name in drawn})
        for name in ("speedup_vs_bf16_ar", "tokens_per_s"):
            values = np.asarray(columns[name], float)
            if len(values) and not np.all(np.isnan(values)):
                i = int(np.nanargmax(values))
                if name not in self.best or values[i] > self.best[name][name]:
                    self.best[name] = {key: _plain(column[i]) for key, column in columns.items()}

    def _divided(self, columns: dict[str, np.ndarray]) -> list[tuple[tuple, np.ndarray | None]]:
        """Rows of each group that occurs; None: all rows."""
        if not self.groups:
            return [((), None)]
        codes, values = np.zeros(len(columns["fits"]), np.int64), []
        for name in self.groups:
            distinct, code = np.unique(columns[name], return_inverse=True)
            codes = codes * max(len(distinct), 1) + code
            values.append(distinct)
        groups = []
        for code in np.unique(codes):
            rows = np.flatnonzero(codes == code)
            groups.append((tuple(_plain(columns[name][rows[0]]) for name in self.groups), rows))
        if len(self._fronts.keys() | {key for key, _ in groups}) > _GROUPS:
            raise InputError(
                f"pareto.group and facets {', '.join(self.groups)} divide the points into more than {_GROUPS} groups; take "
                "axes of fewer values"
            )
        return groups

    def _join(self, key: tuple, columns: dict[str, np.ndarray]) -> None:
        front = self._fronts.get(key)
        joined = {n: values if front is None else np.concatenate([front[n], values]) for n, values in columns.items()}
        signed = [s * np.asarray(joined[n], float) for s, n in zip(self._signs, self.columns, strict=True)]
        keep = is_pareto(*signed)
        self._fronts[key] = {name: values[keep] for name, values in joined.items()}

    def cloud(self) -> dict[str, np.ndarray]:
        """Some of the points that fit, evenly taken: columns of the front and of groups by name."""
        names = dict.fromkeys([*self.columns, *self.groups])
        return {n: np.concatenate([c[n] for c in self._cloud]) if self._cloud else np.zeros(0) for n in names}

    @property
    def count(self) -> int:
        """Number of points of all fronts."""
        return sum(len(front["fits"]) for front in self._fronts.values())

    def rows(self) -> list[dict[str, Any]]:
        """The fronts' points, group by group, by x; evenly thinned where they are very many."""
        x, rows = str(self.axes["x"]), []
        step = -(-self.count // _ROWS)
        for key in sorted(self._fronts, key=lambda key: tuple(map(_order, key))):
            front = self._fronts[key]
            order = np.argsort(front[x])
            taken = order[:: max(step, 1)]
            rows += [{name: _plain(values[i]) for name, values in front.items()} for i in taken]
        return rows


def _order(value: Any) -> tuple[int, Any]:
    """Numbers before texts."""
    return (1, value) if isinstance(value, str) else (0, value)


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
