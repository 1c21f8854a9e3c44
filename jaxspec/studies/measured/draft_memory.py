"""How much memory drafts take beside the network that runs, estimated from shapes and settings."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from jaxspec.formats.container import Container, packed_form
from jaxspec.models.config import DecoderConfig
from jaxspec.models.embedded import check_model, is_container, model_place
from jaxspec.models.stored import SMALL
from jaxspec.settings.draft_kinds import SELF
from jaxspec.speculate.drafts.making import kind_of

__all__ = ["COMPUTED", "STORED", "DraftNeed", "draft_need", "drafts_of", "matrix_sizes", "wider_bytes"]

#: Bytes of a stored value.
STORED = 2

#: Bytes of a computed value.
COMPUTED = 4


class DraftNeed(NamedTuple):
    """Bytes on the device.

    Attributes:
        network: parameters beside the target's.
        per_slot: KV of its own, for each position of a text.
        per_token: activations, for each token of a prompt that it processes.
    """

    network: int = 0
    per_slot: int = 0
    per_token: int = 0


def drafts_of(config: Any) -> tuple[str, ...]:
    """Name of the draft that a run holds; `self` is a compressed copy.

    Args:
        config: of any command that runs a network with one draft.
    """
    return (getattr(config, "draft", SELF),)


def draft_need(name: str, network: DecoderConfig, *, stream: bool) -> DraftNeed:
    """What a draft takes.

    Args:
        network: shape of the target. stream: whether its layers, and those of drafts of its shape, stay in host memory.
    Raises:
        InputError: files of the draft that cannot be used.
    """
    kind = kind_of(name)
    matrices = matrix_sizes(network)
    if kind.calibrated or kind.suffix:  # streamed ones are made, or fetched, where they are used
        return DraftNeed() if stream else DraftNeed(network=STORED * matrices + wider_bytes(name))
    if kind.stored_as:  # values read back of 4 bits need more than 16
        return DraftNeed() if stream else DraftNeed(network=COMPUTED * matrices)
    if kind.directory == "head":
        ends = network.vocab_size * network.hidden_size * (1 if network.tie_embeddings else 2)
        layer = matrices // network.num_layers
        return DraftNeed(COMPUTED * (ends + layer), 3 * COMPUTED * network.cached_shape.elements)
    if kind.directory != "network":
        return DraftNeed()
    own = check_model(name)
    whole = own.num_parameters()
    width = 6 * own.hidden_size + 4 * own.intermediate_size + 4 * own.num_heads * own.head_dim
    # A small network is widened once; a cache is read while the next one is written, and a prompt's is written beside both.
    weights = (STORED + COMPUTED if whole <= SMALL else STORED) * whole
    return DraftNeed(weights, 3 * COMPUTED * own.num_layers * own.cached_shape.elements, COMPUTED * width)


def wider_bytes(model: str) -> int:
    """Bytes beyond 16 bits a value of what a container gives back in float32; 0 of every other model, and of a draft's name."""
    place = model_place(model)
    if not is_container(place):
        return 0
    with Container(place) as container:
        return sum(tensor.form.bytes - packed_form(tensor).bytes for tensor in container.tensors.values())


def matrix_sizes(network: DecoderConfig) -> int:
    """Values of all matrices of the layers."""
    layers = [(p.num_layers, *p.shape) for p in network.layer_parameters.values()]
    return sum(math.prod(shape) for shape in layers if len(shape) > 2)
