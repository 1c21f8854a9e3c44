"""Tables I and IV cell by cell: Llama-3.1-8B over contexts and boards."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from experiments.papers.fpga_tree_sd.boards import PLATFORM_CONTEXTS, board_table, naive_lengths
from experiments.papers.fpga_tree_sd.calibration import Fit
from experiments.papers.fpga_tree_sd.model import BOARDS, at_lengths
from experiments.papers.fpga_tree_sd.printed import CONTEXTS, SETS, cells, table_one
from experiments.reproduce.paper import Modelled, as_printed
from experiments.reproduce.printed import PrintedCell

__all__ = ["platforms", "printed_shares", "shares_of_maximum", "table1"]

#: Cells of Table IV that stand in Table I as well.
_REPEATED = {("V80", 4096), ("V80", 16384)}


def table1(solved: Fit) -> Callable[[PrintedCell], Modelled]:
    """Table I: throughputs and best lengths are fitted, the original lengths are LongSpec's, naive ones follow from the fit."""
    found, printed = board_table("V80", CONTEXTS, solved), table_one()
    at_printed, naive = at_lengths(found.performance, printed.lengths), naive_lengths(solved)

    def model(cell: PrintedCell) -> Modelled:
        context, method = CONTEXTS.index(int(cell["context_length"])), cell["method"]
        column = SETS.index(method) if method in SETS else -1
        performance = found.autoregressive[context] if column < 0 else at_printed[context, column]
        if cell.metric == "performance":
            note = "the catalog's memory efficiency and KV traffic" if column < 0 else "at the printed length"
            return Modelled(performance, "calibrated", note)
        if cell.metric == "speedup_over_ar":
            return Modelled(performance / found.autoregressive[context], "input" if column < 0 else "calibrated")
        if method == "Ori set":
            return as_printed(cell, "LongSpec's own tree")
        if method == "Naive set":
            return Modelled(naive[context], "predicted", "law's slope below 0.02 tokens per token")
        return Modelled(found.best_length[context], "calibrated", "the model's own best")

    return model


def shares_of_maximum() -> list[float]:
    """Throughput at Table I's printed best lengths, over the model's largest one at that context."""
    found = board_table("V80", CONTEXTS)
    return (at_lengths(found.performance, table_one().lengths)[:, 2] / found.performance.max(axis=1)).tolist()


def platforms(solved: Fit) -> Callable[[PrintedCell], Modelled]:
    """Table IV: predicted, but for cells that are in Table I or equal V80's by construction."""
    tables = {board: board_table(board, found=solved) for board in BOARDS}
    same_steps = _same_steps()

    def model(cell: PrintedCell) -> Modelled:
        board, found = cell["board"], tables[cell["board"]]
        if cell["context_length"] == "average":
            status = "calibrated" if board == "V80" else "predicted"
            return Modelled(found.speedup.mean(), status, "mean over four contexts")
        context = PLATFORM_CONTEXTS.index(int(cell["context_length"]))
        values = {
            "ar_performance": found.autoregressive,
            "best_verification_length": found.best_length,
            "best_performance": found.best_performance,
            "best_speedup": found.speedup,
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
    found = board_table(board)
    lengths = np.array([value[str(context)] for context in PLATFORM_CONTEXTS])
    return (at_lengths(found.performance, lengths) / found.performance.max(axis=1)).tolist()
