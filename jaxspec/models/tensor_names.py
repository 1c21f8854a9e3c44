"""Which tensors of a checkpoint are a network's parameters: names, shapes and number formats, without reading a value."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hwmodels.networks import Running
from jaxspec.errors import InputError
from jaxspec.formats.container.source import missing_because, predicts_further
from jaxspec.models.checkpoint_files import STORED_DTYPES, TensorTable
from jaxspec.models.config import DecoderConfig
from jaxspec.models.stored_parameters import Path as ParameterPath
from jaxspec.models.stored_parameters import StoredParameter

__all__ = ["checked_names", "unread_names"]

#: Buffers that older releases stored beside the weights; the network computes them from its configuration.
_COMPUTED_SUFFIX = "rotary_emb.inv_freq"

#: Of a layer that predicts further tokens: it mixes a token's embedding and the hidden state before.
_MIXING = "eh_proj.weight"


def unread_names(config: DecoderConfig, row: Running, files: TensorTable) -> set[str]:
    """Tensors that may be there and that a network does not compute with: a head that is tied to the embedding, and layers
    behind the last one that predict further tokens, known by the matrix that mixes their inputs (DeepSeek-V3, GLM-4.5), or by
    their names (see `predicts_further`)."""
    unread = {row.tensors["lm_head"]} if config.tie_embeddings else set()
    unread |= set(filter(predicts_further, files.tensors))
    number = config.num_layers
    while f"{(prefix := f'model.layers.{number}.')}{_MIXING}" in files.tensors:
        unread |= {name for name in files.tensors if name.startswith(prefix)}
        number += 1
    return unread


def checked_names(
    stored: Mapping[ParameterPath, StoredParameter],
    copies: set[str] | frozenset[str],
    files: TensorTable,
    directory: Path,
    *,
    mixed: bool = False,
) -> dict[ParameterPath, list[str]]:
    """Place of a parameter -> its tensors, all of them present and of the right form, and no other one left.

    A tensor that nothing here computes with is an error, since without it the network would be another one.

    Args:
        mixed: the tensors of one parameter may differ in format.
    """
    found: dict[ParameterPath, list[str]] = {}
    for path, parameter in stored.items():
        found[path] = []
        # The first absent name ends the loop, so that a config.json which claims 10^12 layers costs nothing.
        for name in parameter.names():
            if name not in files.tensors:
                why = missing_because(directory, name)
                raise InputError(
                    f"{directory} has no tensor {name!r}, which its config.json needs{why}: fetch all its files again"
                )
            found[path].append(name)
    known = {name for names in found.values() for name in names} | copies
    extra = sorted(name for name in files.tensors if name not in known and not name.endswith(_COMPUTED_SUFFIX))
    if extra:
        more = f" and {len(extra) - 1} more" if len(extra) > 1 else ""
        raise InputError(
            f"{files.tensors[extra[0]].path} has tensor {extra[0]!r}{more}, which this network does not compute with; "
            "allowed are those that config.json asks for: use a checkpoint whose config.json and weights agree"
        )
    for path, names in found.items():
        _check_form(names, stored[path].tensor_shape, files, mixed=mixed)
    return found


def _check_form(names: list[str], shape: tuple[int, ...], files: TensorTable, *, mixed: bool) -> None:
    """All tensors of one leaf have this shape and a known number format, the same one unless `mixed` is allowed."""
    first = files.tensors[names[0]]
    for name in names:
        tensor = files.tensors[name]
        if tensor.dtype not in STORED_DTYPES:
            raise InputError(
                f"tensor {name!r} in {tensor.path} is stored as {tensor.dtype}; allowed are "
                f"{', '.join(STORED_DTYPES)}: convert the checkpoint"
            )
        if tensor.shape != shape:
            raise InputError(
                f"tensor {name!r} in {tensor.path} has shape {tensor.shape}; its config.json needs {shape}: "
                "use a checkpoint whose config.json and weights agree"
            )
        if tensor.dtype != first.dtype and not mixed:
            raise InputError(
                f"tensor {name!r} in {tensor.path} is stored as {tensor.dtype} but {names[0]!r} as {first.dtype}; "
                "layers are stacked and must agree: convert the checkpoint, or in Python load it with an explicit dtype"
            )
