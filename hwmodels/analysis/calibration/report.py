"""Report of a calibration, to read: numbers with their errors, errors of held-out rows, and what simpler models reach."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["M_RANGES", "CalibrationReport", "ErrorSummary", "error_by_range", "figure", "relative_error"]

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
