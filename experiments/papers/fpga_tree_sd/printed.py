"""The paper's printed cells, and those that numbers are fitted to as arrays."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.reproduce.printed import PrintedCell, printed_cells, printed_value

__all__ = ["CONTEXTS", "DATA", "NAIVE_SLOPE", "PAPER", "SETS", "TableOne", "cells", "claim", "table_one"]

PAPER = "fpga_tree_sd"

DATA = Path(__file__).parent / "data"

#: Context lengths of Table I, and its configurations beside autoregressive decoding.
CONTEXTS = (128, 512, 2048, 4096, 8192, 16384)
SETS = ("Ori set", "Naive set", "Best set")


def cells(table: str) -> tuple[PrintedCell, ...]:
    """Numbers of a table."""
    return printed_cells(DATA / f"{PAPER}_{table}.csv")


def claim(claim_id: str) -> float:
    """A number of the prose."""
    return printed_value(DATA / f"{PAPER}_claims.csv", claim_id=claim_id)


#: Tokens gained per further token at which the naive set ends (IV-B).
NAIVE_SLOPE = claim("FPG013") / 100.0


class TableOne(NamedTuple):
    """Table I as arrays over `CONTEXTS` and `SETS`."""

    lengths: np.ndarray  # "context set", tokens
    performance: np.ndarray  # "context set", tokens/s
    autoregressive: np.ndarray  # "context", tokens/s


def table_one() -> TableOne:
    """Lengths and throughputs of Table I."""
    values = {
        (int(cell["context_length"]), cell["method"], cell.metric): cell.value for cell in cells("table1_llama31_8b")
    }
    over_sets = lambda metric: np.array([[values[context, name, metric] for name in SETS] for context in CONTEXTS])
    return TableOne(
        lengths=over_sets("verification_length"),
        performance=over_sets("performance"),
        autoregressive=np.array([values[context, "AR", "performance"] for context in CONTEXTS]),
    )
