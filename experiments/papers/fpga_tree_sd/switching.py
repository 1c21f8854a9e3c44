"""Dynamic switching (III-B.3) on the paper's boards: a whole generation, its length chosen anew as the context grows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers.fpga_tree_sd.boards import board_table
from experiments.papers.fpga_tree_sd.model import BOARDS, LENGTHS, ORIGINAL_LENGTH
from experiments.papers.fpga_tree_sd.printed import CONTEXTS
from hwmodels.speculation.verification_length import best_schedule, generation_time

__all__ = ["generations"]


def generations() -> list[dict[str, Any]]:
    """A generation from the first to the last context of Table I by board: what switching gains over one length for all.

    The paper prints no such number. Times per token are interpolated between its six contexts.
    """
    contexts = jnp.array(CONTEXTS, float)
    found = []
    for board in BOARDS:
        table = board_table(board, CONTEXTS)
        options = [1 / table.autoregressive[:, None], 1 / table.performance]
        token_s = jnp.asarray(np.concatenate(options, axis=1), float)
        schedule = jax.jit(best_schedule)(contexts, token_s)
        tokens = float(CONTEXTS[-1] - CONTEXTS[0])
        done = jax.jit(generation_time)(
            contexts, token_s, first_context=float(CONTEXTS[0]), tokens=tokens, schedule=schedule
        )
        lengths = np.concatenate([[1], LENGTHS])
        option_s = np.asarray(done.option_s, np.float64)
        found.append(
            {
                "board": board,
                "tokens": tokens,
                "total_s": float(done.total_s),
                "tokens_per_s": float(done.tokens_per_s),
                "best_fixed_length": int(lengths[int(done.best_fixed)]),
                "speedup_vs_best_fixed": float(done.speedup_vs_best_fixed),
                "speedup_vs_original": float(option_s[ORIGINAL_LENGTH - 1] / float(done.total_s)),
                "speedup_vs_ar": float(done.speedup_vs_ar),
                "schedule": [
                    {"from_context": float(start), "length": int(lengths[option])}
                    for start, option in zip(np.asarray(schedule.start), np.asarray(schedule.option), strict=True)
                ],
            }
        )
    return found
