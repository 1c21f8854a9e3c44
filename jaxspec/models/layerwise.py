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

from hwmodels.catalog.huggingface import Family
from jaxspec.formats.shard_index import read_json_object
from jaxspec.models.blocks import StepInput
from jaxspec.models.checkpoint_files import CheckpointFiles
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import causal_mask, decoder_layer
from jaxspec.models.families import running
from jaxspec.models.hf_load import check_tensors, network_of
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
        family: the entry of the families' table that describes it.
    """

    config: DecoderConfig
    family: Family
    directory: Path
    files: CheckpointFiles

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """As of `LoadedModel`."""
        return load_tokenizer(self.directory, vocab_size=self.config.vocab_size)

    def embedding(self, tokens: Int[np.ndarray, "text token"]) -> Float[np.ndarray, "text token hidden"]:
        """Embeddings of some tokens, bfloat16 values in float32; reads no others."""
        rows = self.files.read(running(self.family).tensors["embed"])[tokens]
        return rows.astype(jnp.bfloat16).astype(np.float32)

    def layers(self) -> Iterator[dict[str, Array]]:
        """Parameters of each layer by name, in bfloat16, one layer after the other."""
        stored = network_parameters(self.config, running(self.family).tensors)
        for number in range(self.config.num_layers):
            yield {
                path[-1]: self._read(parameter.in_layer(number))
                for path, parameter in stored.items()
                if parameter.is_in(number)
            }
            self.files.release()

    def _read(self, parameter: StoredParameter) -> Array:
        tensors = [self.files.read(name) for name in parameter.names()]
        value = tensors[0] if parameter.parts is None else np.stack(tensors)
        return jnp.asarray(value.astype(jnp.bfloat16, copy=False)).reshape(parameter.shape)

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
    family, config = network_of(read_json_object(directory / "config.json"), directory / "config.json")
    files, row = CheckpointFiles(directory), running(family)
    copies = {row.tensors["lm_head"]} if config.tie_embeddings else set()
    check_tensors(network_parameters(config, row.tensors), files, directory, copies=copies)
    return StoredNetwork(config, family, directory, files)


def input_squares(
    network: StoredNetwork, tokens: Int[np.ndarray, "text token"]
) -> dict[str, Float[np.ndarray, "layer column"]]:
    """Squares of what enters the matrices, by input group, summed over all tokens of all texts.

    Texts begin at position 0. One layer's weights, and the hidden states of as many texts as fit, are held at a time.

    Returns:
        float64; a group has the layers that have its matrices.
    """
    at_once = max(1, _HIDDEN_BYTES // (4 * tokens.shape[1] * network.config.hidden_size))
    found: dict[str, list[np.ndarray]] = {}
    for first in range(0, len(tokens), at_once):
        turn = _squares_of_turn(network, tokens[first : first + at_once])
        for name, layers in turn.items():
            found[name] = [a + b for a, b in zip(found[name], layers, strict=True)] if name in found else layers
    return {name: np.stack(layers) for name, layers in found.items()}


def _squares_of_turn(network: StoredNetwork, tokens: np.ndarray) -> dict[str, list[np.ndarray]]:
    hidden = network.embedding(tokens)
    network.files.release()
    found: dict[str, list[np.ndarray]] = {}
    for number, weights in enumerate(network.layers()):
        squares: dict[str, Any] = {}
        for first in range(0, len(hidden), _TEXTS_PER_CALL):
            texts = slice(first, first + _TEXTS_PER_CALL)
            kinds = network.config.blocks(number)
            output, norms = _layer(jnp.asarray(hidden[texts]), weights, config=network.config, kinds=kinds)
            hidden[texts] = output
            for name, norm in norms.items():
                squares[name] = squares.get(name, 0) + np.square(np.asarray(norm, np.float64))
        for name, total in squares.items():
            found.setdefault(name, []).append(total)
    return found


@partial(jax.jit, static_argnames=("config", "kinds"))
def _layer(
    x: Float[Array, "text token hidden"], weights: dict[str, Array], *, config: DecoderConfig, kinds: Any
) -> tuple[Array, dict[str, Array]]:
    """Output of a layer, and the norm of each input channel."""
    texts, length = x.shape[:2]
    step = StepInput(jnp.broadcast_to(jnp.arange(length), (texts, length)), causal_mask(texts, length))
    result = decoder_layer(x, weights, config, kinds, step)
    return result.output, {name: jnp.sqrt(jnp.sum(jnp.square(v), axis=(0, 1))) for name, v in result.inputs.items()}
