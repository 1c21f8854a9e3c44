"""Sizes of multi-head latent attention."""

from __future__ import annotations

import dataclasses

__all__ = ["LatentSizes"]


@dataclasses.dataclass(frozen=True)
class LatentSizes:
    """Sizes of multi-head latent attention, whose keys and values come out of one short vector per token.

    Attributes:
        kv_rank: elements of that vector, the latent.
        rope_head_dim: rotated elements of each head's query, and of the one key that all heads share. The part of a head that
            is not rotated has `DecoderSizes.head_dim`.
        value_head_dim: of each head's values.
        query_rank: elements of the latent of queries; None: they come from the hidden state directly.
        norm_eps: what the norms of latents add to the variance.
    Raises:
        ValueError: a size below 1, or an odd number of rotated elements.
    Source: DeepSeek-V2, arXiv:2405.04434, Section 2.1.
    """

    kv_rank: int
    rope_head_dim: int
    value_head_dim: int
    query_rank: int | None = None
    norm_eps: float = 1e-6

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and value <= 0:
                raise ValueError(f"{name} is {value}; it must be above 0")
        if self.rope_head_dim % 2:
            raise ValueError(f"rope_head_dim is {self.rope_head_dim}; rotary embeddings need an even one")
