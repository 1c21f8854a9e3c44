"""Shared parts of Huff-LLM's models, and the bars of its reproduction."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

from experiments.papers.huffllm import compression, savings, savings_errors
from experiments.papers.huffllm.savings_model import Fitted
from experiments.reproduce.paper import Outcome

__all__ = ["BARS", "Solved", "from_sample", "missed_bars", "put_back", "solve"]

#: What a reproduction must reach: entropies of the coded split in bits, bits per weight relative.
BARS = {"entropy_bits": 0.1, "bits_per_weight": 0.015}


class Solved(NamedTuple):
    """Drawn weights, bits per FP16 weight by model, and the savings' four numbers fitted with these bits."""

    sample: compression.Sample
    own_bits: Mapping[str, float]
    fitted: Fitted


def solve(seed: int = 0) -> Solved:
    """Draw and fit; about eight seconds."""
    return from_sample(compression.sample(seed))


def put_back(solved: Solved, architectures: tuple[str, ...]) -> Fitted:
    """The savings' numbers fitted anew with the chips of some architectures as printed."""
    return _fitted(tuple(solved.own_bits.items()), architectures)


@functools.cache
def _fitted(own_bits: tuple[tuple[str, float], ...], architectures: tuple[str, ...]) -> Fitted:
    cells = [savings.put_back(cell, architectures) for cell in savings.cells(compression.printed_bits())]
    return savings.calibrate(cells, dict(own_bits))


def from_sample(sample: compression.Sample) -> Solved:
    """Fit the savings with the sample's bits per weight."""
    bits = compression.own_bits(sample)
    return Solved(sample, bits, savings.calibrate(savings.cells(compression.printed_bits()), bits))


def missed_bars(outcome: Outcome) -> list[str]:
    """The cells and the means that miss their bar, in words."""
    missed = []
    for row in outcome.rows:
        error = abs(row["model_value"] - row["paper_value"])
        name, bar = None, 0.0
        if row["conditions"].get("split") == compression.CODED_SPLIT and row["metric"] == "entropy":
            name, bar = "entropy_bits", BARS["entropy_bits"]
        elif row["metric"] == "bits_per_param":
            name, bar = "bits_per_weight", BARS["bits_per_weight"] * row["paper_value"]
        if name and error > bar:
            missed.append(f"{name}: {row['conditions']} off by {error:.3f}, allowed {bar:.3f}")
    return missed + savings_errors.missed_bars(outcome.details["savings"]["own"])
