"""Predictions of the fitted model for a board: Llama-3.1-8B over contexts."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import numpy as np

from experiments.papers.fpga_tree_sd.calibration import Fit, fit, table_one_times
from experiments.papers.fpga_tree_sd.model import (
    LENGTHS,
    Choices,
    Cycle,
    Fitted,
    Times,
    board_times,
    cycle,
)
from hwmodels.numerics.quick_jit import quick_jit
from hwmodels.speculation.effective_performance import Decision, decide, effective_performance
from hwmodels.speculation.verification_length import naive_length

__all__ = ["PLATFORM_CONTEXTS", "Predicted", "board_table", "naive_lengths", "predict"]

#: Context lengths of Table IV.
PLATFORM_CONTEXTS = (256, 1024, 4096, 16384)


class Predicted(NamedTuple):
    """What a board reaches, "context"."""

    performance: np.ndarray  # "context length", tokens/s
    autoregressive: np.ndarray  # tokens/s
    best_length: np.ndarray  # 1 where speculation does not pay
    best_performance: np.ndarray
    speedup: np.ndarray


@quick_jit
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
def board_table(board: str, contexts: tuple[int, ...] = PLATFORM_CONTEXTS, found: Fit | None = None) -> Predicted:
    """The fitted model on a board of Table IV; another fit than the model's where one is given."""
    found = found or fit()
    return predict(board_times(board, contexts), found.fitted, found.choices)


def naive_lengths(found: Fit | None = None) -> np.ndarray:
    """The first length at each context of Table I after which a token gains less than 0.02 tokens by the fitted law."""
    accepted = cycle(table_one_times(), (found or fit()).fitted).accepted
    return np.asarray(naive_length(LENGTHS, accepted.astype(np.float32)).length)
