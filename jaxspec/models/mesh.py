"""Networks on several devices: matrices split over one axis of a mesh, texts and prompts over the other.

Arrays are placed, and programs stay what they are: XLA splits each by where its arguments lie, and adds what devices have to
tell each other. Sums over split channels are taken in another order than on one device, so numbers agree to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from jaxspec.models.config import DecoderConfig
from jaxspec.models.matrix import Stored
from jaxspec.models.streamed import is_in_host

__all__ = [
    "AXES",
    "Shares",
    "activation_shares",
    "by_row",
    "filled_rows",
    "make_mesh",
    "mesh_of",
    "on_host",
    "on_mesh",
    "placed_beside",
    "rows_on_each",
    "rows_that_split",
    "split_by_output",
    "split_inside",
    "split_rows",
    "values_on_each",
]

#: Texts are split over the first axis, matrices over the second.
AXES = ("data", "tensor")

#: Matrices of attention whose outputs are split, and those whose inputs are: each device has whole heads.
_HEADS_BY_OUTPUT, _HEADS_BY_INPUT = ("q", "q_up", "k", "k_up", "v", "v_up"), ("o",)

#: The same of feed-forward networks, by inner channel. Every device has its channels of all experts: whichever a token
#: chooses, devices have equally much to do, and to take an expert out of the stack none has to ask another.
_FEED_FORWARD = ("", "expert_", "shared_")
_BY_OUTPUT = tuple(f"{which}{kind}" for which in _FEED_FORWARD for kind in ("gate", "up"))
_BY_INPUT = tuple(f"{which}down" for which in _FEED_FORWARD)


def make_mesh(data: int, tensor: int) -> Mesh:
    """A mesh of the first devices.

    Raises:
        ValueError: there are fewer.
    """
    devices = jax.devices()
    if data < 1 or tensor < 1 or data * tensor > len(devices):
        raise ValueError(f"a mesh of {data} x {tensor} devices came; there are {len(devices)}")
    return Mesh(np.array(devices[: data * tensor]).reshape(data, tensor), AXES)


def _split(names: Sequence[str | None], shape: tuple[int, ...], config: DecoderConfig, tensor: int) -> PartitionSpec:
    """How a parameter lies on a mesh: whole, where the axis does not divide it.

    Args:
        names: of the parameter, "layers" first of one of the layers; of a stored one, its leaf's behind them.
    """
    attends = config.num_heads % tensor == 0 and config.num_kv_heads % tensor == 0
    by_output, by_input = _BY_OUTPUT + _HEADS_BY_OUTPUT * attends, _BY_INPUT + _HEADS_BY_INPUT * attends
    axes = len(shape)
    if names[0] == "layers" and axes > 2 and names[1] in by_output + by_input:
        axis = axes - (2 if names[1] in by_output else 1)
        if shape[axis] % tensor == 0:
            return PartitionSpec(*("tensor" if place == axis else None for place in range(axes)))
    if names[0] == "embed" and not config.tie_embeddings and shape[1] % tensor == 0:
        # Hidden states then begin split by channel, and XLA keeps them so between layers.
        return PartitionSpec(None, "tensor")
    if names[0] in ("embed", "lm_head") and shape[0] % tensor == 0:
        return PartitionSpec("tensor", None)
    return PartitionSpec()


def on_mesh(params: Any, config: DecoderConfig, mesh: Mesh) -> Any:
    """Parameters on a mesh; of those in host memory (see `Streamed`), each device is given its part alone.

    Shapes alone (`jax.ShapeDtypeStruct`) are told where their arrays would lie.
    """

    def place(path: tuple[Any, ...], leaf: Any) -> Any:
        names = [getattr(key, "key", None) for key in path]
        where = NamedSharding(mesh, _split(names, leaf.shape, config, mesh.shape["tensor"]))
        if isinstance(leaf, jax.ShapeDtypeStruct):
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where)
        if not is_in_host(leaf):
            return _placed(leaf, where)
        narrow = leaf.dtype in (np.dtype(jnp.bfloat16), np.float16)
        read = lambda index: leaf.part(index).view(np.uint16) if narrow else leaf.part(index)
        return Stored(jax.make_array_from_callback(leaf.shape, where, read), leaf.dtype)

    return jax.tree_util.tree_map_with_path(place, params, is_leaf=is_in_host)


def values_on_each(shapes: Mapping[tuple[str, ...], tuple[int, ...]], config: DecoderConfig, tensor: int) -> int:
    """How many values of parameters each device has where matrices are split over so many.

    Args:
        shapes: of parameters by their names, "layers" first of one of the layers, which leads with them.
    """
    return sum(
        math.prod(shape) // (tensor if any(_split(names, shape, config, tensor)) else 1)
        for names, shape in shapes.items()
    )


class Shares(NamedTuple):
    """How many devices share the activations of a pass; 1: each has all of them.

    Attributes:
        heads: queries, keys, values and scores. inner: channels between the matrices of a feed-forward network.
        hidden: channels between layers.
    """

    heads: int
    inner: int
    hidden: int


def activation_shares(config: DecoderConfig, tensor: int) -> Shares:
    """Of a network whose matrices are split over so many devices: activations are split as what writes them is."""
    layers = {name: (config.num_layers, *parameter.shape) for name, parameter in config.layer_parameters.items()}
    over = lambda names: (
        tensor if names and all(any(_split(("layers", n), layers[n], config, tensor)) for n in names) else 1
    )
    written = lambda kinds: [name for name in kinds if name in layers]
    embedding = _split(("embed",), (config.vocab_size, config.hidden_size), config, tensor)
    heads = 1 if config.latent is not None or config.linear is not None else over(written(_HEADS_BY_OUTPUT))
    return Shares(heads, over(written(_BY_OUTPUT)), tensor if embedding == PartitionSpec(None, "tensor") else 1)


def split_by_output(config: DecoderConfig, tensor: int) -> int:
    """Values on each of so many devices of the layers' matrices of which each device has some of the rows."""
    rows, layers = (*_BY_OUTPUT, *_HEADS_BY_OUTPUT), config.layer_parameters
    shapes = {("layers", name): (layers[name].num_layers, *layers[name].shape) for name in rows if name in layers}
    split = {names: shape for names, shape in shapes.items() if any(_split(names, shape, config, tensor))}
    return values_on_each(split, config, tensor) if tensor > 1 else 0


