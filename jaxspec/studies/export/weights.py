"""Weights of a run's target and of its hard draft, layer after layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import reduce
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxspec.compress.head import HEAD, hard_head
from jaxspec.compress.knobs import Knobs
from jaxspec.compress.schemes.interface import OwnKnobs
from jaxspec.compress.weights import knobs_of_matrix, rows_of
from jaxspec.models.config import DecoderConfig, LayerParameter
from jaxspec.models.stored import stack_of
from jaxspec.models.streamed import Stack
from jaxspec.studies.measured.hard_drafts import HardDrafts
from jaxspec.studies.measured.setup import Setup

__all__ = ["DraftLayers", "Layers", "TargetLayers", "format_of_all"]


class Layers(Protocol):
    """A network to be written: its parameters outside the layers, and those of a layer when they are asked for."""

    @property
    def config(self) -> DecoderConfig:
        """Of the network by itself."""
        ...

    @property
    def outside(self) -> Mapping[str, Array]:
        """Parameters outside the layers."""
        ...

    def dtype(self, name: str) -> np.dtype:
        """Number format of a parameter: that of its values, which it holds exactly."""
        ...

    def __call__(self, number: int) -> dict[str, Any]:
        """Parameters of one layer by name."""
        ...


def format_of_all(layers: Layers) -> np.dtype:
    """The narrowest number format that holds all matrices exactly; vectors do not count, which many releases have wider."""
    found = [layers.dtype(kind) for kind in layers.config.matrix_kinds]
    found += [layers.dtype(name) for name, value in layers.outside.items() if value.ndim > 1]
    return reduce(jnp.promote_types, found)


class TargetLayers:
    """Parameters of a run's target, which a scheme may have rounded (see `Layers`)."""

    def __init__(self, setup: Setup):
        self.config, self._stored = setup.config, setup.stored["layers"]
        self.outside = {name: stack_of(leaf).values() for name, leaf in setup.stored.items() if name != "layers"}
        # Compiled, as where the run decodes.
        self._made = jax.jit(lambda stack: stack.values())

    def stack(self, name: str, number: int) -> Stack:
        """A parameter of one layer, not made yet."""
        return stack_of(self._stored[name]).take(jnp.asarray(self._parameter(name).before(number)))

    def dtype(self, name: str) -> np.dtype:
        """See `Layers`."""
        if name in self.outside:
            return np.dtype(self.outside[name].dtype)
        return np.dtype(jax.eval_shape(self._made, self.stack(name, self.layer_with(name))).dtype)

    def layer_with(self, name: str) -> int:
        """The first layer that has a parameter."""
        return next(iter(self._parameter(name).layers()))

    def __call__(self, number: int) -> dict[str, Any]:
        """See `Layers`."""
        return {name: self.parameter(name, number) for name in self.names(number)}

    def names(self, number: int) -> list[str]:
        """Of the parameters that a layer has."""
        return [name for name, found in self.config.layer_parameters.items() if found.in_layer(number)]

    def parameter(self, name: str, number: int) -> Array:
        """A parameter of one layer."""
        return self._made(self.stack(name, number))

    def _parameter(self, name: str) -> LayerParameter:
        return self.config.layer_parameters[name]


class DraftLayers:
    """Parameters of a hard draft: matrices of its own, everything else of the target (see `Layers`).

    Attributes:
        config: of the draft by itself.
        outside: parameters outside the layers, the target's but for a head that the scheme compresses.
        weights, zeros: of the matrices that the scheme decides, of all layers made so far.
    """

    def __init__(self, target: TargetLayers, drafts: HardDrafts, knobs: Knobs):
        self._target, self._prepared, self._knobs = target, drafts.calibration.prepared, knobs
        self.config, self.outside = target.config, dict(target.outside)
        if knobs.scheme.facts.head:
            self.outside[HEAD] = stack_of(hard_head(drafts.work.setup.stored, self._prepared[HEAD], knobs)).values()
            self.config = dataclasses.replace(self.config, tie_embeddings=False)
        self.weights = self.zeros = 0

        def hard(kind: str, matrix: Stack, found: Any, own: OwnKnobs) -> Array:
            values = matrix.values()
            return knobs.scheme.of_kind(kind).hard(rows_of(values), found, own).values.reshape(values.shape)

        self._hard = jax.jit(hard, static_argnums=0)

    def dtype(self, name: str) -> np.dtype:
        """See `Layers`."""
        if name in self.outside:
            return np.dtype(self.outside[name].dtype)
        if name not in self._prepared:
            return self._target.dtype(name)
        made = jax.eval_shape(lambda: self._hard(name, *self._given(name, self._target.layer_with(name))))
        return np.dtype(made.dtype)

    def __call__(self, number: int) -> dict[str, Any]:
        """See `Layers`."""
        return {
            name: self._matrix(name, number) if name in self._prepared else self._target.parameter(name, number)
            for name in self._target.names(number)
        }

    def _matrix(self, kind: str, number: int) -> Array:
        matrix = self._hard(kind, *self._given(kind, number))
        self.weights += matrix.size
        self.zeros += matrix.size - int(np.count_nonzero(np.asarray(matrix)))
        return matrix

    def _given(self, kind: str, number: int) -> tuple[Stack, Any, OwnKnobs]:
        """What a matrix of one layer is made of."""
        own = knobs_of_matrix(self._knobs.values, self._knobs.scheme, self.config.matrix_kinds.index(kind))
        place = self.config.layer_parameters[kind].before(number)
        prepared = jax.tree.map(lambda leaf: leaf[place], self._prepared[kind])
        return self._target.stack(kind, number), prepared, jax.tree.map(lambda leaf: leaf[number], own)
