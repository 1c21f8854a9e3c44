"""The mobile NPU paper, declared: its hardware cell by cell, its accuracies as statements."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.papers.mobile_npu import figures, tables
from experiments.papers.mobile_npu.decoding import FITTED_NAMES, fit
from experiments.papers.mobile_npu.details import DETAILS, missed_bars
from experiments.papers.mobile_npu.scaling import scaling
from experiments.papers.mobile_npu.versions import GENERATIONS
from experiments.papers.mobile_npu.versions import PAPER as NAME
from experiments.reproduce.paper import Paper, printed_table
from hwmodels import catalog
from hwmodels.numerics.units import GIGA, MICRO

__all__ = ["PAPER"]


def _fitted(*names: str) -> Callable[[Any], dict[str, float]]:
    return lambda solved: {FITTED_NAMES[name]: getattr(fit(), name) for name in names}


_KERNELS = {"Fig. 14 and 15": _fitted("register_packets", "step_packets", "row_packets")}


_POWER = {"4.3 W while the 3B network decodes": _fitted("static_power_w")}


#: Two numbers of V75's file that were chosen by what the text says of other cells.
_V75 = catalog.device(GENERATIONS["V75"])
_CPU_GFLOPS = float(_V75.matrix_unit.host.peak_flops_per_s) / GIGA
_LAUNCH_US = float(_V75.operator_latency_s) / MICRO

_table = functools.partial(
    printed_table,
    Path(__file__).parent,
    choices={
        "cpu": {"used": f"{_CPU_GFLOPS:g}", "cells": lambda cell: cell.conditions.get("claim_id") == "NPU026"},
        "launch": {"used": f"{_LAUNCH_US:g}", "cells": lambda cell: False},
        "converting": {"cells": lambda cell: cell["end"] == "lowest"},
    },
)

TABLES = (
    _table(
        "fig15", model=tables.fig15, simplest=tables.FIG15, fitted=_fitted("register_packets"), cause=tables.fig15_cause
    ),
    _table("fig14", model=tables.fig14, simplest=tables.FIG14, fitted=_fitted("step_packets", "row_packets")),
    _table(
        "memory_power",
        model=tables.memory_power,
        simplest=tables.MEMORY,
        fitted=_fitted("static_power_w"),
        inherits=_KERNELS,
        choices={"cpu": {"used": f"{_CPU_GFLOPS:g}"}, "launch": {"used": f"{_LAUNCH_US:g}"}},
        inherited=("cpu", "launch"),
    ),
    _table("claims", model=tables.claims, simplest=tables.PROSE, inherits=_KERNELS | _POWER),
    _table("table2_hvx_hmx", model=tables.table2, simplest=tables.INPUTS),
    _table("hexagon_specs", model=tables.specifications, simplest=tables.INPUTS),
    _table("quantization_and_lut", model=tables.specifications, simplest=tables.INPUTS),
)

PAPER = Paper(
    name=NAME,
    title="Scaling LLM Test-Time Compute with Mobile NPU on Smartphones",
    folder=Path(__file__).parent,
    minutes=0.8,
    tables=TABLES,
    solve=tables.solve,
    details=DETAILS,
    figures={
        "kernels": lambda outcome: figures.kernels_figure(),
        "attention": lambda outcome: figures.attention_figure(),
        "decoding": lambda outcome: figures.decoding_figure(outcome.solved),
        "power": lambda outcome: figures.power_figure(outcome.solved),
        "processors": lambda outcome: figures.processors_figure(outcome.solved),
        "fig5": lambda outcome: figures.budget_figure(scaling()),
        "fig10": lambda outcome: figures.latency_figure(scaling()),
    },
    missed_bars=missed_bars,
)
