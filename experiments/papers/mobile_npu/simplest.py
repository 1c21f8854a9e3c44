"""The simplest predictors: constants, the paper's other cells, and sums without the parts that the model adds."""

from __future__ import annotations

from experiments.papers.mobile_npu import memory
from experiments.papers.mobile_npu.printed import CONTEXT, printed
from experiments.papers.mobile_npu.tables import share_of_parameters
from experiments.reproduce.errors import constant, each
from experiments.reproduce.paper import ComparedCell
from hwmodels.numerics.units import KIB

__all__ = ["FIG14", "FIG15", "INPUTS", "MEMORY", "PROSE"]

_OTHER_END = {"lowest": "highest", "highest": "lowest"}


def _other_end(row: ComparedCell) -> float | None:
    """The printed other end of the same range, by the ratio of stored bits: half of the cells go in."""
    over, end = (row["conditions"][key] for key in ("over", "end"))
    if end not in _OTHER_END:
        return None
    narrow, wide = (printed("quantization_and_lut", "bits_per_weight", scheme=scheme) for scheme in ("Q4_0", "Q8_0"))
    ratio = narrow / wide if end == "lowest" else wide / narrow
    return printed("fig15", over=over, end=_OTHER_END[end]) * ratio


FIG15 = {"one constant per version": constant("over"), "the printed other end, by stored bits": each(_other_end)}

_HIGHEST = printed("fig14", over="32-bit floating-point exp", end="highest")

FIG14 = {
    "the printed speedup over 32 bits": each(lambda row: _HIGHEST),
    "the same by the bits of a number": each(lambda row: _HIGHEST / 2.0),
}


def _without_activations(row: ComparedCell) -> float | None:
    model = row["conditions"]["model"]
    if row["metric"] == "dmabuf_memory":
        return memory.weights_and_cache_mib(model, CONTEXT)
    if row["metric"] == "total_memory":
        return printed("memory_power", "dmabuf_memory", model=model) / KIB
    return None


MEMORY = {
    "one constant": constant(),
    "weights and cache; for the total, the printed session": each(_without_activations),
}

PROSE = {"parameters alone": each(share_of_parameters)}

INPUTS = {"one constant": constant()}
