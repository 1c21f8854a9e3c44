"""Numbers beside the tables: bars of Fig. 12, its alternative, Fig. 14's readings, measurements for Fig. 6 and 7."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np

from experiments.papers.cassandra import area_power, capacity
from experiments.papers.cassandra.measuring import LENGTH, MEASURED
from experiments.papers.cassandra.objective import on_the_grid, scored
from experiments.papers.cassandra.speedups import (
    BENCHMARKS,
    DEVICES,
    FROZEN,
    METHODS,
    MODELS,
    PRUNED_CODED,
    orders,
    speedups,
)
from experiments.papers.cassandra.units import printed_value
from experiments.reproduce.paper import Detail, Outcome

__all__ = ["DETAILS", "better_together", "missed_bars", "trade_off"]

#: What Fig. 12, 3 and 14 must reach, relative or in percentage points.
_BARS = {"fig12": 0.05, "fig3_points": 2.0, "fig14": 0.05}


def _measured() -> dict[str, Any]:
    return json.loads(MEASURED.read_text(encoding="utf-8"))


def _bars() -> list[dict[str, Any]]:
    found = speedups(FROZEN)
    names = list(itertools.product(DEVICES, METHODS, MODELS, BENCHMARKS))
    values = zip(names, found.speedup.reshape(-1).tolist(), found.length.reshape(-1).tolist(), strict=True)
    keys = ("device", "method", "model", "benchmark")
    return [
        dict(zip(keys, place, strict=True)) | {"speedup": value, "draft_length": length, "status": "predicted"}
        for place, value, length in values
    ]


def _ranges() -> list[dict[str, Any]]:
    printed = [printed_value("claims", claim_id=claim) for claim in ("CAS002", "CAS001")]
    rows = []
    for name, choices in (("frozen: pruned values raw", FROZEN), ("named alternative: coded", PRUNED_CODED)):
        found = speedups(choices).speedup
        ends = [float(found.min()), float(found.max())]
        errors = [value / paper - 1 for value, paper in zip(ends, printed, strict=True)]
        rows.append({"choices": name, "low": ends[0], "high": ends[1], "low_error": errors[0], "high_error": errors[1]})
    return rows


def trade_off() -> dict[str, list[dict[str, float]]]:
    """Fig. 7 by abbreviation: compression and accepted fraction of each draft, rising compression."""
    return {
        name: sorted(
            (row | {"compression": 16 / row["bits_per_weight"]} for row in rows), key=lambda row: row["compression"]
        )
        for name, rows in _measured()["fig7"].items()
    }


def better_together(found: dict[str, list[dict[str, float]]]) -> list[dict[str, float]]:
    """At each compression of a combined draft, what either alone accepts there, between its neighbouring drafts.

    Of combined drafts those that no other of less bits beats. NaN where no draft of one kind compresses as much.
    """
    kept, best = [], -1.0
    for row in sorted(found["VP+MT"], key=lambda row: -row["compression"]):
        if row["alpha_fraction"] > best:
            best = row["alpha_fraction"]
            kept.append(row)

    def alone(name: str, compression: float) -> float:
        points = found[name]
        x, y = ([row[key] for row in points] for key in ("compression", "alpha_fraction"))
        return float(np.interp(compression, x, y, right=np.nan, left=np.nan))

    return [
        {"compression": row["compression"], "VP+MT": row["alpha_fraction"]}
        | {name: alone(name, row["compression"]) for name in ("VP", "MT")}
        for row in reversed(kept)
    ]


def _objective() -> list[dict[str, Any]]:
    """Drafts of Fig. 7 on the paper's grid, with its objective and their predicted speedup."""
    found = _measured()["fig7"]
    return scored(on_the_grid([*found["VP+MT"], *found["VP"]]), LENGTH)


def _fig6() -> list[dict[str, Any]]:
    return [{"what": what} | row | {"status": "measured"} for what, row in _measured()["fig6"].items()]


