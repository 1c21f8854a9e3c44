"""Report of a calibration, to read: numbers with their errors, errors of held-out rows, and what simpler models reach."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "COVERAGE",
    "M_RANGES",
    "CalibrationReport",
    "ErrorSummary",
    "covered_left_out",
    "error_by_range",
    "figure",
    "half_of_groups",
    "half_of_shapes",
    "interval_record",
    "largest_held_out",
    "relative_error",
    "shape_names",
    "some_of",
]

# Which measured rows to fit to, the others being held out: whole shapes of weight matrices, never single rows.


def half_of_shapes(
    k: npt.ArrayLike, n: npt.ArrayLike, *, seed: int = 0, complement: bool = False
) -> npt.NDArray[np.bool_]:
    """Rows of half of the (k, n) shapes, drawn by a hash that is the same on every machine.

    Args:
        k, n: "row", sides of each row's weight matrix.
        seed: which of the splits.
        complement: the other half.
    Returns:
        "row", true where the row is fitted to; half of the shapes, rounded down (up in the complement).
    """
    return half_of_groups(_names(k, n), seed=seed, complement=complement)


def half_of_groups(labels: Sequence[str], *, seed: int = 0, complement: bool = False) -> npt.NDArray[np.bool_]:
    """Rows of half of the groups, as `half_of_shapes` draws shapes.

    Args:
        labels: "row", name of each row's group.
        seed, complement: as of `half_of_shapes`.
    """
    unique = sorted(set(labels), key=lambda label: hashlib.sha256(f"{seed}:{label}".encode()).hexdigest())
    chosen = set(unique[: len(unique) // 2])
    return np.array([(label in chosen) != complement for label in labels], bool)


def largest_held_out(k: npt.ArrayLike, n: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """All rows but those of the largest k and of the largest n: does the model reach beyond what it was fitted to?"""
    k, n = np.asarray(k), np.asarray(n)
    return (k < k.max()) & (n < n.max())


def some_of(rows: npt.NDArray[np.bool_], count: int) -> npt.NDArray[np.bool_]:
    """At most `count` of the rows, the same on every machine: "row"."""
    indices = np.flatnonzero(rows)
    if len(indices) <= count:
        return rows
    chosen = np.zeros_like(rows)
    chosen[np.random.default_rng(0).choice(indices, count, replace=False)] = True
    return chosen


def shape_names(table: Any) -> list[str]:
    """Name of the weight matrix of each row of a table with k and n."""
    return _names(table.k, table.n)


def _names(k: npt.ArrayLike, n: npt.ArrayLike) -> list[str]:
    shapes = zip(np.asarray(k).astype(np.int64).tolist(), np.asarray(n).astype(np.int64).tolist())
    return [f"{one}x{other}" for one, other in shapes]


#: Ranges of the number of tokens by which errors are listed, ends included.
M_RANGES = ((1, 1), (2, 16), (17, 64), (65, 256), (257, 1024), (1025, math.inf))


@dataclasses.dataclass(frozen=True)
class ErrorSummary:
    """Relative errors |predicted / measured - 1| of some rows."""

    rows: int
    mean: float
    median: float
    largest: float


def relative_error(predicted_s: npt.ArrayLike, measured_s: npt.ArrayLike) -> ErrorSummary:
    """Errors of all rows given; NaN where there are none."""
    error = np.abs(np.asarray(predicted_s, np.float64) / np.asarray(measured_s, np.float64) - 1)
    if error.size == 0:
        return ErrorSummary(0, math.nan, math.nan, math.nan)
    return ErrorSummary(error.size, float(error.mean()), float(np.median(error)), float(error.max()))


def error_by_range(m: npt.ArrayLike, predicted_s: npt.ArrayLike, measured_s: npt.ArrayLike) -> dict[str, ErrorSummary]:
    """Errors by number of tokens, over those of `M_RANGES` that have rows."""
    m, predicted, measured = (np.asarray(values, np.float64) for values in (m, predicted_s, measured_s))
    inside = {_range_name(low, high): (m >= low) & (m <= high) for low, high in M_RANGES}
    return {name: relative_error(predicted[rows], measured[rows]) for name, rows in inside.items() if rows.any()}


@dataclasses.dataclass(frozen=True)
class CalibrationReport:
    """A calibration's result.

    Attributes:
        title: what was fitted, to which table.
        estimates, standard_errors: name -> number; an error is NaN where the estimate lies on a bound.
        errors: split ("train", "held out", ...) -> errors of the model.
        by_range: range of tokens -> errors of held-out rows.
        baselines: simpler model -> errors of the same held-out rows.
        notes: sentences on what was left out.
    """

    title: str
    estimates: Mapping[str, float]
    standard_errors: Mapping[str, float]
    errors: Mapping[str, ErrorSummary]
    by_range: Mapping[str, ErrorSummary]
    baselines: Mapping[str, ErrorSummary]
    notes: Sequence[str] = ()

    def to_markdown(self) -> str:
        """Tables of the numbers, of the errors, and of the errors by range."""
        known = lambda name: self.standard_errors.get(name, math.nan)
        numbers = [
            (name, f"{value:.4g}", "at a bound" if math.isnan(known(name)) else f"{known(name):.2g}")
            for name, value in self.estimates.items()
        ]
        lines = [f"## {self.title}", "", *_table(("number", "estimate", "standard error"), numbers), ""]
        groups = ((self.errors, ""), (self.baselines, ", held out"), (self.by_range, ", held out"))
        labels = ("model, {}", "{}", "model, m {}")
        rows = [
            (label.format(name) + more, str(e.rows), f"{e.mean:.2%}", f"{e.median:.2%}", f"{e.largest:.0%}")
            for (errors, more), label in zip(groups, labels)
            for name, e in errors.items()
        ]
        lines += [*_table(("rows of", "rows", "mean error", "median", "largest"), rows), ""]
        return "\n".join([*lines, *self.notes, ""])

    def to_dict(self) -> dict[str, Any]:
        """The same as nested dictionaries of text and numbers, for JSON or TOML; errors on a bound are left out."""
        plain = lambda group: {name: dataclasses.asdict(errors) for name, errors in group.items()}
        return {
            "title": self.title,
            "estimates": dict(self.estimates),
            "standard_errors": {n: e for n, e in self.standard_errors.items() if not math.isnan(e)},
            "errors": plain(self.errors),
            "by_range": plain(self.by_range),
            "baselines": plain(self.baselines),
            "notes": list(self.notes),
        }


def figure(measured_s: npt.ArrayLike, predicted_s: npt.ArrayLike, held_out: npt.ArrayLike, *, title: str = "") -> Any:
    """A matplotlib figure of predicted against measured times, fitted and held-out rows apart; the caller saves it."""
    from matplotlib.figure import Figure

    measured, predicted = np.asarray(measured_s, np.float64), np.asarray(predicted_s, np.float64)
    held_out = np.asarray(held_out, bool)
    # Without pyplot: no global state, no display.
    drawn = Figure(figsize=(5, 5), layout="constrained")
    axis = drawn.add_subplot()
    for rows, name, colour in ((~held_out, "fitted", "0.7"), (held_out, "held out", "tab:blue")):
        axis.loglog(1e6 * measured[rows], 1e6 * predicted[rows], ".", markersize=2, color=colour, label=name)
    ends = 1e6 * np.array([measured.min(), measured.max()])
    axis.loglog(ends, ends, "k-", linewidth=0.8)
    axis.set(xlabel="measured, µs", ylabel="predicted, µs", title=title)
    axis.legend(markerscale=4)
    return drawn


def _range_name(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g} and more" if math.isinf(high) else f"{low:g} to {high:g}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = ["---", *("---:" for _ in header[1:])]
    return ["| " + " | ".join(cells) + " |" for cells in (header, rule, *rows)]


# Intervals of predicted times from the errors of rows that were held out of the fit.

#: Probability that an interval is to cover a new measurement with; of fewer than 19 rows (n - 1) / (n + 1), which is less.
COVERAGE = 0.90

_ENDS = (0.5 - COVERAGE / 2, 0.5 + COVERAGE / 2)


def interval_record(
    predicted_s: npt.ArrayLike,
    measured_s: npt.ArrayLike,
    held_out: npt.ArrayLike,
    groups: Sequence[str],
    *,
    few_groups: bool = False,
) -> dict[str, Any]:
    """Ends of the interval as factors of a predicted time, and the share of rows that those of the other half's groups cover.

    Args:
        predicted_s, measured_s: "row", > 0.
        held_out: "row", true where the fit behind the prediction has not seen the row.
        groups: "row", names of rows that err together, as those of one shape.
        few_groups: count what `covered_left_out` counts, too.
    """
    used = np.asarray(held_out, bool)
    logs = np.log(np.asarray(measured_s, np.float64)[used] / np.asarray(predicted_s, np.float64)[used])
    names = [name for name, one in zip(groups, used) if one]
    first = half_of_groups(names, seed=1)
    covered = []
    for half in (first, ~first):
        if half.any() and (~half).any():
            covered.append(float(np.mean(_inside(logs, half)[~half])))
    low, high = np.exp(_quantiles(logs))
    record: dict[str, Any] = {"coverage": COVERAGE, "low": float(low), "high": float(high), "covered": covered}
    return record | ({"covered_left_out": covered_left_out(logs, names)} if few_groups else {})


def covered_left_out(logs: npt.NDArray[np.float64], groups: Sequence[str]) -> float:
    """Share of the rows that lie between the quantiles of all rows of other groups, each group being left out in turn.

    Args:
        logs: "row", log(measured / predicted) of rows held out of the fit.
        groups: "row", as of `interval_record`; two or more.
    """
    names = np.asarray(groups)
    return float(np.sum([np.sum(_inside(logs, names != name)[names == name]) for name in set(groups)]) / len(logs))


def _inside(logs: npt.NDArray[np.float64], of: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which rows, "row", lie between the quantiles of some of them."""
    low, high = _quantiles(logs[of])
    return (logs >= low) & (logs <= high)


def _quantiles(logs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Ends that a new row lies between; those beyond the lowest or highest of few rows are this row."""
    return np.quantile(logs, _ENDS, method="weibull")
