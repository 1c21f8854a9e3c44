"""From the network that runs to its description, and to the architecture that is priced."""

from __future__ import annotations

import collections
from typing import Any

from hwmodels import Architecture
from hwmodels.networks import NetworkSpec, RopeSpec
from jaxspec.models.config import RECURRENT, SHARED, DecoderConfig
from jaxspec.models.norms import NORMS
from jaxspec.models.rope import Rope

__all__ = ["architecture_of", "spec_of"]


def architecture_of(config: DecoderConfig) -> Architecture:
    """The shapes of a network, for the cost model.

    A kind of block that `NetworkSpec` does not know says by `architecture_fields(sizes, layers)` which fields it decides where
    so many layers have it, `vectors_per_layer` being stored elements of one of these.

    Returns:
        every leaf a float; equal to what the catalog reads from the same network's config.json.
    Raises:
        NotImplementedError: windows differ in length, which one architecture cannot hold.
    """
    values = spec_of(config).architecture_values()
    counted: collections.Counter[Any] = collections.Counter()
    for run in config.runs:
        for block in (run.attention, run.feed_forward):
            counted[block] += run.stop - run.start
    for block, layers in counted.items():
        if (decided := getattr(block, "architecture_fields", None)) is not None:
            fields = dict(decided(config, layers))
            values["vectors_per_layer"] += fields.pop("vectors_per_layer", 0) * layers / config.num_layers
            values |= {name: float(value) for name, value in fields.items()}
    return Architecture(**values)


def spec_of(config: DecoderConfig) -> NetworkSpec:
    """The description of a network, of which `config_of` makes its configuration again where it knows its kinds of block."""
    layers = range(config.num_layers)
    by_layer = lambda pattern: tuple(pattern[layer % len(pattern)] for layer in layers)
    blocks, router = [config.blocks(layer) for layer in layers], config.router
    own: dict[str, Any] = {name: getattr(config, name) for name in SHARED}
    own |= {"windows": by_layer(config.windows), "rotated": by_layer(config.rotated)}
    return NetworkSpec(
        **own,
        linear_layers=tuple(isinstance(attention, RECURRENT) for attention, _ in blocks),
        expert_layers=tuple(router is not None and router.in_layer(layer) for layer in layers),
        gated_ffn=all(getattr(feed_forward, "gated", True) for _, feed_forward in blocks),
        norms_per_layer=len(config.block_norms),
        norm_biases=len(NORMS[config.norm].vectors("norm")) > 1,
        rope=_spec_of(Rope(config.rope_theta, config.rope_scaling)),
        local_rope=config.local_rope and _spec_of(config.local_rope),
        computation=vars(config),
    )


def _spec_of(rope: Rope) -> RopeSpec:
    return RopeSpec(rope.theta) if rope.scaling is None else RopeSpec(rope.theta, rope.scaling.kind, vars(rope.scaling))
