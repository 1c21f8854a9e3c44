"""The draft inside a container: its network is read from speculation data alone, its widths are the file's own bytes."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.compress.footprint import Footprint, measured_footprint, with_head
from jaxspec.compress.knobs import Knobs, check_knobs, knob_defaults, uniform_knobs
from jaxspec.compress.schemes import Scheme, find_scheme
from jaxspec.errors import InputError
from jaxspec.formats.container import Container, drafted_bytes
from jaxspec.formats.patterns import BitsRead
from jaxspec.models.checkpoint_files import ContainerFiles, TensorTable
from jaxspec.models.config import DecoderConfig
from jaxspec.models.described import packed_in
from jaxspec.models.embedded import is_container, load_model, model_place
from jaxspec.models.hf_load import LoadedModel
from jaxspec.models.matrix import stack_of
from jaxspec.models.mesh import placed_beside
from jaxspec.models.packed_tensors import stored_under
from jaxspec.models.stored import as_computed, as_stored
from jaxspec.models.stored_parameters import head_tensor, layer_parameters, lookup
from jaxspec.models.streamed import is_streamed
from jaxspec.partial_files import parse_json
from jaxspec.settings.draft_kinds import KV_OPTION
from jaxspec.settings.knobs import KnobSpec
from jaxspec.speculate.drafts.elastic_draft import compressed_copy
from jaxspec.speculate.drafts.interface import ReadyDraft

__all__ = ["check_container_draft", "container_footprint", "container_knobs", "knob_options", "load_container_draft"]

#: Bits of a value of a network that is no container.
_AS_CHECKPOINTS = 16.0


def load_container_draft(name: str, target: LoadedModel, *, sharing: int = 1) -> ReadyDraft:
    """The draft of a container, which reads none of the bytes that only the target needs.

    Args:
        sharing: consecutive sequences of a batch that share a pool of experts.
    Raises:
        InputError: see `load_container`; a network of another shape than the target's, or with other norms, which every scheme
            keeps whole.
    """
    # As the target: it is as large.
    loaded = load_model(name, part="draft", stream=is_streamed(target.params))
    _check_shape(name, loaded.config, target.config)
    _check_same(name, loaded, target)
    knobs = container_knobs(name, target.config)
    params = placed_beside(as_stored(loaded.params), loaded.config, target.params)
    return compressed_copy(loaded.config, as_computed(params), knobs, sharing=sharing, name=Path(name).name)


def check_container_draft(name: str, target: DecoderConfig, model: str | None) -> None:
    """Raise InputError by the container's directory: no draft, a damaged file, or another network."""
    del model
    with Container(name) as container:
        if not container.has_draft:
            raise InputError(
                f"draft {name!r} was packed with scheme {container.scheme!r}, which has no draft; pack it with cassandra1"
            )
        _check_shape(name, packed_in(container).config, target)
        _layer_knobs(container, target)


def container_footprint(name: str, model: str) -> Footprint:
    """Bits read of a container's draft and of its target.

    The target is read from the model where that is another container. Where the model is no container, it is read from the
    draft's if its scheme keeps the network as it is, else from the checkpoint, in 16 bits.

    Args:
        model: name or path of the target.
    """
    own = _stored_footprint(name)
    place = model_place(model)
    if is_container(place):
        target = own if os.path.samefile(name, place) else _stored_footprint(str(place))
    elif _scheme_of(name).lossless:
        target = own
    else:
        target = jax.tree.map(lambda bits: jnp.full_like(bits, _AS_CHECKPOINTS), own)
    of_target = {field.name: getattr(target, field.name) for field in dataclasses.fields(own) if "target" in field.name}
    return dataclasses.replace(own, **of_target)


def _scheme_of(name: str) -> Scheme:
    with Container(name) as container:
        return find_scheme(container.scheme)


def _stored_footprint(name: str) -> Footprint:
    """Bits that sections of each matrix take, by layer, and of a divided LM head; of the KV cache by its knobs, without
    a network.

    A matrix that shares its tensor with others has the mean of all.
    """
    with Container(name) as container:
        described = packed_in(container)
        tensors = row, files = described.tensors(ContainerFiles(container, "draft"), container.path, codes=False)
        config = described.stored_config(tensors)
        knobs = _layer_knobs(container, config)
        scheme = knobs.scheme
        stored = layer_parameters(config, row)
        bits = {kind: _bits_of(container, files, stored["layers", kind].names()) for kind in config.matrix_kinds}
        head = _bits_of(container, files, [head_tensor(config, row)]) if scheme.facts.head else None
    names = [spec.name for spec in _kv_specs(knobs)]
    attending = range(config.num_layers) if config.mixed_layers is None else config.mixed_layers.attending
    layers = [{name: float(knobs.values[name][i]) for name in names} for i in attending]
    footprints = [scheme.expected_footprint(knob_defaults(scheme) | own) for own in layers]
    mean = lambda numbers: jnp.asarray(np.mean([float(number) for number in numbers], keepdims=True))
    kv = BitsRead(mean(f.draft_kv_bits for f in footprints), mean(f.target_kv_bits for f in footprints))
    footprint = measured_footprint(bits, kv)
    return footprint if head is None else with_head(footprint, jax.tree.map(lambda bits: bits[0], head))


