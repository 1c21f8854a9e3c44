"""A network some of whose blocks add nothing to the residual stream, as if they were not there."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxspec.models.config import DecoderConfig
from jaxspec.models.matrix import Made, stack_of
from jaxspec.models.norms import NORMS

__all__ = ["BLOCKS", "block_parameters", "without_blocks"]

#: The two blocks of a layer, in their order, and the norm behind each.
BLOCKS = ("attention", "feed_forward")
_POST_NORMS = ("attention_post_norm", "mlp_post_norm")


def without_blocks(params: dict[str, Any], config: DecoderConfig, run: Float[Array, "2 layer"]) -> dict[str, Any]:
    """Parameters of the network in which a block writes `run` times what it would to the residual stream.

    What writes there is scaled: matrices, their biases, and norms behind them. 0 is as good as skipping the block, but takes
    its time here; keys and values of a skipped attention block are computed and seen by nobody.

    Args:
        run: 0 or 1 for attention (row 0) and feed-forward network (row 1) of each layer; may be traced.
    """
    scaled: dict[str, Any] = {}
    for block in range(len(BLOCKS)):
        for name in _writing(config, block):
            scale = run[block, jnp.asarray(list(config.layer_parameters[name].layers()))]
            scaled[name] = Made.of(stack_of(params["layers"][name]), _scaled, scale)
    return params | {"layers": params["layers"] | scaled}


def block_parameters(config: DecoderConfig, block: int) -> list[str]:
    """Matrices of all layers' blocks of one kind, in the order of `BLOCKS`."""
    return list(
        dict.fromkeys(
            name for layer in range(config.num_layers) for name in config.blocks(layer)[block].matrices(config)
        )
    )


def _writing(config: DecoderConfig, block: int) -> list[str]:
    """Parameters of a block whose values go to the residual stream, or are the last that change what goes there."""
    kinds = {config.blocks(layer)[block] for layer in range(config.num_layers)}
    matrices = [name for kind in kinds for name in kind.residual_matrices]
    behind = [*(f"{name}_bias" for name in matrices), *NORMS[config.norm].vectors(_POST_NORMS[block])]
    return [name for name in dict.fromkeys([*matrices, *behind]) if name in config.layer_parameters]


def _scaled(values: Array, scale: Float[Array, ""]) -> Array:
    return values * scale.astype(values.dtype)
