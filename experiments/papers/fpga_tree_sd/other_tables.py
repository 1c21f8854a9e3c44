"""Tables II and III, the averages of Fig. 4 and of the prose: what the fitted model says with what the text adds.

* Table II (tasks): the tasks' AAT curves are not printed. Each gets one number, the share by which it gains more tokens than
  the fitted law, from its best speedup; its best length and its speedup with one length for all are then predictions.
* Table III (trees): the text prints by how many tokens the other trees fall short on average. Taken off the law everywhere,
  with the passes that these trees need, that predicts their lengths and throughputs: nothing is fitted.
* Fig. 4 (models): LongSpec's averages with sizes and memory traffic of the catalog's models and Llama-3.1-8B's tokens per
  cycle. EAGLE-3's are not covered: its tokens per cycle and contexts are not printed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from scipy.optimize import root_scalar

from experiments.papers.fpga_tree_sd.boards import board_table, naive_lengths, predict
from experiments.papers.fpga_tree_sd.calibration import Fit, fit
from experiments.papers.fpga_tree_sd.model import LENGTHS, ORIGINAL_DEPTH, at_lengths, board_times, cycle, depth
from experiments.papers.fpga_tree_sd.printed import CONTEXTS, cells, claim, table_one
from experiments.reproduce.paper import Modelled, as_printed
from experiments.reproduce.printed import PrintedCell
from hwmodels.speculation.verification_length import unified_length

__all__ = ["MODELS", "averages", "claims", "solve_tasks", "tasks", "tree_searches"]

#: Context of Table II: Gov-Report's cells are those of Table I at 128 tokens.
TASK_CONTEXT = 128

TREE_CONTEXT = 1024

#: Of Table II, the task whose cells are also in Table I.
_TABLE_ONE_TASK = "Gov-Report"

#: Models of Fig. 4 by their names in the catalog.
MODELS = {
    "Vicuna-v1.5-7B": "vicuna-7b",
    "Vicuna-v1.5-13B": "vicuna-13b",
    "LongChat-7B": "longchat-7b",
    "LongChat-13B": "longchat-13b",
}


class Tasks(NamedTuple):
    """Table II as the model has it."""

    gains: dict[str, float]  # share by which a task gains more tokens than the law, fitted to its best speedup
    length: dict[str, float]
    speedup: dict[str, float]
    unified_speedup: dict[str, float]
    unified_length: float


@functools.cache
def solve_tasks(solved: Fit | None = None) -> Tasks:
    """A gain for each task, its best length, and one length for all; by the model's fit unless another is given."""
    solved = solved or fit()
    printed = {(cell["benchmark"], cell.metric): cell.value for cell in cells("table2_task_consistency")}
    names = list(dict.fromkeys(benchmark for benchmark, _ in printed))
    times = board_times("V80", (TASK_CONTEXT,))
    run = cycle(times, solved.fitted, solved.choices)
    cycle_s, step_s = (run.verify_s + run.draft_s)[0], float(run.autoregressive_s[0])
    law = run.accepted[0]
    speedup = lambda gain: float(np.max((1 + gain * (law - 1)) / cycle_s) * step_s)
    miss = lambda gain, task: speedup(gain) - printed[task, "best_speedup"]
    gains = [root_scalar(miss, args=(task,), bracket=(0.1, 3.0)).root for task in names]
    curves = np.array([1 + gain * (law - 1) for gain in gains])
    found = jax.jit(unified_length)(LENGTHS, curves, cycle_s=cycle_s, autoregressive_s=step_s)
    by_task = lambda values: {name: float(value) for name, value in zip(names, np.asarray(values), strict=True)}
    return Tasks(
        dict(zip(names, gains, strict=True)),
        by_task(found.own.length),
        by_task(found.own.speedup),
        by_task(found.speedup),
        float(found.unified.length),
    )


