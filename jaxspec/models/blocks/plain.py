"""The dense feed-forward network without a gate."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

from jaxtyping import Array, Float

from jaxspec.models.activations import ACTIVATIONS
from jaxspec.models.blocks.interface import FeedForwardResult
from jaxspec.models.dots import biased_rows
from jaxspec.models.sizes import DecoderSizes

__all__ = ["PlainFeedForward"]


@dataclasses.dataclass(frozen=True)
class PlainFeedForward:
    """Two matrices: down(activation(up x)).

    Source: Vaswani et al. 2017, arXiv:1706.03762, Section 3.3.
    """

    def matrices(self, sizes: DecoderSizes) -> dict[str, tuple[int, ...]]:
        """See `Block`."""
        inner, hidden = sizes.intermediate_size, sizes.hidden_size
        return {"up": (inner, hidden), "down": (hidden, inner)}

    @property
    def residual_matrices(self) -> tuple[str, ...]:
        """See `Block`."""
        return ("down",)

    def vectors(self, sizes: DecoderSizes) -> dict[str, tuple[int, float]]:
        """See `Block`."""
        shapes = self.matrices(sizes) if sizes.ffn_bias else {}
        return {f"{kind}_bias": (rows, 0.0) for kind, (rows, _) in shapes.items()}

    def architecture_fields(self, sizes: DecoderSizes, layers: int) -> dict[str, float]:
        """See `Block`."""
        vectors = sum(length for length, _ in self.vectors(sizes).values())
        return {"intermediate_size": sizes.intermediate_size, "gated_ffn": False, "vectors_per_layer": vectors}

    def apply(
        self,
        normed: Float[Array, "batch token hidden"],
        weights: Mapping[str, Array],
        sizes: DecoderSizes,
        dot_dtype: Any = None,
    ) -> FeedForwardResult:
        """See `FeedForward`."""
        product = partial(biased_rows, weights=weights, biased=sizes.ffn_bias, dot_dtype=dot_dtype)
        inner = ACTIVATIONS[sizes.activation](product(normed, kind="up"))
        return FeedForwardResult(product(inner, kind="down"), {"gate_up": normed, "down": inner})
