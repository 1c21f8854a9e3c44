"""The simplest predictors of the FPGA paper's tables: its own other columns and medians."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

from experiments.papers.fpga_tree_sd.printed import CONTEXTS, SETS, cells, claim, table_one
from experiments.reproduce.errors import constant, each
from experiments.reproduce.paper import ComparedCell

__all__ = ["AVERAGES", "CLAIMS", "PLATFORMS", "TABLE_ONE", "TASKS", "TREES"]


@functools.cache
def _printed(table: str, *keys: str) -> Mapping[tuple[str, ...], float]:
    """A table's numbers by some of their conditions and the metric."""
    return {(*(cell[key] for key in keys), cell.metric): cell.value for cell in cells(table)}


def _one_speedup(row: ComparedCell) -> float | None:
    """The median printed speedup of a set; a throughput is that times the printed autoregressive one."""
    printed, conditions = table_one(), row["conditions"]
    if conditions["method"] not in SETS or row["metric"] == "verification_length":
        return None
    speedup = np.median(printed.performance / printed.autoregressive[:, None], axis=0)[SETS.index(conditions["method"])]
    own = printed.autoregressive[CONTEXTS.index(int(conditions["context_length"]))]
    return float(speedup * own if row["metric"] == "performance" else speedup)


TABLE_ONE = {
    "one speedup per set, times the printed AR": each(_one_speedup),
    "one constant per set": constant("method"),
}


def _own_best(row: ComparedCell) -> float | None:
    if row["metric"] == "best_speedup":
        return None  # the cell itself
    if row["metric"] == "best_verification_length":
        return float(
            np.median([cell.value for cell in cells("table2_task_consistency") if cell.metric == row["metric"]])
        )
    return _printed("table2_task_consistency", "benchmark")[row["conditions"]["benchmark"], "best_speedup"]


TASKS = {"the median length, and the paper's own best speedup": each(_own_best)}


def _other_cell(row: ComparedCell) -> float | None:
    """The best tree's printed cell for other trees; Table IV's for V80 at this context for the best tree and for AR."""
    method, metric = row["conditions"]["method"], row["metric"]
    if method in ("Width", "Depth"):
        return _printed("table3_tree_search", "method")["Tree Search", metric]
    names = {
        "performance": "best_performance",
        "speedup_over_ar": "best_speedup",
        "verification_length": "best_verification_length",
    }
    name = "ar_performance" if method == "AR" else names[metric]
    return _printed("table4_platforms", "board", "context_length")["V80", row["conditions"]["context_length"], name]


TREES = {"one constant": constant(), "the search's printed cell; for itself and AR, Table IV's": each(_other_cell)}


def _v80(row: ComparedCell) -> float | None:
    """V80's printed cell at the same context; throughputs by its speedup, or by the ratio of the bandwidths."""
    conditions, value = row["conditions"], _printed("table4_platforms", "board", "context_length")
    board, context, metric = conditions["board"], conditions["context_length"], row["metric"]
    if board == "V80":
        return None
    if metric == "best_performance":
        return value["V80", context, "best_speedup"] * value[board, context, "ar_performance"]
    if metric == "ar_performance":
        return value["V80", context, metric] * float(conditions["bandwidth_gbps"]) / _V80_GBPS
    return value["V80", context, metric]


_V80_GBPS = {float(cell["bandwidth_gbps"]) for cell in cells("table4_platforms") if cell["board"] == "V80"}.pop()


def _median_of_table_one(row: ComparedCell) -> float | None:
    """Table I's median speedup or best length; its neighbouring contexts' mean for autoregressive decoding on V80."""
    conditions, printed = row["conditions"], table_one()
    if row["metric"] == "ar_performance":
        if conditions["board"] != "V80":
            return None
        return float(
            np.exp(
                np.interp(np.log(float(conditions["context_length"])), np.log(CONTEXTS), np.log(printed.autoregressive))
            )
        )
    if row["metric"] == "best_verification_length":
        return float(np.median(printed.lengths[:, 2]))
    speedup = float(np.median(printed.performance[:, 2] / printed.autoregressive))
    if row["metric"] != "best_performance":
        return speedup
    board, context = conditions["board"], conditions["context_length"]
    return speedup * _printed("table4_platforms", "board", "context_length")[board, context, "ar_performance"]


PLATFORMS = {
    "V80's printed cell at the same context, throughputs scaled by AR or bandwidth": each(_v80),
    "Table I's median, throughputs scaled by AR": each(_median_of_table_one),
}

AVERAGES = {
    "one constant": constant(),
    "Llama-3.1-8B's printed 2.44": each(lambda row: claim("FPG003")),
}


def _llama_gain(row: ComparedCell) -> float | None:
    """Llama-3.1-8B's printed gain over the same set, for those of other models."""
    other = {"FPG009": "FPG004", "FPG010": "FPG005"}.get(row["conditions"]["claim_id"])
    return None if other is None else claim(other)


CLAIMS = {"Llama-3.1-8B's printed gains": each(_llama_gain)}