def rows_on_each(rows: int, data: int) -> int:
    """How many texts each device has where so many are filled up and split over so many devices."""
    return -(-rows // data)


def rows_that_split(mesh: Mesh | None, rows: int) -> int:
    """The next number of texts, from this one on, that the data axis of a mesh divides; the number itself on one device."""
    data = 1 if mesh is None else mesh.shape["data"]
    return rows_on_each(rows, data) * data


def filled_rows(mesh: Mesh | None, rows: Array) -> tuple[Array, Float[Array, " row"] | None]:
    """An array that leads with texts, and its last one again, as often as it takes, until the data axis of a mesh divides them;
    and whether each counts, 0 or 1. The array itself and None where the axis divides it, or on one device.

    What the axis does not divide would be whole on each device (see `by_row`).
    """
    count = len(rows)
    place = np.arange(rows_that_split(mesh, count))
    if len(place) == count:
        return rows, None
    return rows[place.clip(max=count - 1)], jnp.asarray(place < count, jnp.float32)


def placed_beside(params: Any, config: DecoderConfig, other: Any) -> Any:
    """Parameters of a network, split over the devices of another network that runs with it; as they are on one device."""
    mesh = mesh_of(other)
    return params if mesh is None else on_mesh(params, config, mesh)


def mesh_of(params: Any) -> Mesh | None:
    """The mesh that parameters lie on; None: one device."""
    found = (leaf.sharding for leaf in jax.tree.leaves(params) if isinstance(leaf, jax.Array))
    mesh = next((place.mesh for place in found if isinstance(place, NamedSharding)), None)
    return mesh if isinstance(mesh, Mesh) and mesh.size > 1 else None


def split_rows(params: Any, *arrays: Array) -> tuple[Array, ...]:
    """Arrays that lead with texts, split over the devices that parameters lie on; as they are where that is one device."""
    mesh = mesh_of(params)
    return arrays if mesh is None else tuple(_placed(array, by_row(mesh, len(array))) for array in arrays)


def _placed(array: Array, where: NamedSharding) -> Array:
    """An array that every process has whole, each device with its part."""
    if where.is_fully_addressable:
        return jax.device_put(array, where)
    whole = np.asarray(array)
    return jax.make_array_from_callback(whole.shape, where, lambda index: whole[index])


def on_host(tree: Any) -> Any:
    """A tree whose arrays host code may read: those that lie on other hosts too are gathered, the others stay as they are.

    All processes of the mesh call this together, at the few places where host code reads what programs put out.
    """

    def gathered(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array) or isinstance(leaf, Tracer) or leaf.is_fully_addressable:
            return leaf
        from jax.experimental.multihost_utils import process_allgather

        return np.asarray(leaf.addressable_data(0)) if leaf.is_fully_replicated else process_allgather(leaf, tiled=True)

    return jax.tree.map(gathered, tree)


def split_inside(mesh: Mesh | None, texts: Any) -> Any:
    """A pytree of arrays that lead with texts, split inside a program."""
    if mesh is None:
        return texts
    return jax.tree.map(lambda array: jax.lax.with_sharding_constraint(array, by_row(mesh, len(array))), texts)


def by_row(mesh: Mesh, rows: int) -> NamedSharding:
    """Where an array lies that leads with so many texts: split, or whole on each device where the data axis does not divide
    them (see `filled_rows`)."""
    return NamedSharding(mesh, PartitionSpec("data") if rows_that_split(mesh, rows) == rows else PartitionSpec())
