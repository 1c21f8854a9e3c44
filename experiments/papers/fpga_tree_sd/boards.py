"""Tables I and IV: one model, Llama-3.1-8B, over contexts and boards."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.papers.fpga_tree_sd.calibration import fit, fitted_numbers, table_one_times
from experiments.papers.fpga_tree_sd.model import (
    BOARDS,
    LENGTHS,
    Choices,
    Cycle,
    Fitted,
    Times,
    at_lengths,
    board_times,
    cycle,
)
from experiments.papers.fpga_tree_sd.printed import CONTEXTS, SETS, cells, paper_row, summarise, table_one
from experiments.papers.reproduction import beats, predictor_errors, spread_of
from hwmodels.speculation.effective_performance import Decision, decide, effective_performance
from hwmodels.speculation.verification_length import naive_length

__all__ = ["PLATFORM_CONTEXTS", "Predicted", "board_table", "naive_lengths", "platforms", "predict", "table1"]

#: Context lengths of Table IV.
PLATFORM_CONTEXTS = (256, 1024, 4096, 16384)

#: Cells of Table IV that stand in Table I as well.
_REPEATED = {("V80", 4096), ("V80", 16384)}

Row = Mapping[str, Any]


class Predicted(NamedTuple):
    """What a board reaches, "context"."""

    performance: np.ndarray  # "context length", tokens/s
    autoregressive: np.ndarray  # tokens/s
    best_length: np.ndarray  # 1 where speculation does not pay
    best_performance: np.ndarray
    speedup: np.ndarray


@jax.jit
def _decided(lengths: np.ndarray, run: Cycle) -> tuple[jax.Array, Decision]:
    performance = effective_performance(run.accepted, run.verify_s, run.draft_s)
    return performance, decide(lengths, performance, run.autoregressive_s)


def predict(times: Times, fitted: Fitted, choices: Choices | None = None, *, run: Cycle | None = None) -> Predicted:
    """Effective performance and the decision by Eq. (7) and (8), through `hwmodels`.

    Args:
        run: a cycle to use instead of the model's own.
    """
    done = cycle(times, fitted, choices or Choices()) if run is None else run
    performance, decision = _decided(times.lengths, done)
    return Predicted(
        np.asarray(performance, np.float64),
        1.0 / done.autoregressive_s,
        np.asarray(decision.length),
        np.asarray(decision.tokens_per_s, np.float64),
        np.asarray(decision.speedup, np.float64),
    )


@functools.cache
def board_table(board: str, contexts: tuple[int, ...] = PLATFORM_CONTEXTS) -> Predicted:
    """The fitted model on a board of Table IV."""
    return predict(board_times(board, contexts), fit().fitted)


def naive_lengths() -> np.ndarray:
    """The first length at each context of Table I after which a token gains less than 0.02 tokens by the fitted law."""
    accepted = cycle(table_one_times(), fit().fitted).accepted
    return np.asarray(naive_length(LENGTHS, accepted.astype(np.float32)).length)


def table1() -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Table I, all 66 cells: rows and summary."""
    name, printed = "table1_llama31_8b", table_one()
    found = board_table("V80", CONTEXTS)
    at_printed = at_lengths(found.performance, printed.lengths)
    naive = naive_lengths()
    rows = []
    for cell in cells(name):
        context, method, metric = CONTEXTS.index(int(cell["context_length"])), cell["method"], cell["metric"]
        column = SETS.index(method) if method in SETS else -1
        performance = found.autoregressive[context] if column < 0 else at_printed[context, column]
        if metric == "performance":
            note = "the catalog's memory efficiency and KV traffic" if column < 0 else "at the printed length"
            rows.append(paper_row(cell, name, performance, "calibrated", note))
        elif metric == "speedup_over_ar":
            status = "input" if column < 0 else "calibrated"
            rows.append(paper_row(cell, name, performance / found.autoregressive[context], status))
        elif method == "Ori set":
            rows.append(paper_row(cell, name, float(cell["value"]), "input", "LongSpec's own tree"))
        elif method == "Naive set":
            rows.append(paper_row(cell, name, naive[context], "predicted", "law's slope below 0.02 tokens per token"))
        else:
            rows.append(paper_row(cell, name, found.best_length[context], "calibrated", "the model's own best"))
    compared = [row for row in rows if row["metric"] == "performance" and row["conditions"]["method"] != "AR"]
    speedups = np.median(printed.performance / printed.autoregressive[:, None], axis=0)
    throughput = np.median(printed.performance, axis=0)
    of_set = lambda row: SETS.index(row["conditions"]["method"])
    own = lambda row: printed.autoregressive[CONTEXTS.index(int(row["conditions"]["context_length"]))]
    return rows, summarise(
        rows,
        compared,
        fitted_numbers(),
        {
            "one speedup per set, times the printed AR": predictor_errors(
                compared, lambda row: speedups[of_set(row)] * own(row)
            ),
            "one throughput per set": predictor_errors(compared, lambda row: throughput[of_set(row)]),
        },
    ) | {
        "naive_lengths": _compare_lengths(printed.lengths[:, 1], naive),
        "share_of_maximum_at_best_length": (at_printed[:, 2] / found.performance.max(axis=1)).tolist(),
    }


