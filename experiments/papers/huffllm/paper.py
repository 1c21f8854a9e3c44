"""Huff-LLM's tables, declared: compression, savings of time and energy, areas, and numbers of the prose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments.papers.huffllm import compression, figures, hardware, savings
from experiments.papers.huffllm.details import DETAILS
from experiments.papers.huffllm.solved import missed_bars, solve
from experiments.reproduce.errors import constant, each
from experiments.reproduce.paper import ComparedCell, Paper, PrintedTable
from experiments.reproduce.printed import printed_value

__all__ = ["PAPER"]


def _unsaved(row: ComparedCell) -> float:
    """What is saved if all time and energy goes into reading weights, by the printed compression ratio."""
    return 100 * (1 - compression.printed_bits()[row["conditions"]["model"]] / 16)


def _scaled_bound(rows: Sequence[ComparedCell]) -> Callable[[ComparedCell], float]:
    """A constant for each metric, architecture and bandwidth, times the bound; least squares over the rows compared."""
    group = lambda row: (
        row["metric"],
        *(row["conditions"][key] for key in ("architecture", "dataflow", "bandwidth_gbps")),
    )
    sums: dict[Any, list[float]] = {}
    for row in rows:
        products = sums.setdefault(group(row), [0.0, 0.0])
        products[0] += _unsaved(row) * row["paper_value"]
        products[1] += _unsaved(row) ** 2
    return lambda row: sums[group(row)][0] / sums[group(row)][1] * _unsaved(row)


def _savings_table(name: str, title: str, doubts: tuple[str, ...] = ()) -> PrintedTable:
    return PrintedTable(
        name=name,
        title=title,
        model=lambda solved: savings.table(name, solved.own_bits, compression.printed_bits(), solved.fitted),
        label=("model", "benchmark", "bandwidth_gbps", "architecture", "dataflow"),
        simplest={
            "a constant per metric, architecture and bandwidth, times 1 - bits / 16": _scaled_bound,
            "1 - bits / 16, all that can be saved": each(_unsaved),
        },
        fitted=lambda solved: solved.fitted._asdict(),
        fitted_to="the Llamas' latencies of the systolic array (WS) and their energies, 52 cells of the first two tables",
        choices=(
            "bits per weight from this project's own compression; one prefill of a layer's matrices",
            "unit energies, the global buffer and what hides what are not printed: see README.md",
        ),
        doubts=doubts,
    )


def _claim(claim_id: str) -> float:
    return printed_value(compression.DATA / "huffllm_claims.csv", claim_id=claim_id)


def _simple_claim(row: ComparedCell) -> float:
    """The number nearest by in the paper: another table's cell, or the array's width times its clock."""
    if row["conditions"]["claim_id"] == "HUF028":
        table = compression.DATA / "huffllm_energy_savings_ws.csv"
        where = {
            "model": "Llama 3.2-3B",
            "benchmark": "MMLU",
            "architecture": "systolic_array",
            "bandwidth_gbps": "128",
        }
        return printed_value(table, "energy_saving", **where)
    return hardware.intake_gbps()


_TWO = "exponent and lower mantissa of Llama-3-8B in the split 1-5-5-5"
_ENTROPY_CHOICES = (
    "weights are Gaussian rows of log-normal scale; families differ in the format they were born in alone",
)
_width = lambda row: float(row["conditions"]["field_bits"])

TABLES = (
    PrintedTable(
        name="entropy_splits",
        title="tab:entropy_splits: entropy of Llama-3-8B's weights by split",
        model=lambda solved: compression.entropies(solved.sample),
        label=("split", "field_name"),
        simplest={"one constant per metric": constant(), "no compression: the field's width": each(_width)},
        fitted=lambda solved: solved.sample.fitted(),
        fitted_to=_TWO,
        choices=_ENTROPY_CHOICES,
        doubts=("4-4-4-4: the entries sum to 11.39, the printed total is 11.09; the last entry stands for 1.04",),
    ),
    PrintedTable(
        name="compression_ratios",
        title="tab:comp_ratios: bits per weight and compression ratio",
        model=lambda solved: compression.ratios(solved.sample),
        label=("model", "number_format"),
        simplest={
            "one constant per metric": constant(),
            "one constant per metric and number format": constant("number_format"),
        },
        fitted=lambda solved: solved.sample.fitted(),
        fitted_to=_TWO,
        choices=(*_ENTROPY_CHOICES, "codebooks and padding are not counted"),
    ),
    _savings_table(
        "latency_savings_ws",
        "tab:main_result_latency: time saved, weight stationary",
        ("MMLU at 128 GB/s: cells of Llama 3-8B and 3.2-3B stand in each other's columns",),
    ),
    _savings_table("energy_savings_ws", "tab:main_result_energy: energy saved, weight stationary"),
    _savings_table(
        "output_stationary_savings",
        "tab:output_stationary: savings, output stationary",
        ("latencies at 128 GB/s are below those at 64 GB/s; the paper's source has them above",),
    ),
    _savings_table(
        "opt_savings",
        "A.2: savings of the OPT models",
        ("captions say 14 bits for 16, with which 12.5 % is the most; every latency is above that",),
    ),
    PrintedTable(
        name="area",
        title="3.1 and 5.2: areas",
        model=hardware.areas_table,
        label=("component",),
        simplest={"the introduction's less than 6 %": each(lambda row: _claim("HUF004"))},
        doubts=("6.13 % follows from no count of decoders",),
    ),
    PrintedTable(
        name="claims",
        title="6: the roofline at 256 GB/s",
        model=lambda solved: hardware.claims_table(solved.own_bits, solved.fitted),
        label=("claim_id",),
        simplest={"the paper's nearest number, or the array's width times its clock": each(_simple_claim)},
        fitted=lambda solved: solved.fitted._asdict(),
        fitted_to="cells of the tables of savings",
        choices=("no time is saved where it is less than one percentage point",),
    ),
)


PAPER = Paper(
    name="huffllm",
    title="Huff-LLM: End-to-End Lossless Compression for Efficient LLM Inference",
    folder=Path(__file__).parent,
    minutes=0.3,
    tables=TABLES,
    solve=solve,
    details=DETAILS,
    figures={
        "compression": lambda outcome: figures.compression_figure(outcome.rows),
        "savings": lambda outcome: figures.savings_figure(outcome.rows),
        "roofline": lambda outcome: figures.roofline_figure(outcome.details["hardware"]),
        "cam": lambda outcome: figures.cam_figure(outcome.details["hardware"]),
    },
    missed_bars=missed_bars,
)
