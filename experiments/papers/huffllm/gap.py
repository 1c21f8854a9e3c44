"""Why Llama in float16 takes 10.96 bits where the paper's own entropies sum to 10.61: bits per weight, item by item."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.papers.huffllm import measure
from experiments.papers.huffllm.compression import CODED_SPLIT, DATA
from experiments.reproduce.printed import printed_value
from jaxspec.formats import fields
from jaxspec.formats.huffman import MAX_CODE_LENGTH

__all__ = ["explain_gap"]


def explain_gap(llama: np.ndarray, *, column_weights: int = 4096) -> list[dict[str, Any]]:
    """Items from the entropies' sum to Huffman bits, then what neither the paper's table nor this one counts.

    The lower mantissa takes four values almost equally often, and rarely one of 28 others. Entropy hardly sees these, but a
    Huffman code must give one of the four a third bit to make room for them: 0.25 bits times nearly one.

    Args:
        llama: occurrences of every float16 pattern, "matrix pattern".
        column_weights: weights of a column, whose banks are padded to words of 32 bits.
    """
    widths = fields.parse_widths(CODED_SPLIT)
    entropies, bits = measure.field_entropies(llama, widths), measure.coded_bits(llama, "float16")
    excess = bits.mean(axis=0) - entropies
    weights_of_matrix = float(llama.sum(axis=1).mean())
    # Symbol, length and codeword of 32 entries in three fields; a bank ends within a word at any of 32 places.
    codebook = 3 * 32 * (5 + 4 + MAX_CODE_LENGTH) / weights_of_matrix
    items = [
        ("sum of the fields' entropies", float(entropies.sum())),
        ("sign stored raw", float(excess[0])),
        ("Huffman redundancy of the exponent", float(excess[1])),
        ("Huffman redundancy of the upper mantissa", float(excess[2])),
        ("Huffman redundancy of the lower mantissa", float(excess[3])),
        (
            "mean of ratios instead of ratio of means",
            measure.huffman_bits(llama, "float16") - float(bits.sum(axis=1).mean()),
        ),
    ]
    total = sum(value for _, value in items)
    ratio = printed_value(
        DATA / "huffllm_compression_ratios.csv", "compression_ratio", model="Llama-3-8B", number_format="FP16"
    )
    extras = [
        ("Huffman bits per weight (in the table)", total),
        ("not counted: codebooks of a matrix", codebook),
        (f"not counted: padding of three banks of {column_weights} weights", 3 * 15.5 / column_weights),
        (
            "not counted: a buffer of three equally large banks (3.2), in all",
            1 + 3 * float(bits.mean(axis=0)[1:].max()),
        ),
        (f"printed: 16 over a ratio that rounds to {ratio}, least", 16 / (ratio + 0.005)),
        (f"printed: 16 over a ratio that rounds to {ratio}, most", 16 / (ratio - 0.005)),
    ]
    return [{"item": name, "bits_per_weight": value} for name, value in items + extras]
