"""Models of the figures' marks, and the simplest predictors that they have to beat."""

from __future__ import annotations

import csv
from collections.abc import Callable

import numpy as np

from experiments.papers.performance_or_illusion.model import (
    FOLDER,
    HEAD,
    LOOKUP,
    PAPER,
    Solved,
    case_of,
    cycle_costs,
    requests,
    speedup,
)
from experiments.reproduce.paper import ComparedCell, Modelled, PrintedCell, constant, each

__all__ = [
    "DRAFTED",
    "LARGE",
    "SAME_SHAPES",
    "SHARES",
    "SPEEDUPS",
    "TIME_CONTEXT",
    "fig1",
    "fig4",
    "fig10",
    "sequence_seconds",
    "step_shares",
]


def _traced(drafter: str) -> str:
    """What the accepted lengths call a drafter."""
    return "eagle" if drafter == HEAD else drafter


def _tokens_alone(row: ComparedCell) -> float | None:
    """Tokens per cycle, as if a cycle took as long as a step."""
    at = row["conditions"]
    rows = requests()["dataset"] == at["dataset"]
    drafter = _traced(at["drafter"])
    tokens, cycles = (requests()[name][rows] for name in (f"{drafter}_tokens", f"{drafter}_{at['policy']}"))
    return float(tokens.sum() / cycles.sum())


SPEEDUPS = {
    "tokens per cycle": each(_tokens_alone),
    "best constant by drafter and length": constant("drafter", "policy"),
    "best constant by drafter and batch": constant("drafter", "batch"),
}


def fig10(solved: Solved) -> Callable[[PrintedCell], Modelled]:
    """Simulated speedups of Figs. 10 and 12, which are means of requests' rates."""

    def model(cell: PrintedCell) -> Modelled:
        at = cell["dataset"], cell["drafter"], cell["policy"], int(cell["batch"])
        return Modelled(
            speedup(solved.ours, *at)[0], "predicted", f"by the simulator's times {speedup(solved.theirs, *at)[0]:.2f}"
        )

    return model


def fig1(solved: Solved) -> Callable[[PrintedCell], Modelled | None]:
    """Measured speedups, ratios of all tokens per second; acceptance is known of the traced head and of the lookup alone."""

    def model(cell: PrintedCell) -> Modelled | None:
        if cell["model"] != "llama-3.1-8b" or cell["drafter"] not in ("ngram", HEAD):
            return None
        at = cell["dataset"], _traced(cell["drafter"]), cell["policy"], int(cell["batch"])
        return Modelled(speedup(solved.ours, *at)[1], "predicted")

    return model


#: Of Fig. 4: devices that share a network, and the network that drafts for it.
LARGE = {"llama-3.1-8b": (1, ""), "llama-3-70b": (4, ""), "qwen3-8b": (1, "qwen3-0.6b")}

#: The catalog's name of a network of the same shapes.
SAME_SHAPES = {"llama-3-70b": "llama-3.1-70b"}

#: Tokens in the cache while Fig. 4 was timed: not printed. Of InstructCoder, which the simulator's times were fitted to.
TIME_CONTEXT = float(np.mean(requests()["prompt_tokens"][requests()["dataset"] == "instructcoder"]))

SHARES = {"best constant by drafter": constant("drafter"), "best constant by batch": constant("batch")}

#: Tokens of each draft.
DRAFTED = 3


def step_shares(model: str, drafter: str, batches: tuple[int, ...]) -> np.ndarray:
    """Percent of a cycle that drafting takes, " batch"."""
    devices, network = LARGE[model]
    case = case_of(SAME_SHAPES.get(model, model), network if drafter == "network" else drafter, devices)
    cycles = cycle_costs(case, batches, (TIME_CONTEXT,), (DRAFTED,))
    return np.asarray(100.0 * (cycles.draft_s / cycles.total_s)[:, 0, 0])


def fig4(solved: Solved) -> Callable[[PrintedCell], Modelled | None]:
    """Shares of time of heads and of the one network whose name is printed."""
    del solved
    batches = (1, 64, 128, 512)
    found: dict[tuple[str, str], np.ndarray] = {}

    def model(cell: PrintedCell) -> Modelled | None:
        where = cell["model"], cell["drafter"]
        heads = cell["drafter"] in ("eagle", "eagle3")
        if cell["stage"] != "drafting" or not (heads or (cell["drafter"] == "network" and LARGE[cell["model"]][1])):
            return None
        if where not in found:
            found[where] = step_shares(*where, batches)
        return Modelled(float(found[where][batches.index(int(cell["batch"]))]), "predicted")

    return model


# What a lookup adds to a step beside its longer verification, from the shares of time that Fig. 4 prints.

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