def _compare_lengths(printed: np.ndarray, ours: np.ndarray) -> dict[str, Any]:
    constant = np.median(printed)
    errors = spread_of(np.abs(ours / printed - 1).tolist())
    simple = spread_of(np.abs(constant / printed - 1).tolist())
    return {"ours": errors, "one constant": simple, "beats_simplest": beats(errors, simple)}


def platforms() -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Table IV, all 68 cells: rows and summary; errors and simplest predictors by board besides."""
    name = "table4_platforms"
    tables = {board: board_table(board) for board in BOARDS}
    fitted_steps = tables["V80"].autoregressive
    same_steps = {name for name, found in tables.items() if np.allclose(found.autoregressive, fitted_steps, rtol=1e-6)}
    rows = []
    for cell in cells(name):
        board, found = cell["board"], tables[cell["board"]]
        if cell["context_length"] == "average":
            status = "calibrated" if board == "V80" else "predicted"
            rows.append(paper_row(cell, name, found.speedup.mean(), status, "mean over four contexts"))
            continue
        context = PLATFORM_CONTEXTS.index(int(cell["context_length"]))
        repeated = (board, int(cell["context_length"])) in _REPEATED
        values = {
            "ar_performance": found.autoregressive,
            "best_verification_length": found.best_length,
            "best_performance": found.best_performance,
            "best_speedup": found.speedup,
        }
        note = "in Table I as well" if repeated else ""
        status = "calibrated" if repeated else "predicted"
        if cell["metric"] == "ar_performance" and board != "V80" and board in same_steps:
            # The same memory with the same fitted shares: V80's numbers again, no prediction of another board.
            status, note = "calibrated", "V80's by construction: the same memory"
        rows.append(paper_row(cell, name, values[cell["metric"]][context], status, note))
    value = {
        (row["conditions"]["board"], row["conditions"]["context_length"], row["metric"]): row["paper_value"]
        for row in rows
    }
    of = lambda row, metric, board=None: value[
        board or row["conditions"]["board"], row["conditions"]["context_length"], metric
    ]
    typical = float(np.median(table_one().performance[:, 2] / table_one().autoregressive))
    peers = {
        "V80's printed speedup at the same context, times the printed AR": lambda row: (
            of(row, "best_speedup", "V80") * of(row, "ar_performance")
        ),
        "median speedup of Table I, times the printed AR": lambda row: typical * of(row, "ar_performance"),
    }
    best = [row for row in rows if row["metric"] == "best_performance"]
    compared = [row for row in best if row["conditions"]["board"] != "V80"]
    bandwidth = lambda row: float(row["conditions"]["bandwidth_gbps"]) / 819.0 * of(row, "ar_performance", "V80")
    steps = [row for row in rows if row["metric"] == "ar_performance" and row["conditions"]["board"] not in same_steps]
    return rows, summarise(
        rows, compared, {}, {text: predictor_errors(compared, peer) for text, peer in peers.items()}
    ) | {
        "by_board": {
            board: _of_board(
                [row for row in best if row["conditions"]["board"] == board], peers if board != "V80" else {}
            )
            | {
                "share_of_maximum_at_printed_length": _share_at_printed(tables[board], board, value),
                "best_lengths": tables[board].best_length.tolist(),
            }
            for board in BOARDS
        },
        "autoregressive": {
            "ours": spread_of([row["relative_error"] for row in steps]),
            "V80's printed AR times the bandwidths' ratio": spread_of(predictor_errors(steps, bandwidth)),
        },
    }


def _of_board(rows: list[dict[str, Any]], peers: Mapping[str, Callable[[Row], float]]) -> dict[str, Any]:
    ours = spread_of([row["relative_error"] for row in rows])
    simple = {name: spread_of(predictor_errors(rows, peer)) for name, peer in peers.items()}
    return {
        "ours": ours,
        "simplest_predictors": simple,
        "beats_simplest": bool(peers) and all(beats(ours, errors) for errors in simple.values()),
    }


def _share_at_printed(found: Predicted, board: str, value: Mapping[tuple[str, str, str], float]) -> list[float]:
    lengths = np.array([value[board, str(context), "best_verification_length"] for context in PLATFORM_CONTEXTS])
    return (at_lengths(found.performance, lengths) / found.performance.max(axis=1)).tolist()
