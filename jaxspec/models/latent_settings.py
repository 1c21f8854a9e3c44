"""Sizes of latent attention in config.json: read, and written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwmodels.catalog.huggingface import Family
from jaxspec.models.config_values import integer
from jaxspec.models.latent_sizes import LatentSizes
from jaxspec.models.sizes import DecoderSizes

__all__ = ["PLAIN_HEAD_DIM", "read_latent", "written_latent"]

#: The key of the part of a head that is not rotated, which is `DecoderSizes.head_dim`.
PLAIN_HEAD_DIM = "qk_nope_head_dim"

#: What the norms of latents add to the variance: a constant of these networks, which no key of config.json states.
_EPS = 1e-6

#: Elements of a head lie below it: roots of their number are taken.
_MOST_ELEMENTS = 1 << 31


def read_latent(full: Mapping[str, Any], family: Family) -> LatentSizes | None:
    """What a config.json says of latent attention; None in families without.

    Args:
        full: with the family's defaults.
    Raises:
        ValueError: a size is missing, of the wrong kind or out of range.
    """
    if not family.latent:
        return None
    for key in (PLAIN_HEAD_DIM, "qk_rope_head_dim"):
        if integer(full, key) >= _MOST_ELEMENTS:
            raise ValueError(f"{key} is {full[key]}; it must be below {_MOST_ELEMENTS}")
    return LatentSizes(
        kv_rank=integer(full, "kv_lora_rank"),
        rope_head_dim=integer(full, "qk_rope_head_dim"),
        value_head_dim=integer(full, "v_head_dim"),
        query_rank=None if full.get("q_lora_rank") is None else integer(full, "q_lora_rank"),
        norm_eps=_EPS,
    )


def written_latent(sizes: DecoderSizes) -> dict[str, Any]:
    """Keys of config.json that say the sizes of latent attention; none of other networks."""
    latent = sizes.latent
    if latent is None:
        return {}
    return {
        "kv_lora_rank": latent.kv_rank,
        "q_lora_rank": latent.query_rank,
        PLAIN_HEAD_DIM: sizes.head_dim,
        "qk_rope_head_dim": latent.rope_head_dim,
        "v_head_dim": latent.value_head_dim,
        "num_key_value_heads": sizes.num_heads,
    }
