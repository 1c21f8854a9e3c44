"""The dense feed-forward network with a gate (SwiGLU)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
from jaxtyping import Array, Float

from jaxspec.models.blocks.interface import FeedForwardResult
from jaxspec.models.dots import dot_rows
from jaxspec.models.sizes import DecoderSizes

__all__ = ["DenseFeedForward"]


@dataclasses.dataclass(frozen=True)
class DenseFeedForward:
    """Three matrices: down(silu(gate x) * up x).

    Source: Shazeer 2020, arXiv:2002.05202.
    """

    def matrices(self, sizes: DecoderSizes) -> dict[str, tuple[int, ...]]:
        """See `Block`."""
        inner, hidden = sizes.intermediate_size, sizes.hidden_size
        return {"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}

    @property
    def residual_matrices(self) -> tuple[str, ...]:
        """See `Block`."""
        return ("down",)

    def vectors(self, sizes: DecoderSizes) -> dict[str, tuple[int, float]]:
        """See `Block`."""
        return {}

    def architecture_fields(self, sizes: DecoderSizes, layers: int) -> dict[str, float]:
        """See `Block`."""
        return {"intermediate_size": sizes.intermediate_size}

    def apply(
        self,
        normed: Float[Array, "batch token hidden"],
        weights: Mapping[str, Array],
        sizes: DecoderSizes,
        dot_dtype: Any = None,
    ) -> FeedForwardResult:
        """See `FeedForward`."""
        product = lambda x, kind: dot_rows(x, weights[kind].astype(x.dtype), dot_dtype)
        inner = jax.nn.silu(product(normed, "gate")) * product(normed, "up")
        return FeedForwardResult(product(inner, "down"), {"gate_up": normed, "down": inner})
