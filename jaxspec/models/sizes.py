"""Sizes and constants that all layers of a decoder share."""

from __future__ import annotations

import dataclasses

__all__ = ["DecoderSizes", "RopeScaling"]


@dataclasses.dataclass(frozen=True)
class RopeScaling:
    """Frequency scaling of rotary embeddings, Llama 3.1 style.

    Source: `rope_type = "llama3"` of the Llama 3.1 release (config.json keys of the same names).
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclasses.dataclass(frozen=True)
class DecoderSizes:
    """Static sizes and constants of a decoder; which blocks its layers consist of is added by `DecoderConfig`.

    Attributes:
        intermediate_size: of the dense feed-forward networks.
        num_kv_heads, head_dim, qk_norm, qkv_bias: of grouped-query attention; the last two add norms of queries and keys per
            head, and biases of queries, keys and values.
    Raises:
        ValueError: a size is not positive, or the query heads are no multiple of the KV heads.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    norm_eps: float = 1e-5
    qk_norm: bool = False
    qkv_bias: bool = False
    tie_embeddings: bool = False

    def __post_init__(self) -> None:
        sizes = (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_layers",
            "num_heads",
            "num_kv_heads",
            "head_dim",
        )
        for name in sizes:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"{self.num_heads} query heads cannot share {self.num_kv_heads} KV heads; "
                "the first must be a multiple of the second"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; rotary embeddings need an even one")
