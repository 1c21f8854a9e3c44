"""The mobile NPU paper, declared: its hardware cell by cell, its accuracies as statements."""

from __future__ import annotations

from pathlib import Path

from experiments.papers.mobile_npu import figures, scaling_figures, simplest, tables
from experiments.papers.mobile_npu.calibration import FITTED_NAMES, fit
from experiments.papers.mobile_npu.details import DETAILS, missed_bars
from experiments.papers.mobile_npu.printed import PAPER as NAME
from experiments.papers.mobile_npu.scaling import scaling
from experiments.reproduce.paper import Paper, PrintedTable

__all__ = ["PAPER"]


def _fitted(*names: str):
    return lambda solved: {FITTED_NAMES[name]: getattr(fit(), name) for name in names}


_CLOCK = "the clock is the one at which the matrix unit's printed rate is 4096 multiply-adds a cycle"
_INPUT = "a repetition of what the catalog was given"

TABLES = (
    PrintedTable(
        name="fig15",
        title="Fig. 15: layouts of quantized weights, products of one token",
        model=tables.fig15,
        label=("over", "end"),
        simplest=simplest.FIG15,
        fitted=_fitted("register_packets"),
        fitted_to="the mean slowdown against no dequantization",
        choices=(
            _CLOCK,
            "converting goes with the registers of codes, so that 8-bit weights take twice as long as 4-bit ones",
            "a group alone takes 9 of the 20 instructions of a full register, counted from 5.1.2, 5.2.2 and Fig. 9",
            "a scatter takes as long as a gather: 36 packets, the middle of the printed 24 to 48",
        ),
        doubts=("which matrix a range ends at is not printed; here the lower end is FFN down, which has 8 bits",),
    ),
    PrintedTable(
        name="fig14",
        title="Fig. 14: softmax on chip",
        model=tables.fig14,
        label=("over", "end"),
        simplest=simplest.FIG14,
        fitted=_fitted("step_packets", "row_packets"),
        fitted_to="the two ends of the speedup over 32-bit exponentials",
        choices=(
            "degrees of the polynomials by Taylor's remainder below half a unit: 9 in 32 bits, 5 in 16, and three steps more",
            "10 packets for a register beside its exponentials; one head, a row for each query",
        ),
        doubts=("which lengths a range ends at is not printed", "one predicted cell"),
    ),
    PrintedTable(
        name="memory_power",
        title="7.2.3 and 7.5: memory and power",
        model=tables.memory_power,
        label=("model", "metric"),
        simplest=simplest.MEMORY,
        fitted=_fitted("static_power_w"),
        fitted_to="4.3 W while the 3B network decodes",
        choices=(
            "the session holds layers, cache and the activations of 512 tokens in 32 bits; the process the vocabulary as Q6_K",
            "energies per bit and FLOP and powers of vector units and CPU are assumed",
        ),
        doubts=("5 W is an upper bound",),
    ),
    PrintedTable(
        name="claims",
        title="Prose: logits, addresses, energy",
        model=tables.claims,
        label=("claim_id",),
        simplest=simplest.PROSE,
        choices=("the rate of a CPU core is assumed: it decides the share of the logits",),
        doubts=("close to or above 50 % is what is printed of the share",),
    ),
    PrintedTable(
        name="table2_hvx_hmx",
        title="Table 2: rates",
        model=tables.table2,
        label=("hardware_unit",),
        simplest=simplest.INPUTS,
        doubts=(_INPUT,),
    ),
    PrintedTable(
        name="hexagon_specs",
        title="3.1.2 and 5.2.1: what the model reads of the NPU",
        model=tables.specifications,
        label=("component",),
        simplest=simplest.INPUTS,
        doubts=(_INPUT,),
    ),
    PrintedTable(
        name="quantization_and_lut",
        title="5.1 and 5.2: groups and tables",
        model=tables.specifications,
        label=("scheme",),
        simplest=simplest.INPUTS,
        doubts=(_INPUT,),
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
        "fig5": lambda outcome: scaling_figures.budget_figure(scaling()),
        "fig10": lambda outcome: scaling_figures.latency_figure(scaling()),
    },
    missed_bars=missed_bars,
)
