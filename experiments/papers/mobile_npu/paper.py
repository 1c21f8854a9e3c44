"""The mobile NPU paper, declared: its hardware cell by cell, its accuracies as statements."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.papers.mobile_npu import figures, tables
from experiments.papers.mobile_npu.decoding import FITTED_NAMES, fit
from experiments.papers.mobile_npu.details import DETAILS, missed_bars
from experiments.papers.mobile_npu.scaling import scaling
from experiments.papers.mobile_npu.versions import GENERATIONS
from experiments.papers.mobile_npu.versions import PAPER as NAME
from experiments.reproduce.paper import Choice, Paper, PrintedTable
from hwmodels import Device, catalog
from hwmodels.numerics.units import GIGA, MICRO

__all__ = ["PAPER"]


def _fitted(*names: str) -> Callable[[Any], dict[str, float]]:
    return lambda solved: {FITTED_NAMES[name]: getattr(fit(), name) for name in names}


_KERNELS = {"Fig. 14 and 15": _fitted("register_packets", "step_packets", "row_packets")}


_CLOCK = Choice("the clock is the one at which the matrix unit's printed rate is 4096 multiply-adds a cycle")
_INPUT = "a repetition of what the catalog was given"


def _of_catalog(device: Device) -> dict[str, float]:
    """Two numbers of V75's file that were chosen by what the text says of other cells."""
    return {
        "rate of the CPU, GFLOP/s": float(device.matrix_unit.host.peak_flops_per_s) / GIGA,
        "launch of an operator, us": float(device.operator_latency_s) / MICRO,
    }


_RATE, _LAUNCH = _of_catalog(catalog.device(GENERATIONS["V75"])).items()
_CPU = Choice(
    _RATE[0],
    used=f"{_RATE[1]:g}",
    why="not printed; by prompts of llama.cpp behind those of another NPU's program",
    seen="the share of the logits, close to or above 50 %",
    cells=lambda cell: cell.conditions.get("claim_id") == "NPU026",
)
_LAUNCHES = Choice(
    _LAUNCH[0],
    used=f"{_LAUNCH[1]:g}",
    why="not printed; with less than 57 us the NPU would decode one token before the GPU does",
    seen="7.2.4: the GPU decodes one sample faster",
    cells=lambda cell: False,
)
_STEPS = (_CPU, _LAUNCHES)

TABLES = (
    PrintedTable(
        name="fig15",
        title="Fig. 15: layouts of quantized weights, products of one token",
        model=tables.fig15,
        label=("over", "end"),
        simplest=tables.FIG15,
        fitted=_fitted("register_packets"),
        fitted_to="the mean slowdown against no dequantization",
        choices=(
            _CLOCK,
            Choice(
                "what converting 8-bit weights takes",
                used="twice as long as 4-bit ones, with the registers of codes",
                why="not printed; as long as 4-bit ones, both lower ends are missed by more than 15 % (variants)",
                seen="the lower ends",
                cells=lambda cell: cell["end"] == "lowest",
            ),
            Choice(
                "a group alone takes 9 of the 20 instructions of a full register, counted from 5.1.2, 5.2.2 and Fig. 9"
            ),
            Choice("a scatter takes as long as a gather: 36 packets, the middle of the printed 24 to 48"),
        ),
        doubts=("which matrix a range ends at is not printed; here the lower end is FFN down, which has 8 bits",),
        cause=tables.fig15_cause,
    ),
    PrintedTable(
        name="fig14",
        title="Fig. 14: softmax on chip",
        model=tables.fig14,
        label=("over", "end"),
        simplest=tables.FIG14,
        fitted=_fitted("step_packets", "row_packets"),
        fitted_to="the two ends of the speedup over 32-bit exponentials",
        choices=(
            _CLOCK,
            Choice(
                "degrees of the polynomials by Taylor's remainder below half a unit, 9 in 32 bits and 5 in 16, and three more"
            ),
            Choice("10 packets for a register beside its exponentials; one head, a row for each query"),
        ),
        doubts=("which lengths a range ends at is not printed", "one predicted cell"),
    ),
    PrintedTable(
        name="memory_power",
        title="7.2.3 and 7.5: memory and power",
        model=tables.memory_power,
        label=("model", "metric"),
        simplest=tables.MEMORY,
        fitted=_fitted("static_power_w"),
        fitted_to="4.3 W while the 3B network decodes",
        inherits=_KERNELS,
        choices=(
            Choice(
                "the session holds layers, cache and activations of 512 tokens in 32 bits, the process the vocabulary as Q6_K"
            ),
            Choice("energies per bit and FLOP and powers of vector units and CPU are assumed"),
            *(choice.inherited() for choice in _STEPS),
        ),
        doubts=("5 W is an upper bound",),
    ),
    PrintedTable(
        name="claims",
        title="Prose: logits, addresses, energy",
        model=tables.claims,
        label=("claim_id",),
        simplest=tables.PROSE,
        inherits={**_KERNELS, "4.3 W while the 3B network decodes": _fitted("static_power_w")},
        choices=_STEPS,
        doubts=("close to or above 50 % is what is printed of the share", "one predicted cell"),
    ),
    PrintedTable(
        name="table2_hvx_hmx",
        title="Table 2: rates",
        model=tables.table2,
        label=("hardware_unit",),
        simplest=tables.INPUTS,
        doubts=(_INPUT,),
        cause="nothing is computed: what the catalog's device has",
    ),
    PrintedTable(
        name="hexagon_specs",
        title="3.1.2 and 5.2.1: what the model reads of the NPU",
        model=tables.specifications,
        label=("component",),
        simplest=tables.INPUTS,
        doubts=(_INPUT,),
        cause="nothing is computed: what the catalog's device has",
    ),
    PrintedTable(
        name="quantization_and_lut",
        title="5.1 and 5.2: groups and tables",
        model=tables.specifications,
        label=("scheme",),
        simplest=tables.INPUTS,
        doubts=(_INPUT,),
        cause="nothing is computed: arithmetic on groups and tables",
    ),
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
