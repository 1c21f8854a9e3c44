"""The paper's printed numbers by where they stand."""

from __future__ import annotations

from pathlib import Path

from experiments.reproduce.printed import PrintedCell, printed_cells, printed_value

__all__ = ["CONTEXT", "DATA", "PAPER", "SOFTMAX_KEYS", "SOFTMAX_QUERIES", "cells", "claim", "printed"]

PAPER = "mobile_npu"

DATA = Path(__file__).parent / "data"


def cells(table: str) -> tuple[PrintedCell, ...]:
    """Numbers of a table."""
    return printed_cells(DATA / f"{PAPER}_{table}.csv")


def printed(table: str, metric: str = "", **conditions: str) -> float:
    """The one number of a table under these conditions."""
    return printed_value(DATA / f"{PAPER}_{table}.csv", metric, **conditions)


def claim(claim_id: str) -> float:
    """A number of the prose; the lower end of a range."""
    return printed("claims", claim_id=claim_id)


#: Context budget of the memory figures, and prompt of Fig. 8, in tokens.
CONTEXT = claim("NPU034")

#: Queries and keys of Fig. 14.
SOFTMAX_QUERIES = (1, 4, 16)
SOFTMAX_KEYS = (1024, 4096, 16384)
