"""Sizes of linear attention: gated delta nets."""

from __future__ import annotations

import dataclasses

__all__ = ["LinearSizes"]


@dataclasses.dataclass(frozen=True)
class LinearSizes:
    """Sizes of gated delta nets.

    Attributes:
        key_heads: heads of queries and of keys. value_heads: of values, a multiple of these; consecutive ones share a key head.
        key_dim, value_dim: elements of a head.
        conv_tokens: tokens that the convolution over queries, keys and values joins, the new one included.
    Raises:
        ValueError: a size below 1, or value heads that are no multiple of the key heads.
    Source: Yang et al. 2024, arXiv:2412.06464, Section 3.3; heads as in Qwen3-Next's network in transformers.
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_tokens: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(f"{name} of linear attention is {value}; it must be at least 1")
        if self.value_heads % self.key_heads:
            raise ValueError(
                f"{self.value_heads} value heads of linear attention cannot share {self.key_heads} key heads; the first must "
                "be a multiple of the second"
            )

    @property
    def keys(self) -> int:
        """Elements of all heads' keys."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """Elements of all heads' values."""
        return self.value_heads * self.value_dim

    @property
    def convolved(self) -> int:
        """Queries, keys and values together."""
        return 2 * self.keys + self.values
