"""Parameters of a network as checkpoints store them: one tensor per layer, under the names of a family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from hwmodels.networks import Running
from jaxspec.models.config import DecoderConfig, LayerParameter

__all__ = ["FusedRows", "Path", "StoredParameter", "layer_parameters", "lookup", "network_parameters", "stored_tensors"]

#: Place of a parameter in the nested dictionary of all.
Path = tuple[str, ...]


class FusedRows(NamedTuple):
    """Rows of one parameter in a tensor that holds those of several: group after group, in each some rows of every one.

    Attributes:
        groups: 1 where parameters stand one below the other; as many as heads where each head's rows of every one follow each
            other; as many as rows where the rows alternate.
        first, rows: the parameter's in each group.
        of: rows of a group.
    """

    groups: int
    first: int
    rows: int
    of: int

    @property
    def tensor_rows(self) -> int:
        """Of the tensor."""
        return self.groups * self.of

    @property
    def indices(self) -> slice | np.ndarray:
        """The parameter's rows in the tensor: a slice where they are evenly spaced, else their numbers."""
        if self.groups == 1:
            return slice(self.first, self.first + self.rows)
        if self.rows == 1:
            return slice(self.first, None, self.of)
        return (np.arange(self.groups)[:, None] * self.of + self.first + np.arange(self.rows)).reshape(-1)


class FusedSections(NamedTuple):
    """Rows of a parameter that consists of several sections, one below the other, each fused by itself.

    Attributes:
        sections: in the order of the parameter's rows, of one tensor.
    """

    sections: tuple[FusedRows, ...]

    @property
    def tensor_rows(self) -> int:
        """Of the tensor."""
        return self.sections[0].tensor_rows

    @property
    def indices(self) -> np.ndarray:
        """The parameter's rows in the tensor, by their numbers."""
        rows = np.arange(self.tensor_rows)
        return np.concatenate([rows[section.indices] for section in self.sections])


class StoredParameter(NamedTuple):
    """Where a parameter lies in a checkpoint.

    Attributes:
        tensor: its name; `{layer}` is the layer's number, `{expert}` that of the part along the first axis of `shape`, each of
            which is a tensor of its own.
        shape: in one layer.
        of_layers: the layers that have it, whose tensors are stacked; None for a parameter outside the layers.
        fused: its place in a tensor that holds several parameters; None: the tensor is the parameter's own.
        row_axis: axis of its output rows, counted from the last one.
        transposed: the tensor has the last two axes of the parameter, input columns and output rows, exchanged.
        unit_axis: the tensor has one more axis, of length 1, before the last.
    """

    tensor: str
    shape: tuple[int, ...]
    of_layers: LayerParameter | None = None
    fused: FusedRows | FusedSections | None = None
    row_axis: int = -2
    transposed: bool = False
    unit_axis: bool = False

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
        shape = list(self.part_shape)
        if self.fused is not None:
            shape[self.row_axis] = self.fused.tensor_rows
        if self.transposed:
            shape[-2:] = reversed(shape[-2:])
        if self.unit_axis:
            shape.insert(-1, 1)
        return tuple(shape)

    def part_of(self, tensor: np.ndarray) -> np.ndarray:
        """What a tensor has of it: a view where its rows are evenly spaced."""
        return self._by_row(tensor)[self._rows]

    def place_in(self, tensor: np.ndarray, part: np.ndarray) -> None:
        """Write it to its place in a tensor."""
        self._by_row(tensor)[self._rows] = part

    def _by_row(self, tensor: np.ndarray) -> np.ndarray:
        tensor = tensor[..., 0, :] if self.unit_axis else tensor
        return tensor.swapaxes(-1, -2) if self.transposed else tensor

    @property
    def _rows(self) -> tuple[Any, ...]:
        if self.fused is None:
            return ()
        return (..., self.fused.indices, *(slice(None),) * (-1 - self.row_axis))

    @property
    def stacked_shape(self) -> tuple[int, ...]:
        """Shape of the parameter, all layers together."""
        return self.shape if self.of_layers is None else (self.of_layers.num_layers, *self.shape)

    @property
    def lead(self) -> tuple[int, ...] | None:
        """Axes before a matrix or vector: layers, or layers and experts; None: outside the layers."""
        if self.of_layers is None:
            return None
        return (self.of_layers.num_layers, *self.shape[: len(self.shape) + self.row_axis])

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
    linear = config.linear
    groups_of = {
        "whole": lambda rows: 1,
        "head": lambda rows: config.num_heads,
        "key_head": lambda rows: 1 if linear is None else linear.key_heads,
        "row": min,
    }
    # Parameters whose rows are of several kinds, each of which has its own place in a group.
    sections = (
        {} if linear is None or linear.convolution_alone else {"in_qkv": (linear.keys, linear.keys, linear.values)}
    )
    found: dict[Path, StoredParameter] = {}
    for name, parameter in sorted(config.layer_parameters.items(), key=lambda item: order[item[0]]):
        axis = -2 if parameter.initial is None else -1
        stored = StoredParameter(row.tensors[name], parameter.shape, parameter, row_axis=axis)
        if name in fused:
            tensor, names = fused[name]
            rows = [sections.get(other, (config.layer_parameters[other].shape[axis],)) for other in names]
            groups = groups_of[row.fused_by.get(tensor, "whole")]([sum(own) for own in rows])
            fused_rows = _fused(rows, groups, names.index(name))
            stored = stored._replace(tensor=tensor, fused=fused_rows)
        transposed, unit_axis = stored.tensor in row.transposed, stored.tensor in row.unit_axes
        found["layers", name] = stored._replace(transposed=transposed, unit_axis=unit_axis)
    return found


def _fused(rows: Sequence[tuple[int, ...]], groups: int, place: int) -> FusedRows | FusedSections:
    """Place of one of the parameters of a tensor, of which each has these rows in its sections."""
    each = [count // groups for own in rows for count in own]
    first = sum(map(len, rows[:place]))
    found = tuple(
        FusedRows(groups, sum(each[:section]), each[section], sum(each))
        for section in range(first, first + len(rows[place]))
    )
    return found[0] if len(found) == 1 else FusedSections(found)


def network_parameters(config: DecoderConfig, row: Running) -> dict[Path, StoredParameter]:
    """All parameters of a network, by their places; a head that is tied to the embedding has none."""
    outside = config.outside_parameters.items()
    named: dict[Path, StoredParameter] = {
        (name,): StoredParameter(row.tensors[name], shape) for name, (shape, _) in outside
    }
    return named | layer_parameters(config, row)


def head_tensor(config: DecoderConfig, row: Running) -> str:
    """Name of the tensor that holds the LM head: where it is tied to the embedding, the embedding's."""
    return row.tensors["embed" if config.tie_embeddings else "lm_head"]


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
            parameter.place_in(tensors.setdefault(name, np.empty(parameter.tensor_shape, part.dtype)), part)
    return tensors
