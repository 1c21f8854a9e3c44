"""Cassandra's tables and figures, declared."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.papers.cassandra import area_power, capacity, details, figures, speedups
from experiments.papers.cassandra.area_power import MM2, npu_decoder, printed_value
from experiments.papers.cassandra.capacity import best_reading
from experiments.papers.cassandra.speedups import BY_TOKEN, FROZEN
from experiments.papers.huffllm import compression
from experiments.reproduce.paper import (
    Choice,
    ComparedCell,
    MakePredictor,
    Modelled,
    Outcome,
    Paper,
    Predictor,
    PrintedCell,
    as_printed,
    constant,
    detail,
    each,
    printed_table,
)
from hwmodels import catalog, parameters

__all__ = [
    "PAPER",
    "blocks_left",
    "capacity_ratios",
    "decode_share",
    "in_claims",
    "inputs",
    "int8",
    "loaded_share",
    "one_constant",
    "ranges",
    "weights_alone",
]


# Rows of the figures whose numbers the text states, of Table I and of Table IV.

Model = Callable[[PrintedCell], Modelled | None]


def in_claims(*claims: str) -> Callable[[PrintedCell], bool]:
    """Which cells of the text's statements belong to a figure."""
    return lambda cell: cell["claim_id"] in claims


def ranges(solved: Any, choices: speedups.Choices = FROZEN) -> Model:
    """Fig. 12: both ends of the range."""
    values = speedups.speedups(choices).speedup
    return lambda cell: Modelled(float(values.max() if cell["claim_id"] == "CAS001" else values.min()), "predicted")


def int8(solved: Any) -> Model:
    """VII-A.2: INT8 by the bytes it reads, and what would slow it down to the printed speedup."""
    baseline = speedups.int8_baseline()
    note = (
        f"the printed one needs {baseline.overhead_s * 1e3:.1f} ms per step of quantizing and scaling, "
        f"{baseline.per_activation_s * 1e6:.0f} us for each quantized input"
    )
    return lambda cell: Modelled(baseline.without_overhead, "predicted", note)


def weights_alone(rows: Sequence[ComparedCell]) -> Predictor:
    """The same range by bits of the layers' weights alone: neither head nor KV cache, everything as compressible."""
    values = [
        max(
            (1 + sum(rate**d for d in range(1, length + 1))) / ((length * draft + verify) / 16)
            for length in speedups.LENGTHS
        )
        for method, at in speedups.METHODS.items()
        for model in speedups.MODELS
        for benchmark in speedups.BENCHMARKS
        for rate in [speedups.token_rate(speedups.acceptance(method, model, benchmark), at)]
        for read in [speedups.footprint(method, FROZEN)]
        for draft, verify in [(float(read.draft_weight_bits["q"]), float(read.target_weight_bits["q"]))]
    ]
    ends = {"CAS001": max(values), "CAS002": min(values)}
    return lambda row: ends.get(row["conditions"]["claim_id"])


def one_constant(*claims: str) -> MakePredictor:
    """The mean of some statements for each of them; a constant of its own for each would repeat the cell."""
    mean = float(np.mean([printed_value("claims", claim_id=claim) for claim in claims]))
    return each(lambda row: mean if row["conditions"]["claim_id"] in claims else None)


def decode_share(solved: Any) -> Model:
    """Fig. 3: prompt and output of equal length; the length itself hardly matters."""
    return lambda cell: Modelled(speedups.decode_share(), "predicted", "1024 tokens each; 99.2 % at 128")


def loaded_share(solved: Any) -> Model:
    """Fig. 13: parameters that Draft&Verify's draft loads, from the layers that it skips."""
    architecture = catalog.architecture("llama-3.1-8b")
    counts = {kind: float(count) for kind, count in parameters(architecture).items()}
    layers = float(architecture.num_layers)
    skipped = {
        "CAS027": sum(counts[kind] for kind in ("q", "k", "v", "o")) / layers,
        "CAS028": sum(counts[kind] for kind in ("gate", "up", "down")) / layers,
    }
    left_out = sum(printed_value("claims", claim_id=claim) * size for claim, size in skipped.items())

    def model(cell: PrintedCell) -> Modelled | None:
        if cell["claim_id"] != "CAS030":
            return None
        return Modelled(100 * (1 - left_out / sum(counts.values())), "predicted", "from the numbers of skipped layers")

    return model


def blocks_left(row: ComparedCell) -> float:
    """Attention and feed-forward blocks of Draft&Verify's draft over those of the target, percent."""
    skipped = sum(printed_value("claims", claim_id=claim) for claim in ("CAS027", "CAS028"))
    return 100 * (1 - skipped / (2 * printed_value("claims", claim_id="CAS029")))


def capacity_ratios(solved: Any) -> Model:
    """Fig. 14: the reading and budget under which both ratios come nearest."""
    best = capacity.best_reading()
    ratios: dict[str, float] = dict(zip(("CAS004", "CAS005"), best.ratios, strict=True))
    note = f"{best.draft}, budget fitted: {best.budget_bytes / 1e9:.2f} GB"
    return lambda cell: Modelled(ratios[cell["claim_id"]], "calibrated", note) if cell["claim_id"] in ratios else None


