"""Networks that run, by the rows of the one table of Hugging Face families.

The reader of config.json (`hwmodels.networks`) gives a `NetworkSpec`; here that becomes a `DecoderConfig`. A new family with
known blocks is a new row, never a branch.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from hwmodels.networks import Family, NetworkSpec, RopeSpec, SharedSizes, read_running
from jaxspec.models.blocks import DenseFeedForward, Experts, GatedDeltaNet, GroupedAttention, LatentAttention
from jaxspec.models.config import DecoderConfig
from jaxspec.models.rope_scaling import SCALINGS, Rope

__all__ = ["config_of", "decoder_config", "family_of"]

#: Fields that a network's description and its configuration here have in common.
SHARED = tuple(field.name for field in dataclasses.fields(SharedSizes))


def decoder_config(raw: dict[str, Any]) -> DecoderConfig:
    """Our static configuration from a parsed config.json.

    Raises:
        NotImplementedError, ValueError: see `read_running`; sizes that do not fit together.
    """
    return config_of(read_running(raw).spec)


def family_of(raw: dict[str, Any]) -> Family:
    """The family of a parsed config.json, or of the text decoder that it describes; see `read_running`."""
    return read_running(raw).family


def config_of(spec: NetworkSpec) -> DecoderConfig:
    """The configuration of a network that was read with its computation. Raises ValueError."""
    dense, attends = (
        DenseFeedForward(gated=spec.gated_ffn),
        GroupedAttention() if spec.latent is None else LatentAttention(),
    )
    main = _rope(spec.rope)
    return DecoderConfig(
        **{name: getattr(spec, name) for name in SHARED},
        rope_theta=main.theta,
        rope_scaling=main.scaling,
        local_rope=spec.local_rope and _rope(spec.local_rope),
        attention=tuple(GatedDeltaNet() if linear else attends for linear in spec.linear_layers),
        feed_forward=tuple(Experts() if mixed else dense for mixed in spec.expert_layers),
        **(spec.computation or {}),
    )


def _rope(spec: RopeSpec) -> Rope:
    return Rope(spec.theta, None if spec.kind == "default" else SCALINGS[spec.kind](**spec.values))
