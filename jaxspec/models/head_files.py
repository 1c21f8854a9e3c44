"""A draft head as a directory: config.json, which names the target by its weights, and one safetensors file."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from hwmodels.networks import running_row
from jaxspec.errors import InputError
from jaxspec.formats.shard_index import read_json_object
from jaxspec.models.checkpoint_files import CheckpointFiles
from jaxspec.models.config import DecoderConfig, decoder_config
from jaxspec.models.decoder import Params
from jaxspec.models.draft_head import PLAIN_HEAD, HeadRule, TargetEnds, check_head_config, target_ends
from jaxspec.models.hf_export import config_json, family_for
from jaxspec.models.hf_load import LoadedModel, parameter_dtype, read_tensors
from jaxspec.models.matrix import made, matrix_of
from jaxspec.models.released_heads import ReleasedHead, eagle_head_in, is_eagle_head, own_head_in
from jaxspec.models.stored_parameters import Path as ParameterPath
from jaxspec.models.stored_parameters import StoredParameter, layer_parameters, stored_tensors
from jaxspec.partial_files import write_bytes, write_text

__all__ = ["HEAD_MODEL_TYPE", "OWN_HEAD", "LoadedHead", "check_head", "load_head", "save_head", "weights_sha256"]

#: The name that stands for a network's own layer for further tokens.
OWN_HEAD = "mtp"

#: `model_type` of a head's config.json.
HEAD_MODEL_TYPE = "jaxspec_draft_head"
_TARGET_KEY = "target_weights_sha256"

#: Rows of a matrix outside the layers that are made wide at once.
_ROWS_AT_ONCE = 4096


@dataclasses.dataclass(frozen=True, eq=False)
class LoadedHead:
    """A draft head read from a directory.

    Attributes:
        config: static shape: the target's sizes outside, the head's own inside, one layer.
        params: as made by `init_head_params`.
        ends: of the target that it was loaded for.
        directory: where it came from.
        rule: what it computes.
    """

    config: DecoderConfig
    params: Params
    ends: TargetEnds
    directory: Path
    rule: HeadRule = PLAIN_HEAD


def _parts(node: Any) -> Iterator[Any]:
    """Layer by layer, or many rows at a time: the wide copy of a whole stack need not fit."""
    size, count = 1 if len(node.shape) > 2 else _ROWS_AT_ONCE, node.shape[0]
    for first in range(0, count, size):
        yield matrix_of(node).host_rows(first, min(first + size, count))


def weights_sha256(params: Params) -> str:
    """What tells one network's weights from another's, whatever file, sharding or wider dtype they come in.

    Returns:
        SHA-256 in hex over all parameters in the order of their paths: path, shape, values as little-endian float32.
    """
    digest = hashlib.sha256()

    def add(path: str, node: Any) -> None:
        if isinstance(node, dict):
            for key in sorted(node):
                add(f"{path}/{key}", node[key])
            return
        digest.update(f"{path} {tuple(map(int, node.shape))}\n".encode())
        for part in _parts(node):
            digest.update(np.ascontiguousarray(np.asarray(part), "<f4").tobytes())

    add("", params)
    return digest.hexdigest()


def _stored(config: DecoderConfig) -> dict[ParameterPath, StoredParameter]:
    """A head's parameters: its own, and those of its one layer under the names of the target's family."""
    hidden = config.hidden_size
    own = {"embed_norm": (hidden,), "hidden_norm": (hidden,), "fc": (hidden, 2 * hidden)}
    named = {(name,): StoredParameter(f"{name}.weight", shape) for name, shape in own.items()}
    return named | layer_parameters(config, running_row(family_for(config)))


def save_head(
    params: Params, config: DecoderConfig, out: str | os.PathLike[str], *, target: Params, max_positions: int
) -> None:
    """Write `out`/config.json and `out`/model.safetensors in bfloat16; each file appears whole or not at all.

    Args:
        target: parameters of the network that the head was trained on.
    """
    check_head_config(config)
    out = Path(out)
    tensors = stored_tensors(params, _stored(config))
    raw = {
        "model_type": HEAD_MODEL_TYPE,
        _TARGET_KEY: weights_sha256(target),
        "network": config_json(config, max_positions=max_positions),
    }
    write_bytes(out / "model.safetensors", save(tensors, metadata={"format": "pt"}))
    write_text(out / "config.json", json.dumps(raw, indent=2, sort_keys=True) + "\n")


def load_head(
    path: str | os.PathLike[str], target: LoadedModel, *, dtype: Any = None, as_stored: Params | None = None
) -> LoadedHead:
    """Read a head for the network that it was trained on.

    Args:
        path: a directory as `save_head` writes it, or of a release's head; `OWN_HEAD` for the target's own.
        target: its weights.
        as_stored: the same in a dtype that holds the stored ones exactly; None: the target's own are in such a one.
        dtype: of the head's parameters: bfloat16, float16 or float32; None keeps what is stored.
    Raises:
        InputError: anything about the directory that cannot be used, or another target, in one line.
    """
    wanted = parameter_dtype(dtype)
    # On the device also where the target's embeddings stay in host memory: those live as long as the target does.
    ends = made(target_ends(target.params))
    if (released := _released(path, target.config, target.directory)) is not None:
        params, rule = released.loaded(target.params, wanted)
        return LoadedHead(released.config, params, ends, released.directory, rule)
    directory = Path(path)
    if not os.path.isdir(directory):
        raise InputError(
            f"draft head directory {str(directory)!r} does not exist; needed is a folder with config.json and "
            "model.safetensors: check the path"
        )
    config, trained_on = _head_config(directory / "config.json")
    found = weights_sha256(target.params if as_stored is None else as_stored)
    if found != trained_on:
        raise InputError(
            f"the draft head in {directory} was trained on weights with SHA-256 {trained_on[:12]}...; those of "
            f"{target.directory} have {found[:12]}...: use the target that it belongs to, or train another head with "
            "`python -m experiments.train_draft_head`"
        )
    _check_sizes(config, target.config, directory / "config.json", "fetch it again")
    params = read_tensors(_stored(config), CheckpointFiles(directory), directory, wanted, finite=True)
    return LoadedHead(config=config, params=params, ends=ends, directory=directory)


def check_head(path: str | os.PathLike[str], target: DecoderConfig, directory: Path | None = None) -> None:
    """Raise InputError for what can be told of a head without reading weights.

    Args:
        path: as for `load_head`.
        target: shape of the network that it drafts for.
        directory: that this network's files are in; None: not known, and its own head is not looked for.
    """
    if _released(path, target, directory) is not None or path == OWN_HEAD:
        return
    place = Path(path) / "config.json"
    _check_sizes(_head_config(place)[0], target, place, "use the target that it belongs to, or train another head")


def _released(path: str | os.PathLike[str], target: DecoderConfig, directory: Path | None) -> ReleasedHead | None:
    """A head that was not trained here; None: it was, or is not known."""
    if path == OWN_HEAD:
        return None if directory is None else own_head_in(directory)
    place = Path(path) / "config.json"
    if not place.is_file() or (raw := read_json_object(place)).get("model_type") == HEAD_MODEL_TYPE:
        return None
    return eagle_head_in(Path(path), target) if is_eagle_head(Path(path), raw) else None


def _check_sizes(config: DecoderConfig, target: DecoderConfig, place: Path, advice: str) -> None:
    for name in ("hidden_size", "vocab_size", "norm_eps"):
        own, needed = getattr(config, name), getattr(target, name)
        if own != needed:
            raise InputError(f"{place} has {name} {own}; the target has {needed}: {advice}")


def _head_config(path: Path) -> tuple[DecoderConfig, str]:
    """A head's shape, and its target's hash."""
    raw = read_json_object(path)
    if raw.get("model_type") != HEAD_MODEL_TYPE:
        raise InputError(
            f"{path} has model_type {raw.get('model_type')!r}; a draft head has {HEAD_MODEL_TYPE!r}: give a directory "
            "that `python -m experiments.train_draft_head` wrote"
        )
    network, trained_on = raw.get("network"), raw.get(_TARGET_KEY)
    if not isinstance(network, dict):
        raise InputError(f"{path} has network {network!r}; it must be an object: fetch it again")
    if not isinstance(trained_on, str) or not re.fullmatch(r"[0-9a-f]{64}", trained_on):
        raise InputError(f"{path} has {_TARGET_KEY} {trained_on!r}; it must be 64 hex digits: fetch it again")
    try:
        config = decoder_config(network)
        check_head_config(config)
    except (NotImplementedError, ValueError) as error:
        raise InputError(f"{path}: {error}; use a draft head of a known shape") from error
    return config, trained_on
