"""Architecture used to price the steps of a draft network: the priced one, scaled as the draft is to the network that runs."""

from __future__ import annotations

import dataclasses
from typing import Any

from hwmodels.network.architecture import Architecture
from hwmodels.numerics.scalars import as_float
from jaxspec.models.config import DecoderConfig

__all__ = ["scaled_architecture"]

#: Size of an architecture -> size of a decoder that it is scaled by.
_SCALED_BY = (
    {size: size for size in ("hidden_size", "num_heads", "num_kv_heads", "head_dim")}
    | dict.fromkeys(("intermediate_size", "expert_intermediate_size", "shared_intermediate_size"), "intermediate_size")
    | dict.fromkeys(("linear_key_heads", "linear_value_heads"), "num_heads")
)

#: Counts that a share of the layers scales.
_LAYERS = ("num_layers", "num_moe_layers", "num_window_layers", "num_linear_layers")


def scaled_architecture(
    own: DecoderConfig, target: DecoderConfig, priced: Architecture, *, layer_share: Any, **changed: Any
) -> Architecture:
    """The priced architecture with its widths in the ratio of the draft's to the measured target's.

    Args:
        own, target: shapes of the draft and of the network that runs.
        layer_share: of the priced network's layers, (0, 1] or a leaf.
        changed: further sizes, by name.
    """
    widths = {
        size: as_float(getattr(priced, size)) * (getattr(own, by) / getattr(target, by))
        for size, by in _SCALED_BY.items()
    }
    layers = {count: as_float(getattr(priced, count)) * layer_share for count in _LAYERS}
    return dataclasses.replace(priced, **widths | layers | changed)
