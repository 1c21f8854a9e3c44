"""The FPGA paper's tables, declared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from experiments.papers.fpga_tree_sd import causes, figures, tables
from experiments.papers.fpga_tree_sd.calibration import fit, fitted_numbers, memory_numbers
from experiments.papers.fpga_tree_sd.details import DETAILS, missed_bars
from experiments.papers.fpga_tree_sd.model import PAPER as NAME
from experiments.papers.fpga_tree_sd.model import Choices
from experiments.reproduce.paper import MakeModel, MakePredictor, Paper, PrintedCell, PrintedTable, printed_table

__all__ = ["PAPER"]

_INHERITS = {
    "Table I's eighteen speculative throughputs and six best lengths": lambda solved: fitted_numbers(),
    "Table I's autoregressive rows": lambda solved: memory_numbers(),
}


def _table(name: str, model: MakeModel, simplest: Mapping[str, MakePredictor], **fields: Any) -> PrintedTable:
    """With the model under Eq. (14), which is what the paper prints of drafting."""
    drafting = {"as_printed": lambda solved: model(fit(Choices(drafting="printed")))}
    choices = {"drafting": drafting} | fields.pop("choices", {})
    return printed_table(Path(__file__).parent, name, model=model, simplest=simplest, choices=choices, **fields)


#: For all tables but the first, on which each choice was tried.
def _later_table(
    name: str,
    model: MakeModel,
    simplest: Mapping[str, MakePredictor],
    seen: Callable[[PrintedCell], bool] = lambda cell: False,
    **fields: Any,
) -> PrintedTable:
    """Args: seen: cells in view of the share that a best length may miss, the one choice that Table I did not decide alone."""
    made_before = ("drafting", "overlap", "passes")
    choices = {"share": {"cells": seen}}
    return _table(name, model, simplest, inherits=_INHERITS, inherited=made_before, choices=choices, **fields)


TABLES = (
    _table(
        "table1_llama31_8b",
        tables.table1,
        tables.TABLE_ONE,
        fitted=lambda solved: fitted_numbers() | memory_numbers(),
        cause=causes.table_one,
    ),
    _later_table(
        "table2_task_consistency",
        tables.tasks,
        tables.TASKS,
        fitted=lambda solved: {f"gain of {task}": gain for task, gain in tables.solve_tasks().gains.items()},
        cause=causes.tasks,
    ),
    _later_table("table3_tree_search", tables.tree_searches, tables.TREES, cause=causes.trees),
    _later_table(
        "table4_platforms",
        tables.platforms,
        tables.PLATFORMS,
        seen=lambda cell: cell["board"] == "U280" and cell.metric != "ar_performance",
        cause=causes.platforms,
    ),
    _later_table("fig4_average_speedup", tables.averages, tables.AVERAGES, cause=causes.averages),
    _later_table("claims", tables.claims, tables.CLAIMS),
)

PAPER = Paper(
    name=NAME,
    title="Boosting the Performance of Tree-Based Speculative Decoding of LLMs on FPGAs",
    folder=Path(__file__).parent,
    minutes=0.4,
    tables=TABLES,
    solve=lambda seed: fit(),
    details=DETAILS,
    figures={"model": lambda outcome: figures.model_figure(), "speedup": lambda outcome: figures.speedup_figure()},
    missed_bars=missed_bars,
)
