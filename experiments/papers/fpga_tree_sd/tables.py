"""Tables I and IV cell by cell: Llama-3.1-8B over contexts and boards."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import numpy as np
from scipy.optimize import root_scalar

from experiments.papers.fpga_tree_sd.calibration import PLATFORM_CONTEXTS, Fit, board_table, fit, naive_lengths, predict
from experiments.papers.fpga_tree_sd.model import (
    BOARDS,
    CONTEXTS,
    LENGTHS,
    ORIGINAL_DEPTH,
    SETS,
    at_lengths,
    board_times,
    cells,
    claim,
    cycle,
    depth,
    read_parameters,
    table_one,
)
from experiments.reproduce.paper import ComparedCell, Modelled, PrintedCell, as_printed, constant, each
from hwmodels import catalog
from hwmodels.speculation.draft_cost import EAGLE3_VOCABULARY, one_layer
from hwmodels.speculation.verification_length import unified_length

__all__ = [
    "AVERAGES",
    "CLAIMS",
    "MODELS",
    "PLATFORMS",
    "TABLE_ONE",
    "TASKS",
    "TREES",
    "averages",
    "claims",
    "platforms",
    "printed_shares",
    "shares_of_maximum",
    "solve_tasks",
    "table1",
    "tasks",
    "tree_searches",
]


#: Cells of Table IV that stand in Table I as well.
_REPEATED = {("V80", 4096), ("V80", 16384)}


def table1(solved: Fit) -> Callable[[PrintedCell], Modelled]:
    """Table I: throughputs and best lengths are fitted, the original lengths are LongSpec's, naive ones follow from the fit."""
    model_table, printed = board_table("V80", CONTEXTS, solved), table_one()
    at_printed, naive = at_lengths(model_table.performance, printed.lengths), naive_lengths(solved)

    def model(cell: PrintedCell) -> Modelled:
        context, method = CONTEXTS.index(int(cell["context_length"])), cell["method"]
        column = SETS.index(method) if method in SETS else -1
        performance = model_table.autoregressive[context] if column < 0 else at_printed[context, column]
        if cell.metric == "performance":
            note = "the catalog's memory efficiency and KV traffic" if column < 0 else "at the printed length"
            return Modelled(performance, "calibrated", note)
        if cell.metric == "speedup_over_ar":
            return Modelled(performance / model_table.autoregressive[context], "input" if column < 0 else "calibrated")
        if method == "Ori set":
            return as_printed(cell, "LongSpec's own tree")
        if method == "Naive set":
            return Modelled(naive[context], "predicted", "law's slope below 0.02 tokens per token")
        return Modelled(model_table.best_length[context], "calibrated", "the model's own best")

    return model


def shares_of_maximum() -> list[float]:
    """Throughput at Table I's printed best lengths, over the model's largest one at that context."""
    model_table = board_table("V80", CONTEXTS)
    return (
        at_lengths(model_table.performance, table_one().lengths)[:, 2] / model_table.performance.max(axis=1)
    ).tolist()


def platforms(solved: Fit) -> Callable[[PrintedCell], Modelled]:
    """Table IV: predicted, but for cells that are in Table I or equal V80's by construction."""
    tables = {board: board_table(board, fitted=solved) for board in BOARDS}
    same_steps = _same_steps()

    def model(cell: PrintedCell) -> Modelled:
        board, model_table = cell["board"], tables[cell["board"]]
        if cell["context_length"] == "average":
            status = "calibrated" if board == "V80" else "predicted"
            return Modelled(model_table.speedup.mean(), status, "mean over four contexts")
        context = PLATFORM_CONTEXTS.index(int(cell["context_length"]))
        values = {
            "ar_performance": model_table.autoregressive,
            "best_verification_length": model_table.best_length,
            "best_performance": model_table.best_performance,
            "best_speedup": model_table.speedup,
        }
        repeated = (board, int(cell["context_length"])) in _REPEATED
        status, note = ("calibrated", "in Table I as well") if repeated else ("predicted", "")
        if cell.metric == "ar_performance" and board in same_steps:
            # The same memory with the same fitted shares: V80's numbers again, no prediction of another board.
            status, note = "calibrated", "V80's by construction: the same memory"
        return Modelled(values[cell.metric][context], status, note)

    return model


def _same_steps() -> set[str]:
    """Other boards that decode autoregressively exactly as fast as V80."""
    own = board_table("V80").autoregressive
    return {b for b in BOARDS if b != "V80" and np.allclose(board_table(b).autoregressive, own, rtol=1e-6)}


def printed_shares(board: str) -> list[float]:
    """Throughput at Table IV's printed best lengths, over the model's largest one at that context."""
    value = {
        cell["context_length"]: cell.value
        for cell in cells("table4_platforms")
        if (cell["board"], cell.metric) == (board, "best_verification_length")
    }
    model_table = board_table(board)
    lengths = np.array([value[str(context)] for context in PLATFORM_CONTEXTS])
    return (at_lengths(model_table.performance, lengths) / model_table.performance.max(axis=1)).tolist()


