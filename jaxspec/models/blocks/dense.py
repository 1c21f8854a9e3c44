"""The dense feed-forward network, with a gate (SwiGLU, GeGLU) or without."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial

from jaxtyping import Array, Float

from jaxspec.models.blocks.interface import FeedForwardResult, StepInput
from jaxspec.models.norms import ACTIVATIONS, XIELU, xielu
from jaxspec.models.sizes import DecoderSizes
from jaxspec.models.stored import biased_rows

__all__ = ["DenseFeedForward"]


@dataclasses.dataclass(frozen=True)
class DenseFeedForward:
    """Three matrices with a gate, down(activation(gate x) * up x), or two without, down(activation(up x)).

    Source: Shazeer 2020, arXiv:2002.05202; Vaswani et al. 2017, arXiv:1706.03762, Section 3.3.
    """

    gated: bool = True

    def matrices(self, sizes: DecoderSizes) -> dict[str, tuple[int, ...]]:
        """See `Block`."""
        inner, hidden = sizes.intermediate_size, sizes.hidden_size
        into = ("gate", "up") if self.gated else ("up",)
        return dict.fromkeys(into, (inner, hidden)) | {"down": (hidden, inner)}

    @property
    def residual_matrices(self) -> tuple[str, ...]:
        """See `Block`."""
        return ("down",)

    def vectors(self, sizes: DecoderSizes) -> dict[str, tuple[int | tuple[int, ...], float]]:
        """See `Block`."""
        shapes = self.matrices(sizes) if sizes.ffn_bias else {}
        found: dict[str, tuple[int | tuple[int, ...], float]] = XIELU if sizes.xielu else {}
        return found | {f"{kind}_bias": (rows, 0.0) for kind, (rows, _) in shapes.items()}

    def apply(
        self,
        normed: Float[Array, "batch token hidden"],
        weights: Mapping[str, Array],
        sizes: DecoderSizes,
        step: StepInput,
    ) -> FeedForwardResult:
        """See `FeedForward`."""
        options = {"biased": sizes.ffn_bias, "dot_dtype": step.dot_dtype, "rounded": sizes.rounded_inputs}
        product = partial(biased_rows, weights=weights, **options)
        activation = partial(xielu, weights=weights) if sizes.xielu else ACTIVATIONS[sizes.activation]
        inner = activation(product(normed, kind="gate" if self.gated else "up"))
        if self.gated:
            inner = inner * product(normed, kind="up")
        return FeedForwardResult(product(inner, kind="down"), {"gate_up": normed, "down": inner})