def inputs(solved: Any) -> Model:
    """Printed values that the models read."""
    return as_printed


def unary_length(sample: compression.Sample) -> Callable[[PrintedCell], Modelled | None]:
    """Of the exponents of Llama's weights in bfloat16; the KV cache's entropy, Fig. 6(a), is measured on another network."""
    length = compression.mean_unary_length(sample.counts["Llama", "bfloat16"])
    note = "fitted to another paper's entropies"
    return lambda cell: Modelled(length, "predicted", note) if cell["claim_id"] == "CAS017" else None


def _share(metric: str) -> Mapping[str, float]:
    column = area_power.table5_areas(metric)
    return {module: 100.0 * value / sum(column.values()) for module, value in column.items()}


def _ratio_from(metric: str):
    """A module's share of a printed column, for the printed ratios alone."""
    shares = _share(metric)
    return lambda row: shares[row["conditions"]["module"]] if row["metric"] == "area_ratio" else None


def _without_shares(row: ComparedCell) -> float:
    return float(area_power.counters_scan()[area_power.COUNTERS - 1]["decoders_together"])


def _unit_figures(solved: Any) -> dict[str, float]:
    areas, ratios = area_power.table5_areas(), area_power.table5_areas("area_ratio")
    return {
        "SRAM area, mm^2": area_power.corrected_sram_area(areas, ratios["SRAM"]),
        "area of a decoder, mm^2": npu_decoder().area_m2 / MM2,
        "power of a decoder, W": npu_decoder().power_w,
    }


def _ratios_explained(outcome: Outcome) -> list[dict[str, Any]]:
    """The identity behind Table V's ratios: errors of the corrected sum, and of the printed one."""
    shares, rows = _share("area"), [row for row in outcome.of("table5_area_power") if row["metric"] == "area_ratio"]
    return [
        {
            "module": row["conditions"]["module"],
            "printed_percent": row["paper_value"],
            "corrected_percent": row["model_value"],
            "of_printed_sum_percent": shares[row["conditions"]["module"]],
            "rounds_to_printed": round(row["model_value"], 1) == row["paper_value"],
        }
        for row in rows
    ]


# Why tables are not reproduced.


def _areas_cause(solved: Any, rows: Sequence[ComparedCell]) -> str:
    areas = area_power.table5_areas()
    ours = sum(areas[module] for module in area_power.CASSANDRA)
    return (
        "nothing is computed: units times counts, and areas over their sum; encoder and decoders are "
        f"{ours:.2f} of {sum(areas.values()):.2f} mm^2"
    )


def _decoders_cause(solved: Any, rows: Sequence[ComparedCell]) -> str:
    (cell,) = (row for row in rows if row["metric"] == "num_cassandra_decoders")
    return (
        f"not printed: the clock and how decoders share the scratchpad's bytes; {len(rows) - 1} cells are read by the model, "
        f"and one whole number is solved from the {cell['paper_value']:.0f} decoders, {_without_shares(cell):.0f} without "
        "shares"
    )


def _overhead_cause(solved: Any, rows: Sequence[ComparedCell]) -> str:
    ratios = [area_power.table5_areas("area_ratio")[module] for module in area_power.CASSANDRA]
    return f"nothing is computed: {ratios[0]:g} and {ratios[1]:g} % of Table V make the {sum(ratios):.1f} %"


def _range_cause(solved: Any, rows: Sequence[ComparedCell]) -> str:
    ways = (
        f"{way['choices']} {way['low_error']:+.1%} and {way['high_error']:+.1%}, with Fig. 14 {way['fig14_error']:.1%} off"
        for way in details.ways_of_storing()
    )
    return f"not printed: how acceptance is counted and how embedding and head are stored; {'; '.join(ways)}"


def _capacity_cause(solved: Any, rows: Sequence[ComparedCell]) -> str:
    way = min(details.ways_of_storing(), key=lambda way: way["fig14_error"])
    return (
        "not printed: budget, separate draft and width of the KV cache, for two numbers; the nearest of "
        f"{len(capacity.readings())} readings is {best_reading().error:.1%} off, under which Fig. 12 would be "
        f"{way['low_error']:+.1%} and {way['high_error']:+.1%}"
    )


def _int8_cause(solved: Any, rows: Sequence[ComparedCell]) -> str:
    printed, terms = rows[0]["paper_value"], speedups.int8_terms()
    first = terms[0]
    missing_s = float(first["quantizing_s"]) * (float(first["quantizing"]) / printed - 1)
    all_three = ", ".join(f"{term['quantizing']:.2f}x" for term in terms)
    return (
        f"missed: bytes give {first['bytes']:.2f}x; kernels of vLLM that dequantize {first['dequantizing']:.2f}x, that "
        f"quantize activations too {all_three} for the three networks; "
        f"{printed:g}x for the first asks for {missing_s * 1e3:.1f} ms more (detail int8_terms)"
    )


