"""How near predictions came: errors, order, and whether the best way was picked, beside the simplest predictors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from experiments.field.summary import errors_of

__all__ = ["PREDICTORS", "summarise"]

#: A way that is picked is right if it loses no more than this against the fastest.
CLOSE = 0.05

#: Name -> speedup that it tells of a row.
PREDICTORS: dict[str, Callable[[dict[str, Any]], float]] = {
    "this model": lambda row: row["predicted_speedup"],
    "tokens per cycle alone": lambda row: row["gain_per_turn"],
}
_CONSTANT = "a constant, the median of the answers"


def summarise(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Errors over all rows, by batch and altogether.

    Args:
        rows: as `experiments.host_speedups.run` makes them.
    """
    parts = {"all": rows} | {
        f"batch {batch}": [row for row in rows if row["batch"] == batch] for batch in _batches(rows)
    }
    return {
        "rows": len(rows),
        "largest_noise": max((row["noise"] for row in rows), default=None),
        "parts": {name: _part(part) for name, part in parts.items() if part},
        "picked": {
            f"batch {batch}": _picked([row for row in rows if row["batch"] == batch]) for batch in _batches(rows)
        },
    }


def _batches(rows: Sequence[dict[str, Any]]) -> list[int]:
    return sorted({row["batch"] for row in rows})


def _part(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    measured = [row["measured_speedup"]["median"] for row in rows]
    predictors = PREDICTORS | {_CONSTANT: lambda row: float(np.median(measured))}
    found: dict[str, Any] = {}
    for name, rule in predictors.items():
        told = [rule(row) for row in rows]
        order = (
            None
            if len(set(told)) < 2 or len(set(measured)) < 2
            else float(np.corrcoef(rankdata(told), rankdata(measured))[0, 1])
        )
        found[name] = errors_of(told, measured) | {"spearman": order}
    clocks = {
        "cycle": ("predicted_cycle_s", "measured_cycle_s"),
        "verification": ("predicted_verify_s", "measured_verify_s"),
        "step without speculation": ("predicted_ar_s", "measured_ar_s"),
    }
    times = {
        name: errors_of([row[told] for row in rows], [row[clock]["median"] for row in rows])
        for name, (told, clock) in clocks.items()
    }
    ratio = errors_of(
        [row["predicted_cycle_s"] / row["predicted_ar_s"] for row in rows],
        [row["measured_cycle_over_step"]["median"] for row in rows],
    )
    return {"speedup": found, "times": times | {"cycle over step": ratio}, "covered": _covered(rows)}


def _covered(rows: Sequence[dict[str, Any]]) -> float | None:
    """Share of measured speedups within the interval of the predicted one; None where the device's file has no errors."""
    inside = []
    for row in rows:
        interval = row.get("predicted_speedup_interval")  # runs of earlier versions have none
        if interval is None:
            return None
        inside.append(interval[0] <= row["measured_speedup"]["median"] <= interval[1])
    return float(np.mean(inside))


def _picked(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What each predictor picks among the ways and no speculation, and the share of the fastest measured speed that it has."""
    measured = [1.0, *(row["measured_speedup"]["median"] for row in rows)]
    names = ["no speculation", *(row["id"] for row in rows)]
    found: dict[str, Any] = {"fastest": names[int(np.argmax(measured))], "fastest_speedup": max(measured)}
    for name, rule in PREDICTORS.items():
        place = int(np.argmax([1.0, *map(rule, rows)]))
        share = measured[place] / max(measured)
        found[name] = {"way": names[place], "share_of_fastest": share, "right": share >= 1.0 - CLOSE}
    return found
