"""Weights of a hard draft, layer after layer."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxspec.compress.head import HEAD, hard_head
from jaxspec.compress.knobs import Knobs
from jaxspec.compress.schemes.interface import OwnKnobs
from jaxspec.compress.weights import knobs_of_matrix, rows_of
from jaxspec.models.config import DecoderConfig
from jaxspec.models.stored import stack_of
from jaxspec.models.streamed import Stack
from jaxspec.studies.measured.hard_drafts import HardDrafts

__all__ = ["DraftLayers"]


class DraftLayers:
    """Parameters of a hard draft, each layer made when it is asked for.

    Attributes:
        outside: parameters outside the layers, the target's but for a head that the scheme compresses.
        weights, zeros: of the matrices that the scheme decides, of all layers made so far.
    """

    def __init__(self, drafts: HardDrafts, knobs: Knobs):
        setup = drafts.work.setup
        self._config, self._stored = setup.config, setup.stored["layers"]
        self._prepared, self._knobs = drafts.calibration.prepared, knobs

        def hard(kind: str, matrix: Stack, found: Any, own: OwnKnobs) -> Array:
            values = matrix.values()
            return knobs.scheme.of_kind(kind).hard(rows_of(values), found, own).values.reshape(values.shape)

        self._hard = jax.jit(hard, static_argnums=0)
        head = {HEAD: hard_head(setup.stored, self._prepared[HEAD], knobs)} if knobs.scheme.facts.head else {}
        outside = {name: leaf for name, leaf in setup.stored.items() if name != "layers"} | head
        self.outside = {name: stack_of(leaf).values() for name, leaf in outside.items()}
        self.weights = self.zeros = 0

    def dtype(self, name: str) -> np.dtype:
        """Number format of a parameter, which is the target's."""
        return np.dtype(self.outside[name].dtype if name in self.outside else self._stored[name].dtype)

    @property
    def config(self) -> DecoderConfig:
        """Of the draft as a network of its own."""
        return dataclasses.replace(self._config, tie_embeddings=HEAD not in self.outside)

    @property
    def matrix_dtype(self) -> np.dtype:
        """Number format of the matrices."""
        return self.dtype(self._config.matrix_kinds[0])

    def __call__(self, number: int) -> dict[str, Any]:
        """Parameters of one layer by name: matrices of the draft, everything else of the target."""
        found: dict[str, Any] = {}
        for name, parameter in self._config.layer_parameters.items():
            if parameter.in_layer(number):
                stored = stack_of(self._stored[name]).take(jnp.asarray(parameter.before(number)))
                found[name] = self._matrix(name, stored, number) if name in self._prepared else stored.values()
        return found

    def _matrix(self, kind: str, stored: Stack, number: int) -> Array:
        own = knobs_of_matrix(self._knobs.values, self._knobs.scheme, self._config.matrix_kinds.index(kind))
        place = self._config.layer_parameters[kind].before(number)
        prepared = jax.tree.map(lambda leaf: leaf[place], self._prepared[kind])
        matrix = self._hard(kind, stored, prepared, jax.tree.map(lambda leaf: leaf[number], own))
        self.weights += matrix.size
        self.zeros += matrix.size - int(np.count_nonzero(np.asarray(matrix)))
        return matrix
