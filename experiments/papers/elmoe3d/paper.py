"""ELMoE-3D's tables, declared."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from experiments.papers.elmoe3d import figures, measured_figures, tables
from experiments.papers.elmoe3d.details import DETAILS, missed_bars
from experiments.papers.elmoe3d.fitted import EMBEDDING_INSIDE, ONE_RULE, SLICES_ALWAYS, Variant
from experiments.papers.elmoe3d.printed import NAME
from experiments.papers.elmoe3d.results import FITTED_HALF, solve
from experiments.reproduce.paper import Paper, constant, printed_table

__all__ = ["PAPER"]

_table = functools.partial(printed_table, Path(__file__).parent)

#: Choices by the 8 GB half of Table 3; of a variant, the printed reading is fitted to the same half.
_BY_THE_HALF = {
    "acceptance": None,
    "cached": SLICES_ALWAYS,
    "hits": ONE_RULE,
    "embedding": EMBEDDING_INSIDE,
    "experts": None,
    "kv_bits": None,
}


def _of_the_half(variant: Variant | None) -> dict[str, Any]:
    return {
        "cells": lambda cell: cell.conditions.get("hb_capacity_gb") == str(FITTED_HALF),
        "as_printed": variant and (lambda solved: tables.schemes(solve(variant))),
    }


_SCHEMES = _table(
    "table3_sd_schemes",
    model=tables.schemes,
    simplest=tables.simplest_schemes,
    fitted=lambda solved: solved.fit.numbers,
    choices={key: _of_the_half(variant) for key, variant in _BY_THE_HALF.items()},
    cause=tables.schemes_cause,
)

TABLES = (
    _table("table1_system_spec", model=tables.system, simplest={"one constant": constant()}),
    _table("table2_models", model=tables.models, simplest=tables.simplest_models),
    _SCHEMES,
    _table(
        "claims",
        model=tables.claims,
        simplest=tables.simplest_claims,
        inherits={_SCHEMES.fitted_to: lambda solved: solved.fit.numbers},
        choices={
            "energy": {
                "cells": lambda cell: cell["claim_id"] in ("ELM006", "ELM007"),
                "as_printed": lambda solved: tables.claims(solved, all_energies=True),
            }
        },
        inherited=_BY_THE_HALF,
        cause=tables.claims_cause,
    ),
)

PAPER = Paper(
    name=NAME,
    title=(
        "ELMoE-3D: Leveraging Intrinsic Elasticity of MoE for Hybrid-Bonding-Enabled Self-Speculative Decoding "
        "in On-Premises Serving"
    ),
    folder=Path(__file__).parent,
    minutes=3,
    tables=TABLES,
    solve=lambda seed: solve(),
    details=DETAILS,
    figures={
        "table3": lambda outcome: figures.table_figure(outcome.solved),
        "fig4": lambda outcome: figures.intensity_figure(outcome.solved),
        "fig5b": lambda outcome: measured_figures.pool_and_bits_figure(),
        "fig9": lambda outcome: figures.roofline_figure(),
        "fig12": lambda outcome: figures.mapping_figure(outcome.solved),
        "fig13": lambda outcome: figures.latency_figure(outcome.solved),
        "fig14": lambda outcome: figures.platform_figure(outcome.solved),
        "fig15": lambda outcome: figures.energy_figure(outcome.solved),
        "fig16": lambda outcome: figures.locality_figure(outcome.solved),
        "fig17ab": lambda outcome: measured_figures.pools_figure(),
        "fig17c": lambda outcome: measured_figures.readings_figure(),
    },
    missed_bars=missed_bars,
)