def container_knobs(name: str, target: DecoderConfig) -> Knobs:
    """Knobs of a container's draft that no section holds: those of committed KV, and the size of its pools of experts.

    Raises:
        InputError: a damaged file, or options that cannot be read.
    """
    with Container(name) as container:
        return _layer_knobs(container, target)


def knob_options(knobs: Knobs) -> dict[str, str]:
    """The knobs that no section of a container holds, as its options hold them: those of the KV cache together, each of another
    part of a layer under its own name."""
    values = lambda spec: np.asarray(knobs.values[spec.name]).tolist()
    kv = {spec.name: values(spec) for spec in _kv_specs(knobs)}
    others = {spec.name: json.dumps(values(spec)) for spec in _pool_specs(knobs)}
    return {KV_OPTION: json.dumps(kv, sort_keys=True)} | others


def _kv_specs(knobs: Knobs) -> list[KnobSpec]:
    return [spec for spec in knobs.scheme.knob_specs if spec.per == "layer"]


def _pool_specs(knobs: Knobs) -> list[KnobSpec]:
    return [spec for spec in knobs.scheme.knob_specs if spec.per == "experts"]


def _layer_knobs(container: Container, config: DecoderConfig) -> Knobs:
    """Knobs that no section holds, one number or one for each layer: from the container, else its scheme's defaults."""
    knobs, given = uniform_knobs(find_scheme(container.scheme), config), {}
    options = dict.fromkeys((spec.name for spec in _kv_specs(knobs)), KV_OPTION)
    options |= {spec.name: spec.name for spec in _pool_specs(knobs)}
    for name, option in options.items():
        stored = container.options.get(option)
        try:
            noted = None if stored is None else parse_json(str(stored))
            value = noted.get(name) if noted is not None and option == KV_OPTION else noted
            if value is not None:
                given[name] = jnp.broadcast_to(jnp.asarray(value, jnp.float32), (config.num_layers,))
        except (AttributeError, OverflowError, TypeError, ValueError) as error:
            raise InputError(f"{container.path} has an option {option!r} that cannot be read; pack it anew") from error
    knobs = knobs.replace_values(**given)
    check_knobs(knobs, config)
    return knobs


def _bits_of(container: Container, files: TensorTable, names: Iterable[str]) -> BitsRead:
    """Of the tensors of each layer, draft's and all sections.

    Args:
        files: its tensors as networks read them.
    """

    def one(name: str, drafted: bool) -> float:
        stored = [container.tensors[each] for each in stored_under(name, container.tensors.keys())]
        total = sum(drafted_bytes(tensor) if drafted else tensor.stored_bytes().total() for tensor in stored)
        return 8 * total / math.prod(files.tensors[name].shape)

    names = list(names)
    of = lambda drafted: jnp.asarray([one(name, drafted) for name in names], jnp.float32)
    return BitsRead(of(True), of(False))


def _check_same(name: str, own: LoadedModel, target: LoadedModel) -> None:
    """Raise InputError unless the vectors, which no scheme changes, are the target's."""
    config = own.config
    vectors = {(n,) for n, (shape, _) in config.outside_parameters.items() if len(shape) == 1}
    if not is_streamed(target.params):
        vectors |= {("layers", n) for n, parameter in config.layer_parameters.items() if len(parameter.shape) == 1}
    for path in sorted(vectors):
        # Of a run's target they are held as stacks.
        ours, theirs = (np.asarray(stack_of(lookup(params, path)).values()) for params in (own.params, target.params))
        # A run has wider values rounded.
        if not np.array_equal(ours.astype(theirs.dtype).astype(np.float32), theirs.astype(np.float32)):
            raise InputError(
                f"draft {name!r} was packed from other weights than the model's ({path[-1]} differs); pack this model, or give "
                "the container to both"
            )


def _check_shape(name: str, own: DecoderConfig, target: DecoderConfig) -> None:
    # How either stores its KV cache is no part of a shape.
    kept = {"shared_kv_exponents": target.shared_kv_exponents, "stored_dtype": target.stored_dtype}
    if dataclasses.replace(own, **kept) != target:
        raise InputError(
            f"draft {name!r} is the draft of another network than the model's; give the same container to both"
        )
