"""Parameters of a network as checkpoints store them: one tensor per layer, under the names of a family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxspec.models.config import DecoderConfig, LayerParameter

__all__ = ["Path", "StoredParameter", "layer_parameters", "lookup", "network_parameters", "stored_tensors"]

#: Place of a parameter in the nested dictionary of all.
Path = tuple[str, ...]


class StoredParameter(NamedTuple):
    """Where a parameter lies in a checkpoint.

    Attributes:
        tensor: its name, with `{layer}` for the layer's number in those of layers.
        shape: of one tensor.
        of_layers: the layers that have it, whose tensors are stacked; None for a parameter outside the layers.
    """

    tensor: str
    shape: tuple[int, ...]
    of_layers: LayerParameter | None = None


def layer_parameters(config: DecoderConfig, tensors: Mapping[str, str]) -> dict[Path, StoredParameter]:
    """The parameters of the layers, by their places; `tensors` maps names of parameters to those of tensors."""
    order = {name: place for place, name in enumerate(tensors)}
    return {
        ("layers", name): StoredParameter(tensors[name], parameter.shape, parameter)
        for name, parameter in sorted(config.layer_parameters.items(), key=lambda item: order[item[0]])
    }


def network_parameters(config: DecoderConfig, tensors: Mapping[str, str]) -> dict[Path, StoredParameter]:
    """All parameters of a network, by their places; a head that is tied to the embedding has none."""
    embedding = (config.vocab_size, config.hidden_size)
    outside = {"embed": embedding, "final_norm": (config.hidden_size,)}
    if not config.tie_embeddings:
        outside["lm_head"] = embedding
    named = {(name,): StoredParameter(tensors[name], shape) for name, shape in outside.items()}
    return named | layer_parameters(config, tensors)


def lookup(tree: dict[str, Any], path: Path) -> Any:
    """Leaf of a nested dictionary."""
    for key in path:
        tree = tree[key]
    return tree


def stored_tensors(
    params: dict[str, Any], stored: Mapping[Path, StoredParameter], dtype: Any = jnp.bfloat16
) -> dict[str, np.ndarray]:
    """Tensor name -> array, one per layer as checkpoints store them."""
    tensors = {}
    for path, parameter in stored.items():
        value = np.asarray(jnp.asarray(lookup(params, path), dtype))
        if parameter.of_layers is None:
            tensors[parameter.tensor] = value
            continue
        for index, layer in enumerate(parameter.of_layers.layers()):
            tensors[parameter.tensor.format(layer=layer)] = np.ascontiguousarray(value[index])
    return tensors
