"""Huff-LLM's tables, declared: compression, savings of time and energy, areas, and numbers of the prose."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.papers.huffllm import causes, compression, figures, hardware, savings
from experiments.papers.huffllm.details import DETAILS, Solved, missed_bars, put_back, solve
from experiments.papers.huffllm.savings_model import Fitted
from experiments.reproduce.paper import (
    Choice,
    ComparedCell,
    MakeModel,
    Paper,
    Predictor,
    PrintedTable,
    constant,
    each,
    printed_value,
)

__all__ = ["PAPER"]


def _unsaved(row: ComparedCell) -> float:
    """What is saved if all time and energy goes into reading weights, by the printed compression ratio."""
    return 100 * (1 - compression.printed_bits()[row["conditions"]["model"]] / 16)


def _scaled_bound(rows: Sequence[ComparedCell]) -> Predictor:
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
    ratios = {key: of_printed / squares for key, (of_printed, squares) in sums.items()}
    return lambda row: ratios[group(row)] * _unsaved(row) if group(row) in ratios else None


_TWO = "exponent and lower mantissa of Llama-3-8B in the split 1-5-5-5"
_WEIGHTS = {_TWO: lambda solved: solved.sample.fitted() if solved.sample else {}}

_LATENCY, _ENERGY = "latency_savings_ws", "energy_savings_ws"
_PART = {_LATENCY: Fitted._fields[:1], _ENERGY: Fitted._fields[1:]}
_CELLS = {
    _LATENCY: "16 latencies of the Llamas on the systolic array, tab:main_result_latency",
    _ENERGY: "36 energies of the Llamas, tab:main_result_energy",
}


def _numbers(part: str) -> Callable[[Solved], Mapping[str, float]]:
    return lambda solved: {name: getattr(solved.fitted, name) for name in _PART[part]}


_ON_VECTORS, _ON_ARRAY = ("simba WS",), ("systolic WS", "systolic OS")
_SEEN = "all tables of savings"
_EQUATION = Choice(
    "cycles of the systolic array",
    used="a fold's weights are loaded while the last fold is used",
    printed="Eq. (3): each fold loads first",
    why="a load that nothing hides would itself hide the memory's time, so that little of it would be saved",
    seen=_SEEN,
)


def _choices_of_savings(name: str) -> tuple[Choice, ...]:
    """Of one table; chips are put back with all four numbers fitted anew."""

    def reading(architectures: tuple[str, ...]) -> MakeModel:
        return lambda solved: savings.table(
            name, solved.own_bits, compression.printed_bits(), put_back(solved, architectures), architectures
        )

    on_vectors = lambda cell: cell["architecture"] == "simba"
    pes = Choice(
        "PEs of the vector array",
        used="16 x 16, as section 2.2 has it",
        printed="16 in the table of the chip",
        why="with 16 the benchmark of 92 tokens is bound by computing, so that none of its time would be saved",
        seen=_SEEN,
        cells=on_vectors,
        as_printed=reading(_ON_VECTORS),
    )
    array = dataclasses.replace(_EQUATION, cells=lambda cell: not on_vectors(cell), as_printed=reading(_ON_ARRAY))
    time = Choice(
        "time of a product",
        used="the longer of computing and DRAM, and a fitted share of loading the array",
        why="a sum, a maximum and a p-norm were tried too",
        seen=_SEEN,
    )
    energy = Choice(
        "energy of multiply-adds",
        used="none",
        printed="their number times an energy, which is not given",
        why="printed savings hardly fall with the number of tokens",
        seen=_SEEN,
        cells=lambda cell: cell.metric == "energy_saving",
    )
    return (
        Choice("bits per weight from this project's own compression; one prefill of a layer's matrices"),
        Choice(
            "the vector array's global buffer is as large as all input buffers; a vector is fed to each PE of one side"
        ),
        pes.inherited() if name == "output_stationary_savings" else pes,
        array,
        time,
        *(() if name == _LATENCY else (energy,)),
    )


_NO_TIME = (
    "energies: A.1 has no time in them, so that no bandwidth could matter; printed savings differ by 1.8 to 3.7 points between "
    "64 and 128 GB/s (detail energy_terms)"
)


def _savings_table(name: str, title: str, doubts: tuple[str, ...] = ()) -> PrintedTable:
    energy = {} if name == _LATENCY else {_CELLS[_ENERGY]: _numbers(_ENERGY)}
    fits = {_CELLS[_LATENCY]: _numbers(_LATENCY)} | energy
    own = name in _CELLS
    doubts = doubts if name == _LATENCY else (*doubts, _NO_TIME)
    return PrintedTable(
        name=name,
        title=title,
        model=lambda solved: savings.table(name, solved.own_bits, compression.printed_bits(), solved.fitted),
        label=("model", "benchmark", "bandwidth_gbps", "architecture", "dataflow"),
        simplest={
            "a constant per metric, architecture and bandwidth, times 1 - bits / 16": _scaled_bound,
            "1 - bits / 16, all that can be saved": each(_unsaved),
        },
        fitted=_numbers(name) if own else lambda solved: {},
        fitted_to=_CELLS[name] if own else "",
        inherits={where: numbers for where, numbers in fits.items() if not own or where != _CELLS[name]} | _WEIGHTS,
        choices=_choices_of_savings(name),
        doubts=doubts,
        cause=causes.SAVINGS[name],
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


_ROWS = Choice("weights are Gaussian rows of log-normal scale; families differ in the format they were born in alone")
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
        choices=(_ROWS,),
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
        inherits=_WEIGHTS,
        choices=(
            _ROWS,
            Choice("Llama 2 was born in bfloat16, in which it was trained, Vicuna in float16, in which it was saved"),
            Choice("codebooks and padding are not counted"),
        ),
        doubts=(
            "Llama 2 is released in float16, too: taken to be born so, it would have 13.6 bits for the printed 10.88",
        ),
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
        ("captions say 14 bits for 16; by the ratios, which count, 13 of 36 latencies save more than all",),
    ),
    PrintedTable(
        name="area",
        title="3.1 and 5.2: areas",
        model=hardware.areas_table,
        label=("component",),
        simplest={"the introduction's less than 6 %": each(lambda row: _claim("HUF004"))},
        doubts=("6.13 % follows from no count of decoders",),
        cause=causes.area,
    ),
    PrintedTable(
        name="claims",
        title="6: the roofline at 256 GB/s",
        model=lambda solved: hardware.claims_table(solved.own_bits, solved.fitted),
        label=("claim_id",),
        simplest={"the paper's nearest number, or the array's width times its clock": each(_simple_claim)},
        inherits={where: _numbers(name) for name, where in _CELLS.items()} | _WEIGHTS,
        choices=(
            dataclasses.replace(
                _EQUATION,
                as_printed=lambda solved: hardware.claims_table(
                    solved.own_bits, put_back(solved, _ON_ARRAY), as_printed=True
                ),
            ),
            Choice(
                "where no time is saved",
                used="where it is less than one percentage point",
                printed="latency no longer improves",
                why="a little is saved as long as DRAM is the slower one for any product",
                seen="256 GB/s",
                cells=lambda cell: cell["claim_id"] == "HUF029",
                as_printed=lambda solved: hardware.claims_table(solved.own_bits, solved.fitted, points=0.0),
            ),
        ),
        cause=causes.claims,
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
