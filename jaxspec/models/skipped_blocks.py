"""A network some of whose blocks add nothing to the residual stream, as if they were not there."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from jaxspec.models.config import DecoderConfig
from jaxspec.models.norms import NORMS
from jaxspec.models.stored import stack_of
from jaxspec.models.streamed import Stack

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
            parameter = config.layer_parameters[name]
            scale = run[block, jnp.asarray(list(parameter.layers()))]
            experts = parameter.shape[:-2]  # of which programs take single ones
            scale = jnp.broadcast_to(scale.reshape(-1, *[1] * len(experts)), (len(scale), *experts))
            scaled[name] = _Scaled(stack_of(params["layers"][name]), scale)
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


@struct.dataclass
class _Scaled(Stack):
    """A stack whose entries are multiplied, each by its own number."""

    stored: Stack
    scale: Float[Array, "*lead"]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the stored one."""
        return self.stored.shape

    def values(self) -> Array:
        """The array, made here."""
        values = self.stored.values()
        return values * self.scale.reshape(*self.scale.shape, *[1] * (values.ndim - self.scale.ndim)).astype(
            values.dtype
        )
