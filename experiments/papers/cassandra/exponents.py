"""Fig. 6: mean length of a unary-coded exponent, from the statistical model of weights fitted to Huff-LLM's entropies."""

from __future__ import annotations

from collections.abc import Callable

from experiments.papers.huffllm import compression, measure
from experiments.reproduce.paper import Modelled
from experiments.reproduce.printed import PrintedCell

__all__ = ["fitted", "unary_length"]


def unary_length(sample: compression.Sample) -> Callable[[PrintedCell], Modelled | None]:
    """Of the exponents of Llama's weights in bfloat16; the KV cache's entropy, Fig. 6(a), is measured on another network."""
    length = measure.mean_unary_length(sample.counts["Llama", "bfloat16"])
    note = "fitted to another paper's entropies"
    return lambda cell: Modelled(length, "predicted", note) if cell["claim_id"] == "CAS017" else None


def fitted(sample: compression.Sample) -> dict[str, float]:
    """Scale and spread of the weights."""
    return sample.fitted()
