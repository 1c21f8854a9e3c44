"""Rows of the figures whose numbers the text states, of Table I and of Table IV."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from experiments.papers.cassandra import capacity, speedups
from experiments.papers.cassandra.speedups import FROZEN
from experiments.papers.cassandra.units import printed_value
from experiments.reproduce.errors import each
from experiments.reproduce.paper import ComparedCell, MakePredictor, Modelled, Predictor, as_printed
from experiments.reproduce.printed import PrintedCell
from hwmodels import catalog, parameters

__all__ = [
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

Model = Callable[[PrintedCell], Modelled | None]


def in_claims(*claims: str) -> Callable[[PrintedCell], bool]:
    """Which cells of the text's statements belong to a figure."""
    return lambda cell: cell["claim_id"] in claims


def ranges(solved: Any, choices: speedups.Choices = FROZEN) -> Model:
    """Fig. 12: both ends of the range."""
    found = speedups.speedups(choices).speedup
    return lambda cell: Modelled(float(found.max() if cell["claim_id"] == "CAS001" else found.min()), "predicted")


def int8(solved: Any) -> Model:
    """VII-A.2: INT8 by the bytes it reads, and what would slow it down to the printed speedup."""
    found = speedups.int8_baseline()
    note = (
        f"the printed one needs {found.overhead_s * 1e3:.1f} ms per step of quantizing and scaling, "
        f"{found.per_activation_s * 1e6:.0f} us for each quantized input"
    )
    return lambda cell: Modelled(found.without_overhead, "predicted", note)


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
    found = {kind: float(count) for kind, count in parameters(architecture).items()}
    layers = float(architecture.num_layers)
    skipped = {
        "CAS027": sum(found[kind] for kind in ("q", "k", "v", "o")) / layers,
        "CAS028": sum(found[kind] for kind in ("gate", "up", "down")) / layers,
    }
    left_out = sum(printed_value("claims", claim_id=claim) * size for claim, size in skipped.items())

    def model(cell: PrintedCell) -> Modelled | None:
        if cell["claim_id"] != "CAS030":
            return None
        return Modelled(100 * (1 - left_out / sum(found.values())), "predicted", "from the numbers of skipped layers")

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
