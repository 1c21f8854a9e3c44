"""What was not chosen: the model with one choice changed, all numbers fitted to Table I again, and where that ends.

Choices were made on Table I and on what is physical; Table IV stands beside it to be read, not to choose by.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.papers.fpga_tree_sd.boards import PLATFORM_CONTEXTS, predict
from experiments.papers.fpga_tree_sd.calibration import Fit, fit, table_one_times
from experiments.papers.fpga_tree_sd.model import BOARDS, Choices, at_lengths, board_times, cycle
from experiments.papers.fpga_tree_sd.printed import NAIVE_SLOPE, cells, table_one

__all__ = ["VARIANTS", "compare"]

#: In words: the choices, whether naive lengths are fitted to, whether A changes with the context.
VARIANTS: dict[str, tuple[Choices, bool, bool]] = {
    "the model": (Choices(), False, False),
    "A changes with the context too": (Choices(), False, True),
    "roof operator by operator": (Choices(roof="operator"), False, False),
    "Eq. (14) as printed": (Choices(drafting="printed"), False, False),
    "draft without head": (Choices(draft_head=False), False, False),
    "draft attends as one layer": (Choices(draft_attention="layer"), False, False),
    "levels filled one by one": (Choices(levels="filled"), False, False),
    "always five passes": (Choices(levels="all"), False, False),
    "fitted to naive lengths too": (Choices(), True, False),
    "fitted to naive lengths too, A changes": (Choices(), True, True),
}


def compare() -> list[dict[str, Any]]:
    """Errors of each variant on Table I and of its best throughputs on the boards of Table IV."""
    return [_measured(name, fit(c, naive_lengths=n, intercept_varies=a)) for name, (c, n, a) in VARIANTS.items()]


def _measured(name: str, found: Fit) -> dict[str, Any]:
    printed = table_one()
    run = cycle(table_one_times(), found.fitted, found.choices)
    errors = np.abs(at_lengths(run.performance, printed.lengths) / printed.performance - 1)
    share = at_lengths(run.performance, printed.lengths[:, 2]) / run.performance.max(axis=1)
    doublings = np.log2(table_one_times().contexts / 1024.0)
    naive = (found.fitted.log_slope + found.fitted.slope_per_doubling * doublings) / NAIVE_SLOPE + found.fitted.shift
    return {
        "variant": name,
        "fitted": found.fitted._asdict(),
        "half_squares": found.half_squares,
        "median": float(np.median(errors)),
        "max": float(errors.max()),
        "least_share_of_maximum": float(share.min()),
        "naive_lengths": naive.tolist(),
        "boards": {board: _board(board, found) for board in BOARDS},
    }


def _board(board: str, found: Fit) -> dict[str, Any]:
    values = {(cell["board"], cell["context_length"], cell.metric): cell.value for cell in cells("table4_platforms")}
    column = lambda metric: np.array([values[board, str(context), metric] for context in PLATFORM_CONTEXTS])
    done = predict(board_times(board, PLATFORM_CONTEXTS), found.fitted, found.choices)
    at_printed = at_lengths(done.performance, column("best_verification_length"))
    return {
        "max": float(np.max(np.abs(done.best_performance / column("best_performance") - 1))),
        "least_share_of_maximum": float(np.min(at_printed / done.performance.max(axis=1))),
        "best_lengths": done.best_length.tolist(),
    }