# Tables II and III, the averages of Fig. 4 and of the prose: what the fitted model says with what the text adds.
#
# * Table II (tasks): the tasks' AAT curves are not printed. Each gets one number, the share by which it gains more
# tokens than the fitted law, from its best speedup; its best length and its speedup with one length for all are then
# predictions.
# * Table III (trees): the text prints by how many tokens the other trees fall short on average. Taken off the law
# everywhere, with the passes that these trees need, that predicts their lengths and throughputs: nothing is fitted.
# * Fig. 4 (models): LongSpec's averages with sizes and memory traffic of the catalog's models and Llama-3.1-8B's tokens
# per cycle. EAGLE-3's with those that its authors print, of other texts: the paper prints none.

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
    unified = jax.jit(unified_length)(LENGTHS, curves, cycle_s=cycle_s, autoregressive_s=step_s)
    by_task = lambda values: {name: float(value) for name, value in zip(names, np.asarray(values), strict=True)}
    return Tasks(
        dict(zip(names, gains, strict=True)),
        by_task(unified.own.length),
        by_task(unified.own.speedup),
        by_task(unified.speedup),
        float(unified.unified.length),
    )


def tasks(solved: Fit) -> Callable[[PrintedCell], Modelled]:
    """Table II, all 15 cells."""
    solution = solve_tasks(solved)

    def model(cell: PrintedCell) -> Modelled:
        task = cell["benchmark"]
        values = {
            "best_verification_length": solution.length,
            "best_speedup": solution.speedup,
            "unified_speedup": solution.unified_speedup,
        }
        # Gov-Report's cells are Table I's. Where the unified length is the task's own, its gain was fitted to that speedup.
        same = cell.metric == "unified_speedup" and solution.length[task] == solution.unified_length
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
    by_method = {}
    for method, count in passes.items():
        run = cycle(times, fitted, choices, passes=count)
        # No path is longer than the tree is deep, and the first token is certain.
        accepted = np.clip(run.accepted - short[method], 1.0, 1.0 + np.ceil(count))
        by_method[method] = predict(times, fitted, choices, run=run._replace(accepted=accepted))
    autoregressive = float(by_method["Width"].autoregressive[0])

    def model(cell: PrintedCell) -> Modelled:
        method = cell["method"]
        if method == "AR":
            return Modelled(autoregressive, "predicted") if cell.metric == "performance" else as_printed(cell)
        values = {
            "verification_length": by_method[method].best_length,
            "performance": by_method[method].best_performance,
            "speedup_over_ar": by_method[method].speedup,
        }
        note = f"{short[method]:.2f} tokens below the law, as printed" if short[method] else ""
        return Modelled(float(values[cell.metric][0]), "predicted", note)

    return model


#: EAGLE-3's targets by their names in the catalog, and tokens per cycle of its own tree on MT-Bench without sampling: 60
#: drafted tokens on 8 levels (Li et al. 2025, arXiv:2503.01840, Table 1).
_EAGLE3 = {"Llama-3.1-8B-Instruct": ("llama-3.1-8b", 6.13), "Vicuna-v1.3-13B": ("vicuna-13b", 6.65)}
_EAGLE3_LENGTH, _EAGLE3_DEPTH = 61.0, 8.0


def _eagle3(model: str, solved: Fit) -> float:
    """EAGLE-3's average on V80: Eq. (3) through one token and its own tree, levels in proportion to ln(x) likewise."""
    name, tokens = _EAGLE3[model]
    target = catalog.architecture(name)
    head = one_layer(target, EAGLE3_VOCABULARY)
    times = board_times("V80", CONTEXTS, architecture_name=name)
    times = times._replace(layer_share=read_parameters(head) / read_parameters(target), head_share=0.0)
    grown = np.log(LENGTHS) / np.log(_EAGLE3_LENGTH)
    run = cycle(times, solved.fitted, solved.choices, passes=np.maximum(_EAGLE3_DEPTH * grown, 1.0))
    accepted = np.broadcast_to(1.0 + (tokens - 1.0) * grown, run.accepted.shape)
    return float(predict(times, solved.fitted, solved.choices, run=run._replace(accepted=accepted)).speedup.mean())


def averages(solved: Fit) -> Callable[[PrintedCell], Modelled]:
    """The averages of Fig. 4: LongSpec's with Llama-3.1-8B's law, EAGLE-3's with what its authors print."""

    def model(cell: PrintedCell) -> Modelled:
        if cell["sd_algorithm"] == "EAGLE-3":
            return Modelled(_eagle3(cell["model"], solved), "predicted", "tokens per cycle as EAGLE-3 prints them")
        times = board_times("V80", CONTEXTS, architecture_name=MODELS[cell["model"]])
        speedup = predict(times, solved.fitted, solved.choices).speedup.mean()
        return Modelled(float(speedup), "predicted", "with Llama-3.1-8B's tokens per cycle")

    return model


def claims(solved: Fit) -> Callable[[PrintedCell], Modelled | None]:
    """Averages of Table I in the prose, and of gains over the other sets on other models: five numbers of the prose."""
    printed, model_table = table_one(), board_table("V80", CONTEXTS, solved)
    gains = model_table.best_performance[:, None] / at_lengths(model_table.performance, printed.lengths)
    own = printed.performance[:, 2:] / printed.performance
    averaged = {
        "FPG003": (model_table.speedup.mean(), (printed.performance[:, 2] / printed.autoregressive).mean()),
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


# The simplest predictors of the FPGA paper's tables: its own other columns and medians.


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

AVERAGES = {"one constant": constant(), "Llama-3.1-8B's printed 2.44": each(lambda row: claim("FPG003"))}


def _llama_gain(row: ComparedCell) -> float | None:
    """Llama-3.1-8B's printed gain over the same set, for those of other models."""
    other = {"FPG009": "FPG004", "FPG010": "FPG005"}.get(row["conditions"]["claim_id"])
    return None if other is None else claim(other)


CLAIMS = {"Llama-3.1-8B's printed gains": each(_llama_gain)}
