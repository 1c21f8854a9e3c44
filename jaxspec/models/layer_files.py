"""Networks written as safetensors files one layer at a time, in shards, so that no second copy of one is ever held."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from hwmodels.networks import Running
from jaxspec.formats.container import TensorForm
from jaxspec.models.checkpoint_files import STORED_DTYPES
from jaxspec.models.config import DecoderConfig
from jaxspec.models.stored_parameters import Path, StoredParameter, network_parameters, stored_tensors

__all__ = ["SHARD_BYTES", "LayeredTensors", "Shard", "index_json", "plan_shards", "write_shard"]

#: Bytes of tensors in a file of weights, unless one tensor alone has more. transformers 4 wrote shards of this size.
SHARD_BYTES = 5_000_000_000

_SPELLINGS = {dtype: name for name, dtype in STORED_DTYPES.items()}


class Shard(NamedTuple):
    """One file of weights.

    Attributes:
        forms: of its tensors, in the order of their data.
    """

    name: str
    forms: tuple[TensorForm, ...]


class LayeredTensors:
    """Tensors of a network in the order of writing: what is outside the layers, then layer after layer.

    Attributes:
        forms: of all tensors.
    """

    def __init__(
        self,
        config: DecoderConfig,
        row: Running,
        *,
        outside: Mapping[str, Any],
        layer: Callable[[int], Mapping[str, Any]],
        dtype: Callable[[str], np.dtype],
    ):
        """Args:
        row: of the network's family.
        outside: parameters outside the layers, by name.
        layer: parameters of one layer by its number; called once for each layer, in order.
        dtype: of the tensors of a parameter, by its name; a value that it cannot hold is an error of the caller.
        """
        stored = network_parameters(config, row)
        self._outside = _by_tensor({path: found for path, found in stored.items() if found.of_layers is None})
        self._layers = [
            _by_tensor({path: found.in_layer(number) for path, found in stored.items() if found.is_in(number)})
            for number in range(config.num_layers)
        ]
        self._values, self._layer, self._dtype = outside, layer, dtype
        groups = [group for part in (self._outside, *self._layers) for group in part]
        self.forms = [form for group in groups for form in self._forms(group)]

    def _forms(self, group: _Group) -> Iterator[TensorForm]:
        path, parameter = next(iter(group.items()))
        shape, dtype = parameter.tensor_shape, np.dtype(self._dtype(path[-1]))
        for name in parameter.names():
            yield TensorForm(name, _SPELLINGS[dtype], shape, math.prod(shape) * dtype.itemsize)

    def values(self) -> Iterator[np.ndarray]:
        """The tensors of `forms`, in that order, each made when it is asked for.

        Raises:
            AssertionError: a value that the dtype cannot hold.
        """
        yield from self._cast(self._values, self._outside)
        for number, stored in enumerate(self._layers):
            yield from self._cast({"layers": self._layer(number)}, stored)

    def _cast(self, params: Mapping[str, Any], groups: list[_Group]) -> Iterator[np.ndarray]:
        for group in groups:
            dtype = np.dtype(self._dtype(next(iter(group))[-1]))
            # One group at a time: the wide and the narrow form of a whole layer need not stand side by side.
            for name, value in stored_tensors(dict(params), group, None).items():
                narrow = value.astype(dtype, copy=False)
                if not np.array_equal(narrow.astype(value.dtype, copy=False), value, equal_nan=True):
                    raise AssertionError(f"tensor {name!r} does not fit {dtype}; this is a bug in its caller")
                yield narrow


#: Parameters whose values stand in the same tensors, by their places.
_Group = dict[Path, StoredParameter]


def _by_tensor(stored: _Group) -> list[_Group]:
    """The parameters in groups, in the order of the first of each."""
    groups: dict[str, _Group] = {}
    for path, parameter in stored.items():
        groups.setdefault(parameter.tensor, {})[path] = parameter
    return list(groups.values())


def plan_shards(forms: Iterable[TensorForm], shard_bytes: int = SHARD_BYTES) -> list[Shard]:
    """Files for tensors, filled in order; a tensor of more than `shard_bytes` has a file of its own."""
    groups: list[list[TensorForm]] = [[]]
    filled = 0
    for form in forms:
        if groups[-1] and filled + form.bytes > shard_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(form)
        filled += form.bytes
    if len(groups) == 1:
        return [Shard("model.safetensors", tuple(groups[0]))]
    total = len(groups)
    return [Shard(f"model-{i:05}-of-{total:05}.safetensors", tuple(group)) for i, group in enumerate(groups, start=1)]


def index_json(shards: Iterable[Shard]) -> dict[str, Any]:
    """The index of a sharded checkpoint."""
    shards = list(shards)
    return {
        "metadata": {"total_size": sum(form.bytes for shard in shards for form in shard.forms)},
        "weight_map": {form.name: shard.name for shard in shards for form in shard.forms},
    }


def write_shard(
    file: BinaryIO,
    shard: Shard,
    values: Iterator[np.ndarray],
    *,
    on_bytes: Callable[[int, str], None] = lambda count, name: None,
) -> None:
    """Write one file: its header, then its tensors as they come.

    Args:
        values: the next of them belong to this shard.
        on_bytes: called after each tensor with its bytes and its name.
    """
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    place = 0
    for form in shard.forms:
        entries[form.name] = {
            "dtype": form.dtype,
            "shape": list(form.shape),
            "data_offsets": [place, place + form.bytes],
        }
        place += form.bytes
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # data begin at a multiple of 8, as the format asks
    file.write(len(header).to_bytes(8, "little") + header)
    for form in shard.forms:
        value = next(values)
        assert (value.shape, value.nbytes) == (form.shape, form.bytes), form.name
        file.write(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
        on_bytes(form.bytes, form.name)
