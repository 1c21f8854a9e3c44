"""What a lookup adds to a step beside its longer verification, from the shares of time that Fig. 4 prints.

A step without a draft and a cycle of a lookup both take their verification's seconds, which are priced here, over its printed
share; what is not verification is the host's: drafting, sampling, overhead. The difference grows with the sequences.
"""

from __future__ import annotations

import csv

import numpy as np

from experiments.papers.performance_or_illusion.model import FOLDER, LOOKUP, PAPER, case_of, cycle_costs
from experiments.papers.performance_or_illusion.tables import DRAFTED, LARGE, SAME_SHAPES, TIME_CONTEXT

__all__ = ["sequence_seconds"]

_BATCHES = (1, 64, 128, 512)


def sequence_seconds() -> float:
    """Seconds per cycle and sequence of a lookup: least squares of what is missing of a step, in units of the step."""
    with (FOLDER / "data" / f"{PAPER}_fig4.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["stage"] == "verification"]
    shares = {(row["model"], row["drafter"], int(row["batch"])): float(row["value"]) / 100.0 for row in rows}
    spent, missing = [], []
    for model, (devices, _) in LARGE.items():
        case = case_of(SAME_SHAPES.get(model, model), LOOKUP, devices)
        cycles = cycle_costs(case, _BATCHES, (TIME_CONTEXT,), (DRAFTED,))
        steps_s, verify_s = cycles.baselines.stored.cost.total_s[:, 0, 0], cycles.verify_s[:, 0, 0]
        for place, batch in enumerate(_BATCHES):
            plain, drafted = shares[model, "none", batch], shares[model, LOOKUP, batch]
            step_s = float(steps_s[place]) / plain
            added_s = float(verify_s[place]) * (1.0 / drafted - 1.0) - step_s * (1.0 - plain)
            spent.append(batch / step_s)
            missing.append(added_s / step_s)
    return float(np.dot(spent, missing) / np.dot(spent, spent))