DETAILS = (
    Detail(
        "fig12_choices",
        "Fig. 12: choices, fixed before any speedup was computed",
        lambda outcome: [{"choice": text} for text in FROZEN.in_words()],
        {"choice": "{choice}"},
    ),
    Detail(
        "fig12_ranges",
        "Fig. 12: both ends, without any fitted number",
        lambda outcome: _ranges(),
        {
            "pruned values": "{choices}",
            "lowest": "{low:.3f} ({low_error:+.1%})",
            "highest": "{high:.3f} ({high_error:+.1%})",
        },
    ),
    Detail(
        "fig12_orders",
        "Fig. 12: orders that the text states",
        lambda outcome: orders(),
        {"order": "{name}", "holds": "{holds}"},
        lambda value: [{"name": name, "holds": holds} for name, holds in value.items()],
    ),
    Detail(
        "fig12_bars",
        "Fig. 12: every bar, predicted",
        lambda outcome: _bars(),
        {
            "device": "{device}",
            "method": "{method}",
            "model": "{model}",
            "benchmark": "{benchmark}",
            "speedup": "{speedup:.3f}",
            "drafted": "{draft_length}",
        },
    ),
    Detail(
        "fig14_readings",
        "Fig. 14: the budget at which both ratios come nearest, by reading; and the ratios with 24 GiB",
        lambda outcome: [reading.listed() for reading in capacity.readings()],
        {
            "separate draft": "{draft}",
            "pruned": "{pruned}",
            "KV bits": "{kv_bits:g}",
            "bits of ends": "{end_bits:g}",
            "budget, GB": "{budget_gb:.2f}",
            "over a draft, over Eagle-3": "{ratios[0]:.2f}, {ratios[1]:.2f}",
            "error": "{error:.1%}",
            "24 GiB": "{at_24_gib[0]:.2f}, {at_24_gib[1]:.2f}",
        },
        lambda value: value[:6],
    ),
    Detail(
        "fig6",
        "Fig. 6 measured on the embedded network: bits per exponent, a codebook per matrix and layer",
        lambda outcome: _fig6(),
        {"what": "{what}", "entropy": "{entropy_bits:.2f}", "unary": "{unary_bits:.2f}", "values": "{values:,}"},
    ),
    Detail(
        "fig7",
        "Fig. 7 measured on the embedded network: accepted fraction of 5 drafted tokens at equal compression",
        lambda outcome: {"drafts": trade_off(), "equal_compression": better_together(trade_off())},
        {
            "compression": "{compression:.2f}x",
            "both": "{VP+MT:.3f}",
            "pruning alone": "{VP:.3f}",
            "truncation alone": "{MT:.3f}",
        },
        lambda value: value["equal_compression"],
    ),
    Detail(
        "objective",
        "Eq. (2) beside the predicted speedup: measured drafts of weights alone, 5 tokens, Llama-3.1-8B on an RTX 4090",
        lambda outcome: _objective(),
        {
            "pruned": "{weight_prune:.0%}",
            "bits cut": "{cut_bits}",
            "bits per weight": "{bits_per_weight:.2f}",
            "accepted": "{alpha_fraction:.3f}",
            "J over the best": "{J:.3f}",
            "speedup": "{speedup:.2f}x",
        },
    ),
)


def missed_bars(outcome: Outcome) -> list[str]:
    """Of the hardware, and of Fig. 3, 12 and 14."""
    missed = area_power.missed_bars(outcome)
    for row in outcome.rows:
        error, claim = row["relative_error"], row["conditions"].get("claim_id", "")
        if row["table"] in ("fig12", "fig14") and error > _BARS[row["table"]]:
            missed.append(f"{row['table']}: {claim} off by {error:.1%}, allowed {_BARS[row['table']]:.0%}")
        elif row["table"] == "fig3" and (points := abs(row["model_value"] - row["paper_value"])) > _BARS["fig3_points"]:
            missed.append(f"fig3: off by {points:.1f} points, allowed {_BARS['fig3_points']:g}")
    for place, holds in orders().items():
        missed += [] if holds else [f"fig12: the order of {place} does not hold"]
    return missed
