"""Weights of a hard draft, layer after layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from jaxspec.compress.knobs import Knobs
from jaxspec.compress.schemes.interface import Layer
from jaxspec.models.config import DecoderConfig
from jaxspec.studies.measured.hard_drafts import HardDrafts

__all__ = ["DraftLayers"]


class DraftLayers:
    """Layers of a hard draft, each made when it is asked for.

    Attributes:
        weights, zeros: of the matrices that the scheme decides, of all layers made so far.
    """

    def __init__(self, drafts: HardDrafts, knobs: Knobs):
        setup = drafts.work.setup
        self._config: DecoderConfig = setup.config
        self._layers: Mapping[str, Any] = setup.params["layers"]
        self._prepared, self._knobs = drafts.calibration.prepared, knobs
        hard = lambda layer, prepared, values: knobs.scheme.hard(layer, prepared, values).matrices
        self._hard: Callable[[Layer, Any, Any], Layer] = jax.jit(hard)
        self.weights = self.zeros = 0

    def __call__(self, number: int) -> Layer:
        """Parameters of one layer by name: matrices of the draft, everything else of the target."""
        parameters = self._config.layer_parameters
        layer = {
            name: leaf[parameters[name].before(number)]
            for name, leaf in self._layers.items()
            if parameters[name].in_layer(number)
        }
        of_layer = lambda leaf: leaf[number]
        matrices = self._hard(layer, jax.tree.map(of_layer, self._prepared), jax.tree.map(of_layer, self._knobs.values))
        for matrix in matrices.values():
            self.weights += matrix.size
            self.zeros += matrix.size - int(np.count_nonzero(np.asarray(matrix)))
        return layer | matrices