def tasks(solved: Fit) -> Callable[[PrintedCell], Modelled]:
    """Table II, all 15 cells."""
    found = solve_tasks(solved)

    def model(cell: PrintedCell) -> Modelled:
        task = cell["benchmark"]
        values = {
            "best_verification_length": found.length,
            "best_speedup": found.speedup,
            "unified_speedup": found.unified_speedup,
        }
        # Gov-Report's cells are Table I's. Where the unified length is the task's own, its gain was fitted to that speedup.
        same = cell.metric == "unified_speedup" and found.length[task] == found.unified_length
        fitted_to = cell.metric == "best_speedup" or same or task == _TABLE_ONE_TASK
        return Modelled(values[cell.metric][task], "calibrated" if fitted_to else "predicted")

    return model


def tree_searches(solved: Fit) -> Callable[[PrintedCell], Modelled]:
    """Table III, all 11 cells."""
    times, fitted, choices = board_times("V80", (TREE_CONTEXT,)), solved.fitted, solved.choices
    passes = {
        "Tree Search": depth(LENGTHS),
        "Width": depth(LENGTHS, "filled"),
        # A node at each level in turn: five levels from five nodes on.
        "Depth": np.minimum(LENGTHS - 1.0, ORIGINAL_DEPTH),
    }
    short = {"Tree Search": 0.0, "Width": claim("FPG016"), "Depth": claim("FPG017")}
    found = {}
    for method, count in passes.items():
        run = cycle(times, fitted, choices, passes=count)
        # No path is longer than the tree is deep, and the first token is certain.
        accepted = np.clip(run.accepted - short[method], 1.0, 1.0 + np.ceil(count))
        found[method] = predict(times, fitted, choices, run=run._replace(accepted=accepted))
    autoregressive = float(found["Width"].autoregressive[0])

    def model(cell: PrintedCell) -> Modelled:
        method = cell["method"]
        if method == "AR":
            return Modelled(autoregressive, "predicted") if cell.metric == "performance" else as_printed(cell)
        values = {
            "verification_length": found[method].best_length,
            "performance": found[method].best_performance,
            "speedup_over_ar": found[method].speedup,
        }
        note = f"{short[method]:.2f} tokens below the law, as printed" if short[method] else ""
        return Modelled(float(values[cell.metric][0]), "predicted", note)

    return model


def averages(solved: Fit) -> Callable[[PrintedCell], Modelled | None]:
    """The averages of Fig. 4: LongSpec's four of six."""

    def model(cell: PrintedCell) -> Modelled | None:
        if cell["model"] not in MODELS or cell["sd_algorithm"] != "LongSpec":
            return None
        times = board_times("V80", CONTEXTS, architecture_name=MODELS[cell["model"]])
        speedup = predict(times, solved.fitted, solved.choices).speedup.mean()
        return Modelled(float(speedup), "predicted", "with Llama-3.1-8B's tokens per cycle")

    return model


def claims(solved: Fit) -> Callable[[PrintedCell], Modelled | None]:
    """Averages of Table I in the prose, and of gains over the other sets on other models: five numbers of the prose."""
    printed, found = table_one(), board_table("V80", CONTEXTS, solved)
    gains = found.best_performance[:, None] / at_lengths(found.performance, printed.lengths)
    own = printed.performance[:, 2:] / printed.performance
    averaged = {
        "FPG003": (found.speedup.mean(), (printed.performance[:, 2] / printed.autoregressive).mean()),
        "FPG004": (gains[:, 0].mean(), own[:, 0].mean()),
        "FPG005": (gains[:, 1].mean(), own[:, 1].mean()),
    }
    over: dict[str, list[np.ndarray]] = {"FPG009": [], "FPG010": []}
    law_naive = naive_lengths(solved).astype(np.int64)
    for architecture in MODELS.values():
        done = predict(board_times("V80", CONTEXTS, architecture_name=architecture), solved.fitted, solved.choices)
        over["FPG009"].append(done.best_performance / done.performance[:, -1])
        over["FPG010"].append(done.best_performance / at_lengths(done.performance, law_naive))

    def model(cell: PrintedCell) -> Modelled | None:
        claim_id = cell["claim_id"]
        if claim_id in averaged:
            value, recomputed = averaged[claim_id]
            return Modelled(value, "calibrated", f"Table I's own cells average {recomputed:.2f}")
        if claim_id in over:
            note = "with Llama-3.1-8B's tokens per cycle and its naive lengths by the law"
            return Modelled(float(np.mean(over[claim_id])), "predicted", note)
        return None

    return model
