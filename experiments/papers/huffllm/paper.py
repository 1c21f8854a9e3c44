"""Huff-LLM's tables, declared: compression, savings of time and energy, areas, and numbers of the prose."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.papers.huffllm import causes, compression, figures, hardware, savings
from experiments.papers.huffllm.details import DETAILS, Solved, missed_bars, put_back, solve
from experiments.papers.huffllm.savings_model import Fitted
from experiments.reproduce.paper import (
    ComparedCell,
    MakeModel,
    Paper,
    Predictor,
    PrintedTable,
    constant,
    each,
    printed_table,
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


_table = functools.partial(printed_table, Path(__file__).parent)

_WEIGHTS = {
    "exponent and lower mantissa of Llama-3-8B in the split 1-5-5-5": lambda solved: (
        solved.sample.fitted() if solved.sample else {}
    )
}


def _numbers(*names: str) -> Callable[[Solved], Mapping[str, float]]:
    return lambda solved: {name: getattr(solved.fitted, name) for name in names}


#: Fitted numbers of the savings, by the table that they were fitted to, with the cells in words.
_FITS = {
    "latency_savings_ws": (
        "16 latencies of the Llamas on the systolic array, tab:main_result_latency",
        _numbers(*Fitted._fields[:1]),
    ),
    "energy_savings_ws": ("36 energies of the Llamas, tab:main_result_energy", _numbers(*Fitted._fields[1:])),
}
_ON_VECTORS, _ON_ARRAY = ("simba WS",), ("systolic WS", "systolic OS")


def _savings_table(name: str, inherited: tuple[str, ...] = ()) -> PrintedTable:
    def reading(architectures: tuple[str, ...]) -> MakeModel:
        """With the chips of these put back, all four numbers fitted anew."""
        return lambda solved: savings.table(
            name, solved.own_bits, compression.printed_bits(), put_back(solved, architectures), architectures
        )

    on_vectors = lambda cell: cell["architecture"] == "simba"
    # Times need no number of the energies.
    inherits = [fit for other, fit in _FITS.items() if other != name and name != "latency_savings_ws"]
    return _table(
        name,
        model=lambda solved: savings.table(name, solved.own_bits, compression.printed_bits(), solved.fitted),
        simplest={
            "a constant per metric, architecture and bandwidth, times 1 - bits / 16": _scaled_bound,
            "1 - bits / 16, all that can be saved": each(_unsaved),
        },
        inherits=dict(inherits) | _WEIGHTS,
        choices={
            "pes": {} if inherited else {"cells": on_vectors, "as_printed": reading(_ON_VECTORS)},
            "folds": {"cells": lambda cell: not on_vectors(cell), "as_printed": reading(_ON_ARRAY)},
            "multiply_adds": {"cells": lambda cell: cell.metric == "energy_saving"},
        },
        inherited=inherited,
        cause=causes.SAVINGS[name],
        **{"fitted": _FITS[name][1]} if name in _FITS else {},
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


TABLES = (
    _table(
        "entropy_splits",
        model=lambda solved: compression.entropies(solved.sample),
        simplest={
            "one constant per metric": constant(),
            "no compression: the field's width": each(lambda row: float(row["conditions"]["field_bits"])),
        },
        fitted=lambda solved: solved.sample.fitted(),
    ),
    _table(
        "compression_ratios",
        model=lambda solved: compression.ratios(solved.sample),
        simplest={
            "one constant per metric": constant(),
            "one constant per metric and number format": constant("number_format"),
        },
        inherits=_WEIGHTS,
    ),
    _savings_table("latency_savings_ws"),
    _savings_table("energy_savings_ws"),
    _savings_table("output_stationary_savings", inherited=("pes",)),
    _savings_table("opt_savings"),
    _table(
        "area",
        model=hardware.areas_table,
        simplest={"the introduction's less than 6 %": each(lambda row: _claim("HUF004"))},
        cause=causes.area,
    ),
    _table(
        "claims",
        model=lambda solved: hardware.claims_table(solved.own_bits, solved.fitted),
        simplest={"the paper's nearest number, or the array's width times its clock": each(_simple_claim)},
        inherits=dict(_FITS.values()) | _WEIGHTS,
        choices={
            "folds": {
                "as_printed": lambda solved: hardware.claims_table(
                    solved.own_bits, put_back(solved, _ON_ARRAY), as_printed=True
                )
            },
            "no_saving": {
                "cells": lambda cell: cell["claim_id"] == "HUF029",
                "as_printed": lambda solved: hardware.claims_table(solved.own_bits, solved.fitted, points=0.0),
            },
        },
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
