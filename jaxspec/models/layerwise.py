"""A network whose layers are read when their turn comes, for what goes through all of it once and has no room for it whole."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from hwmodels.networks import Running
from jaxspec.formats.patterns import target_format
from jaxspec.models.blocks import StepInput
from jaxspec.models.checkpoint_files import CheckpointFiles, TensorTable
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import causal_mask
from jaxspec.models.decoder_layer import decoder_layer
from jaxspec.models.described import checked_names, described_in, unread_names
from jaxspec.models.layer_loops import layer_numbers, of_layer
from jaxspec.models.norms import NORMS
from jaxspec.models.special_tokens import embed, head_input
from jaxspec.models.stored_parameters import StoredParameter, network_parameters
from jaxspec.models.tokenizer import Tokenizer, load_tokenizer

__all__ = ["StoredNetwork", "input_squares", "open_network"]

#: Bytes of hidden states that are kept while the layers go by; more texts go through in several turns.
_HIDDEN_BYTES = 1 << 26

#: Texts that one call of a layer takes.
_TEXTS_PER_CALL = 8


@dataclasses.dataclass(frozen=True, eq=False)
class StoredNetwork:
    """A network in its directory, checked; nothing of its weights is read.

    Attributes:
        row: what its family calls tensors, under the names that they have in its files.
    """

    config: DecoderConfig
    row: Running
    directory: Path
    files: TensorTable

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """As of `LoadedModel`."""
        return load_tokenizer(self.directory, vocab_size=self.config.vocab_size)

    def embedded(self, tokens: Int[np.ndarray, "text token"]) -> Float[np.ndarray, "text token hidden"]:
        """What enters the first layer, of texts from position 0; reads no rows of other tokens."""
        names = self.row.tensors
        # An embedding of the tokens that occur, numbered anew.
        known, numbers = np.unique(tokens, return_inverse=True)
        params = {"embed": self._narrow(self.files.read(names["embed"])[known])}
        if self.config.learned_positions is not None:
            params["position_embed"] = self._narrow(self.files.read(names["position_embed"]))
        positions = np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape)
        found = embed(jnp.asarray(numbers.reshape(tokens.shape)), jnp.asarray(positions), params, self.config)
        self.files.release()
        return np.array(found)

    def layers(self) -> Iterator[dict[str, Array]]:
        """Parameters of each layer by name, in 16 bits, one layer after the other."""
        stored = network_parameters(self.config, self.row)
        for number in range(self.config.num_layers):
            yield {
                path[-1]: self._read(parameter.in_layer(number))
                for path, parameter in stored.items()
                if parameter.is_in(number)
            }
            self.files.release()

    def final_norm(self) -> dict[str, Array]:
        """Vectors of the norm behind the last layer, by name."""
        stored = network_parameters(self.config, self.row)
        found = {name: self._read(stored[(name,)]) for name in NORMS[self.config.norm].vectors("final_norm")}
        self.files.release()
        return found

    def _read(self, parameter: StoredParameter) -> Array:
        tensors = [parameter.part_of(self.files.read(name)) for name in parameter.names()]
        return self._narrow(tensors[0] if parameter.parts is None else np.stack(tensors)).reshape(parameter.shape)

    def _narrow(self, values: np.ndarray) -> Array:
        """Values in 16 bits, as every target has them here: wider ones are rounded to bfloat16."""
        return jnp.asarray(values.astype(target_format(values.dtype).value_dtype, copy=False))

    @property
    def layer_bytes(self) -> int:
        """Bytes of the largest layer, as `layers` gives it."""
        found = self.config.layer_parameters.values()
        sizes = [sum(2 * math.prod(p.shape) for p in found if p.in_layer(n)) for n in range(self.config.num_layers)]
        return max(sizes)


def open_network(directory: Path) -> StoredNetwork:
    """Open a directory as `load_directory` does, and check its files, reading no weights.

    Raises:
        InputError: see `load_directory`; whether a head that is stored beside the embedding equals it is not looked at.
    """
    found = described_in(directory)
    row, files = tensors = found.tensors(CheckpointFiles(directory, codes=False), directory, codes=False)
    config = found.config
    checked_names(network_parameters(config, row), unread_names(config, row, files), files, directory)
    return StoredNetwork(found.stored_config(tensors), row, directory, files)


def input_squares(
    network: StoredNetwork, tokens: Int[np.ndarray, "text token"], *, head: bool = False
) -> dict[str, Float[np.ndarray, "layer column"]]:
    """Squares of what enters the matrices, by input group, summed over all tokens of all texts.

    Texts begin at position 0. One layer's weights, and the hidden states of as many texts as fit, are held at a time.

    Args:
        head: of what enters the LM head too, as "lm_head".
    Returns:
        float64; a group has the layers that have its matrices, the head's a single one.
    """
    at_once = max(1, _HIDDEN_BYTES // (4 * tokens.shape[1] * network.config.hidden_size))
    found: dict[str, list[np.ndarray]] = {}
    for first in range(0, len(tokens), at_once):
        turn = _squares_of_turn(network, tokens[first : first + at_once], head=head)
        for name, layers in turn.items():
            found[name] = [a + b for a, b in zip(found[name], layers, strict=True)] if name in found else layers
    return {name: np.stack(layers) for name, layers in found.items()}


def _squares_of_turn(network: StoredNetwork, tokens: np.ndarray, *, head: bool) -> dict[str, list[np.ndarray]]:
    hidden, config = network.embedded(tokens), network.config
    found: dict[str, list[np.ndarray]] = {}
    for number, weights in enumerate(network.layers()):
        squares: dict[str, Any] = {}
        own = jax.tree.map(lambda numbers: numbers[0], layer_numbers(config, number, number + 1))
        for first in range(0, len(hidden), _TEXTS_PER_CALL):
            texts = slice(first, first + _TEXTS_PER_CALL)
            output, sums = _layer(jnp.asarray(hidden[texts]), weights, own, config=config, kinds=config.blocks(number))
            hidden[texts] = output
            for name, found_there in sums.items():
                squares[name] = squares.get(name, 0) + np.asarray(found_there, np.float64)
        for name, total in squares.items():
            found.setdefault(name, []).append(total)
    if head:
        vectors, total = network.final_norm(), np.zeros(config.hidden_size)
        for first in range(0, len(hidden), _TEXTS_PER_CALL):
            inputs = _head_input(jnp.asarray(hidden[first : first + _TEXTS_PER_CALL]), vectors, config=config)
            total += np.sum(np.square(np.asarray(inputs, np.float64)), axis=(0, 1))
        found["lm_head"] = [total]
    return found


_head_input = jax.jit(head_input, static_argnames="config")


@partial(jax.jit, static_argnames=("config", "kinds"))
def _layer(
    x: Float[Array, "text token hidden"], weights: dict[str, Array], own: Any, *, config: DecoderConfig, kinds: Any
) -> tuple[Array, dict[str, Array]]:
    """Output of a layer, and the sum of squares of each input channel.

    Args:
        own: numbers of the layer.
    """
    texts, length = x.shape[:2]
    positions = jnp.broadcast_to(jnp.arange(length), (texts, length))
    step = StepInput(positions, causal_mask(texts, length), lengths=jnp.full((texts, length), length))
    result = decoder_layer(x, weights, config, kinds, of_layer(step, own, (), ()))
    return result.output, {name: jnp.sum(jnp.square(value), axis=(0, 1)) for name, value in result.inputs.items()}
