"""Parameters of a network as checkpoints store them: one tensor per layer, under the names of a family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from hwmodels.catalog.huggingface import Running
from jaxspec.models.config import DecoderConfig, LayerParameter

__all__ = ["Path", "StoredParameter", "layer_parameters", "lookup", "network_parameters", "stored_tensors"]

#: Place of a parameter in the nested dictionary of all.
Path = tuple[str, ...]


class StoredParameter(NamedTuple):
    """Where a parameter lies in a checkpoint.

    Attributes:
        tensor: its name; `{layer}` is the layer's number, `{expert}` that of the part along the first axis of `shape`, each of
            which is a tensor of its own.
        shape: in one layer.
        of_layers: the layers that have it, whose tensors are stacked; None for a parameter outside the layers.
        first_row, tensor_rows: its place in a tensor that holds several parameters one below the other; None: the tensor is
            the parameter's own.
    """

    tensor: str
    shape: tuple[int, ...]
    of_layers: LayerParameter | None = None
    first_row: int = 0
    tensor_rows: int | None = None

    @property
    def parts(self) -> int | None:
        """Tensors of one layer; None where the layer's array is one tensor."""
        return self.shape[0] if "{expert}" in self.tensor else None

    @property
    def part_shape(self) -> tuple[int, ...]:
        """Shape of what one tensor has of it."""
        return self.shape if self.parts is None else self.shape[1:]

    @property
    def tensor_shape(self) -> tuple[int, ...]:
        """Shape of one tensor."""
        return self.part_shape if self.tensor_rows is None else (self.tensor_rows, *self.part_shape[1:])

    @property
    def rows(self) -> slice:
        """Its rows in each of its tensors."""
        return slice(self.first_row, self.first_row + self.part_shape[0])

    @property
    def stacked_shape(self) -> tuple[int, ...]:
        """Shape of the parameter, all layers together."""
        return self.shape if self.of_layers is None else (self.of_layers.num_layers, *self.shape)

    def is_in(self, layer: int) -> bool:
        """Whether it is a parameter of the layers, and this one has it."""
        return self.of_layers is not None and self.of_layers.in_layer(layer)

    def in_layer(self, layer: int) -> StoredParameter:
        """The parameter in one layer alone, under the names that its tensors have there."""
        return self._replace(tensor=self.tensor.replace("{layer}", str(layer)), of_layers=None)

    def names(self) -> Iterator[str]:
        """Names of its tensors: layer by layer, within a layer part by part."""
        for layer in (0,) if self.of_layers is None else self.of_layers.layers():
            for part in range(self.parts or 1):
                yield self.tensor.format(layer=layer, expert=part)


def layer_parameters(config: DecoderConfig, row: Running) -> dict[Path, StoredParameter]:
    """The parameters of the layers, by their places, under the names that a row gives their tensors."""
    order = {name: place for place, name in enumerate(row.tensors)}
    fused = {name: (tensor, names) for tensor, names in row.fused.items() for name in names}
    found: dict[Path, StoredParameter] = {}
    for name, parameter in sorted(config.layer_parameters.items(), key=lambda item: order[item[0]]):
        stored = StoredParameter(row.tensors[name], parameter.shape, parameter)
        if name in fused:
            tensor, names = fused[name]
            rows = [config.layer_parameters[other].shape[0] for other in names]
            place = names.index(name)
            stored = stored._replace(tensor=tensor, first_row=sum(rows[:place]), tensor_rows=sum(rows))
        found["layers", name] = stored
    return found


def network_parameters(config: DecoderConfig, row: Running) -> dict[Path, StoredParameter]:
    """All parameters of a network, by their places; a head that is tied to the embedding has none."""
    outside = config.outside_parameters.items()
    named: dict[Path, StoredParameter] = {
        (name,): StoredParameter(row.tensors[name], shape) for name, (shape, _) in outside
    }
    return named | layer_parameters(config, row)


def lookup(tree: dict[str, Any], path: Path) -> Any:
    """Leaf of a nested dictionary."""
    for key in path:
        tree = tree[key]
    return tree


def stored_tensors(
    params: dict[str, Any], stored: Mapping[Path, StoredParameter], dtype: Any = jnp.bfloat16
) -> dict[str, np.ndarray]:
    """Tensor name -> array, one per layer (and per part) as checkpoints store them."""
    tensors: dict[str, np.ndarray] = {}
    for path, parameter in stored.items():
        value = np.asarray(jnp.asarray(lookup(params, path), dtype)).reshape(-1, *parameter.part_shape)
        for name, part in zip(parameter.names(), value, strict=True):
            if parameter.tensor_rows is None:
                tensors[name] = np.ascontiguousarray(part)
            else:
                tensors.setdefault(name, np.empty(parameter.tensor_shape, part.dtype))[parameter.rows] = part
    return tensors
