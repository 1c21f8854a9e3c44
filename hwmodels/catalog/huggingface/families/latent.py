"""Latent attention, and dense families that have it."""

from __future__ import annotations

from typing import Any

from hwmodels.catalog.huggingface.family import Family, sizes
from hwmodels.catalog.huggingface.settings import Settings

__all__ = ["LATENT", "LATENT_DENSE"]

#: Of latent attention: keys and values have as many heads as queries, biases are of what reads or writes the residual stream.
LATENT: dict[str, Any] = {
    "latent": True,
    "qkv_bias": "attention_bias",
    "o_bias": "attention_bias",
    "grouped_queries": False,
    "free_head_dim": False,
}


def _shared_width(settings: Settings) -> int:
    """Width of a head's values where a file of MiniCPM3 has none, as in its release."""
    hidden, heads = settings.size("hidden_size"), settings.size("num_attention_heads")
    if hidden % heads:
        raise settings.error(
            "hidden_size", f"is {hidden}, which {heads} heads do not divide; it must be a multiple of them"
        )
    return hidden // heads


#: One row per family.
LATENT_DENSE: tuple[Family, ...] = (
    Family(
        name="minicpm3",
        defaults=sizes(62, 2560, 6400, 40, 40, 73448, tied=True)
        | {"kv_lora_rank": 256, "q_lora_rank": 768, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32}
        | {"v_head_dim": _shared_width},
        ffn_bias="mlp_bias",
        **LATENT,
    ),
)
