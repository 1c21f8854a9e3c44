"""The printed numbers: Table 3 as arrays over model, method and batch, and single cells of the other tables."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from experiments.reproduce.printed import PrintedCell, printed_cells, printed_value

__all__ = ["BATCHES", "CAPACITIES", "METHODS", "MODELS", "NAME", "TableThree", "claim", "place_of", "table_three"]

NAME = "elmoe3d"

#: Targets as Table 3 names them, each with its architecture in the catalog.
MODELS = {
    "Qwen3-30B-A3B": "qwen3-30b-a3b",
    "GLM-4.7-Flash": "glm-4.7-flash",
    "DeepSeek-V2-Lite": "deepseek-v2-lite",
    "GPT-OSS-20B": "gpt-oss-20b",
}

METHODS = ("EAGLE3", "SLM-SD", "Quant-SD", "Elastic-SD")
BATCHES = (1, 4, 8, 16)

#: Gigabytes of hybrid-bonded memory: the half that is fitted, and the half that is predicted.
CAPACITIES = (8, 4)

_DATA = Path(__file__).parent / "data"

Cells = npt.NDArray[np.float64]


class TableThree(NamedTuple):
    """One half of Table 3, "model method batch" each."""

    acceptance: Cells
    autoregressive: Cells
    speculative: Cells
    flagged: npt.NDArray[np.bool_]  # autoregressive cells that contradict their row


def place_of(cell: PrintedCell) -> tuple[int, int, int]:
    """Model, method and batch of a cell of Table 3."""
    return list(MODELS).index(cell["model"]), METHODS.index(cell["method"]), BATCHES.index(int(cell["batch_size"]))


@functools.cache
def table_three(capacity_gb: int) -> TableThree:
    """The half of Table 3 for a capacity."""
    shape = (len(MODELS), len(METHODS), len(BATCHES))
    names = ("acceptance_rate_alpha", "speedup_ar_phi_ar", "speedup_sd_phi_sd")
    found = {metric: np.full(shape, np.nan) for metric in names}
    flagged = np.zeros(shape, bool)
    for cell in printed_cells(_DATA / f"{NAME}_table3_sd_schemes.csv"):
        if int(cell["hb_capacity_gb"]) == capacity_gb:
            found[cell.metric][place_of(cell)] = cell.value
            flagged[place_of(cell)] |= bool(cell.note)
    acceptance, alone, together = (found[metric] for metric in names)
    return TableThree(acceptance, alone, together, flagged)


def claim(claim_id: str) -> float:
    """The number of a claim."""
    return printed_value(_DATA / f"{NAME}_claims.csv", claim_id=claim_id)
