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
        rows: as `experiments.host_speedups.run` makes them. None of their numbers is a time that is lost in noise, or a ratio
            over one: no error counts it.
    Returns:
        Also how many rows have no measured speedup, under "lost"; the largest noise is None where one of a row is not known.
    """
    noise = [row["noise"] for row in rows]
    parts = {"all": rows} | {
        f"batch {batch}": [row for row in rows if row["batch"] == batch] for batch in _batches(rows)
    }
    return {
        "rows": len(rows),
        "lost": sum(row["measured_speedup"]["median"] is None for row in rows),
        "largest_noise": None if None in noise else max(noise, default=None),
        "parts": {name: _part(part) for name, part in parts.items() if part},
        "picked": {
            f"batch {batch}": _picked([row for row in rows if row["batch"] == batch]) for batch in _batches(rows)
        },
    }


def _batches(rows: Sequence[dict[str, Any]]) -> list[int]:
    return sorted({row["batch"] for row in rows})


def _part(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    clocked = [row for row in rows if row["measured_speedup"]["median"] is not None]
    measured = [row["measured_speedup"]["median"] for row in clocked]
    predictors = PREDICTORS | {_CONSTANT: lambda row: float(np.median(measured))}
    found: dict[str, Any] = {}
    for name, rule in predictors.items():
        told = [rule(row) for row in clocked]
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
        name: _errors([(row[told], row[clock]["median"]) for row in rows]) for name, (told, clock) in clocks.items()
    }
    ratio = _errors(
        [(row["predicted_cycle_s"] / row["predicted_ar_s"], row["measured_cycle_over_step"]["median"]) for row in rows]
    )
    return {"speedup": found, "times": times | {"cycle over step": ratio}, "covered": _covered(rows)}


def _errors(pairs: Sequence[tuple[float, float | None]]) -> dict[str, Any]:
    """Of predicted and measured numbers, those that are measured."""
    known = [(told, clock) for told, clock in pairs if clock is not None]
    return errors_of([told for told, _ in known], [clock for _, clock in known])


def _covered(rows: Sequence[dict[str, Any]]) -> float | None:
    """Share of known measured speedups within the interval of the predicted one.

    None where the device's file has no errors, or no speedup is known.
    """
    inside = []
    for row in rows:
        interval = row.get("predicted_speedup_interval")  # runs of earlier versions have none
        if interval is None:
            return None
        if (median := row["measured_speedup"]["median"]) is not None:
            inside.append(interval[0] <= median <= interval[1])
    return float(np.mean(inside)) if inside else None


def _picked(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What each predictor picks among the ways and no speculation, and the share of the fastest known speed that it has.

    The share of a way without a known speed is None, and so is whether it was right.
    """
    measured = [1.0, *(row["measured_speedup"]["median"] for row in rows)]
    names = ["no speculation", *(row["id"] for row in rows)]
    fastest = max(speedup for speedup in measured if speedup is not None)
    found: dict[str, Any] = {"fastest": names[measured.index(fastest)], "fastest_speedup": fastest}
    for name, rule in PREDICTORS.items():
        place = int(np.argmax([1.0, *map(rule, rows)]))
        speedup = measured[place]
        share = None if speedup is None else speedup / fastest
        right = None if share is None else share >= 1.0 - CLOSE
        found[name] = {"way": names[place], "share_of_fastest": share, "right": right}
    return found
