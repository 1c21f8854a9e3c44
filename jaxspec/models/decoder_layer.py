"""One layer of a decoder: attention and a feed-forward network, each normed and added to its input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxtyping import Array, Float

from jaxspec.models.blocks import Attention, FeedForward, StepInput
from jaxspec.models.norms import NORMS
from jaxspec.models.router import RouterChoices
from jaxspec.models.sizes import DecoderSizes

__all__ = ["LayerResult", "decoder_layer"]


class LayerResult(NamedTuple):
    """What a layer puts out, the keys and values it wrote (in the layouts of `KVCache`), its matrices' inputs by group, and the
    choices of its router, where it has one."""

    output: Float[Array, "batch token hidden"]
    written: tuple[Array, Array]
    inputs: dict[str, Array]
    choices: RouterChoices | None = None


def decoder_layer(
    x: Float[Array, "batch token hidden"],
    weights: Mapping[str, Any],
    sizes: DecoderSizes,
    kinds: tuple[Attention, FeedForward],
    step: StepInput,
    attending: Float[Array, "batch token column"] | None = None,
) -> LayerResult:
    """One layer: attention and feed-forward, one behind the other or side by side, each normed before, after or both, and added
    to its input. It computes in the type of `x`.

    Args:
        weights: of this layer alone, without the layer axis.
        kinds: of its blocks.
        attending: what attention reads; None: `x`, normed.
    """
    attention, feed_forward = kinds
    norm = NORMS[sizes.norm]
    before = lambda x, name: norm.apply(x, weights, name, sizes.norm_eps) if sizes.pre_norms else x

    def added(x: Array, output: Array, name: str) -> Array:
        output = norm.apply(output, weights, name, sizes.norm_eps) if sizes.post_norms else output
        return x + (output if sizes.residual_scale == 1 else sizes.residual_scale * output)

    attending = before(x, "attention_norm") if attending is None else attending
    attended = attention.apply(attending, weights, sizes, step)
    x = added(x, attended.output, "attention_post_norm")
    fed = feed_forward.apply(attending if sizes.parallel else before(x, "mlp_norm"), weights, sizes, step)
    x = added(x, fed.output, "mlp_post_norm")
    return LayerResult(x, attended.written, attended.inputs | fed.inputs, fed.choices)
