"""From the network that runs to the architecture that is priced."""

from __future__ import annotations

import collections
from typing import Any

from hwmodels import Architecture
from jaxspec.models.config import DecoderConfig
from jaxspec.models.norms import NORMS

__all__ = ["architecture_of"]


def architecture_of(config: DecoderConfig) -> Architecture:
    """The shapes of a network, for the cost model: every kind of block adds the fields that it decides.

    Returns:
        every leaf a float; equal to what the catalog reads from the same network's config.json.
    Raises:
        NotImplementedError: two kinds of block give one size different values, or windows differ in length, which one
            architecture cannot hold.
    """
    # Beside the scale that every norm has.
    norm_biases = config.hidden_size * (len(NORMS[config.norm].vectors("norm")) - 1)
    fields: dict[str, float] = {
        "num_layers": config.num_layers,
        "hidden_size": config.hidden_size,
        "vocab_size": config.vocab_size,
        "tied_embeddings": config.tie_embeddings,
        # Of a network without dense layers, as the catalog has it.
        "intermediate_size": 0,
        "norms_per_layer": len(config.block_norms),
        "vectors_per_layer": len(config.block_norms) * norm_biases,
        "vectors_outside_layers": norm_biases,
        "learned_positions": 0 if config.learned_positions is None else config.learned_positions.rows,
        **_windows(config),
    }
    counted: collections.Counter[Any] = collections.Counter()
    for run in config.runs:
        for block in (run.attention, run.feed_forward):
            counted[block] += run.stop - run.start
    decided: dict[str, float] = {}
    stored = config.num_layers * fields["vectors_per_layer"]
    for block, layers in counted.items():
        for name, value in block.architecture_fields(config, layers).items():
            if name == "vectors_per_layer":
                stored += value * layers
            elif decided.setdefault(name, value) != value:
                raise NotImplementedError(
                    f"layers with {name} {decided[name]} and {value} cannot be priced as one architecture; allowed is one value"
                )
    decided["vectors_per_layer"] = stored / config.num_layers  # an average over layers
    return Architecture(**{name: float(value) for name, value in (fields | decided).items()})


def _windows(config: DecoderConfig) -> dict[str, float]:
    lengths = {window for window in config.windows if window is not None}
    if len(lengths) > 1:
        found = " and ".join(map(str, sorted(lengths)))
        raise NotImplementedError(
            f"windows of {found} tokens cannot be priced as one architecture; allowed is one length"
        )
    layers = sum(window is not None for window in config.windows) * config.num_layers // len(config.windows)
    return {"num_window_layers": layers, "window_tokens": max(lengths, default=0)}