_table = functools.partial(printed_table, Path(__file__).parent)

_FIG12 = _table(
    "fig12",
    model=ranges,
    simplest={"one constant": one_constant("CAS001", "CAS002"), "bits of the layers' weights alone": weights_alone},
    choices={"acceptance": {"as_printed": lambda solved: ranges(solved, BY_TOKEN)}},
    where=in_claims("CAS001", "CAS002"),
    cause=_range_cause,
)

TABLES = (
    _table(
        "table5_area_power",
        model=area_power.table5,
        simplest={
            "printed area over the sum of printed areas": each(_ratio_from("area")),
            "the power column's shares": each(_ratio_from("power")),
        },
        fitted=_unit_figures,
        choices={
            "sram": {
                "cells": lambda cell: cell.metric == "area_ratio",
                "as_printed": lambda solved: area_power.table5(solved, as_printed=True),
            }
        },
        cause=_areas_cause,
    ),
    _table(
        "hardware_specs",
        model=area_power.decoders,
        simplest={"the same units without shares": lambda rows: _without_shares},
        fitted=lambda solved: {"zero counters of a unit": float(area_power.COUNTERS)},
        choices={"shares": {"cells": lambda cell: cell.metric == "num_cassandra_decoders"}},
        cause=_decoders_cause,
    ),
    _table(
        "claims",
        model=area_power.overhead,
        simplest={
            "sum of the printed ratios": lambda rows: lambda row: area_power.shares()["area, sum of printed ratios"]
        },
        cause=_overhead_cause,
    ),
    _table(
        "fig6",
        model=unary_length,
        # Another paper's entropy is the lower bound of this length.
        simplest={"the exponent's entropy": lambda rows: lambda row: compression.fitted_cells()["exponent"]},
        inherits={"two entropies of Llama-3-8B printed in Huff-LLM": compression.Sample.fitted},
        where=lambda cell: "Fig. 6(" in cell.conditions.get("conditions", ""),
    ),
    _table("table1_context_length", model=inputs, simplest={"one constant": constant("phase")}),
    _table("table4_acceptance_rate", model=inputs, simplest={"one constant": constant("method")}),
    dataclasses.replace(_FIG12, choices=(*map(Choice, FROZEN.in_words()), *_FIG12.choices)),
    _table(
        "claims_int8",
        model=int8,
        simplest={"half the bits": lambda rows: lambda row: 2.0, "no gain": lambda rows: lambda row: 1.0},
        where=in_claims("CAS019"),
        cause=_int8_cause,
    ),
    _table(
        "fig3",
        model=decode_share,
        simplest={"prefill reads the weights once": lambda rows: lambda row: 100 * 1024 / 1025},
        where=in_claims("CAS006"),
    ),
    _table(
        "fig13",
        model=loaded_share,
        simplest={"share of the blocks that are left": lambda rows: blocks_left},
        where=in_claims("CAS030", "CAS031", "CAS032"),
    ),
    _table(
        "fig14",
        model=capacity_ratios,
        simplest={"one constant": one_constant("CAS004", "CAS005")},
        fitted=lambda solved: {"memory budget, GB": best_reading().budget_bytes / 1e9},
        where=in_claims("CAS004", "CAS005"),
        cause=_capacity_cause,
    ),
)

_detail = functools.partial(detail, Path(__file__).parent)

PAPER = Paper(
    name="cassandra",
    title="Cassandra: Enabling Reasoning LLMs at Edge via Self-Speculative Decoding",
    folder=Path(__file__).parent,
    minutes=0.5,
    tables=TABLES,
    solve=compression.sample,
    details=(
        *details.DETAILS,
        _detail(
            "per_unit",
            lambda outcome: area_power.per_unit(),
            lambda value: [e | {"area_um2": e["area_m2"] * 1e12, "power_uw": e["power_w"] * 1e6} for e in value],
        ),
        _detail("ratios", _ratios_explained),
        _detail("counters", lambda outcome: area_power.counters_scan(), lambda value: value[:8]),
        _detail(
            "shares",
            lambda outcome: area_power.shares(),
            lambda value: [{"name": name, "value": share} for name, share in value.items()],
        ),
        _detail(
            "bounds",
            lambda outcome: details.bounds(),
            lambda value: [
                e
                | {
                    "scaled": f"{e['percent_ideally_scaled']:.3f}" if "die_mm2" in e else "",
                    "unscaled": f"{e['percent_unscaled']:.2f}" if "die_mm2" in e else "",
                }
                for e in value
            ],
        ),
        _detail("checks", lambda outcome: details.checks()),
    ),
    figures={
        "fig7": lambda outcome: figures.trade_off_figure(outcome.details["fig7"]),
        "fig12": lambda outcome: figures.speedup_figure(),
        "fig14": lambda outcome: figures.capacity_figure(),
    },
    missed_bars=details.missed_bars,
)
