"""What of a network is measured: its matrices, and networks of its widths, small enough to be timed as a whole."""

from __future__ import annotations

from collections.abc import Mapping

from hwmodels import Architecture, catalog
from jaxspec.models.config import DecoderConfig
from jaxspec.models.stored import SMALL
from jaxspec.studies.calibrate.config import FORMATS, CalibrateConfig

__all__ = ["COMPANION", "companion_of", "dense_config", "matrices_of", "probes_of"]

#: Network whose steps are timed beside those of large ones.
COMPANION = "qwen3-0.6b"

#: The most elements of a matrix: a larger vocabulary is cut.
_MOST_WEIGHTS = 1 << 25


def companion_of(config: CalibrateConfig, networks: Mapping[str, Architecture]) -> dict[str, Architecture]:
    """The network, by name, of which whole steps alone are timed too where all others are large and held in 16 bits; or none.

    Steps of large matrices hardly show what launches cost within a step, nor by how much a network of other widths is off.
    """
    own = catalog.architecture(COMPANION)
    least = _layer_weights(own)
    is_large = FORMATS[config.widest] <= 16.0 and all(_layer_weights(one) > least for one in networks.values())
    return {COMPANION: own} if is_large else {}


def matrices_of(network: Architecture) -> list[tuple[int, int]]:
    """(inner, outer) of the matrices of a dense layer and of the head."""
    hidden, inner = int(network.hidden_size), int(network.intermediate_size)
    query, key = int(network.num_heads * network.head_dim), int(network.num_kv_heads * network.head_dim)
    vocab = min(int(network.vocab_size), max(1, _MOST_WEIGHTS // hidden))
    shapes = [(hidden, query), (hidden, key), (query, hidden), (hidden, inner), (inner, hidden), (hidden, vocab)]
    return [shape for shape in dict.fromkeys(shapes) if min(shape) > 0]


def _layer_weights(network: Architecture) -> int:
    """Elements of the matrices that a layer has."""
    return sum(inner * outer for inner, outer in matrices_of(network)[:-1])


def probes_of(network: Architecture, held: str) -> list[tuple[int, int, int]]:
    """(layers, vocabulary, context) of the networks whose whole steps are timed.

    Args:
        held: format of their matrices. Few float32 ones, as only small networks decode in float32.
    """
    hidden = int(network.hidden_size)
    layer = _layer_weights(network)
    # A loop over one layer is none: its matrices are read where they lie, those of several are taken out of a stack.
    most = max(1, int(network.num_layers))
    layers = min(4, most, max(2, SMALL // 2 // max(layer, 1))) if held == "float32" else min(4, most)
    vocab = int(max(256, min(1024, SMALL // 4 // hidden)))
    few = min(layers, 2)
    return list(dict.fromkeys([(layers, 256, 128), (few, 256, 256), (few, vocab, 384)]))


def dense_config(network: Architecture, layers: int, vocab: int) -> DecoderConfig:
    """A dense network of these widths."""
    return DecoderConfig(
        vocab_size=vocab,
        hidden_size=int(network.hidden_size),
        intermediate_size=int(network.intermediate_size),
        num_layers=layers,
        num_heads=int(network.num_heads),
        num_kv_heads=int(network.num_kv_heads),
        head_dim=int(network.head_dim),
    )
