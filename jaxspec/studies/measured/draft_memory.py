"""How much memory drafts take beside the network that runs, estimated from shapes and settings."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxspec.formats.container import Container, packed_form
from jaxspec.models.config import DecoderConfig
from jaxspec.models.embedded import check_model, is_container, model_place
from jaxspec.models.mesh import values_on_each
from jaxspec.models.stored import SMALL
from jaxspec.settings.draft_kinds import SELF
from jaxspec.speculate.drafts.making import kind_of

__all__ = [
    "COMPUTED",
    "STORED",
    "DraftNeed",
    "draft_need",
    "drafts_of",
    "head_size",
    "matrix_sizes",
    "parameter_sizes",
    "wider_bytes",
]

#: Bytes of a stored value.
STORED = 2

#: Bytes of a computed value.
COMPUTED = 4


class DraftNeed(NamedTuple):
    """Bytes on each device.

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


def draft_need(name: str, network: DecoderConfig, *, stream: bool, tensor: int = 1) -> DraftNeed:
    """What a draft takes.

    Args:
        network: shape of the target. stream: whether its layers, and those of drafts of its shape, stay in host memory.
        tensor: devices that matrices are split over.
    Raises:
        InputError: files of the draft that cannot be used.
    """
    kind = kind_of(name)
    matrices = matrix_sizes(network, tensor)
    if kind.calibrated or kind.suffix:  # streamed ones are made, or fetched, where they are used
        return DraftNeed() if stream else DraftNeed(network=STORED * matrices + wider_bytes(name, network, tensor))
    if kind.stored_as:  # values read back of 4 bits need more than 16
        return DraftNeed() if stream else DraftNeed(network=COMPUTED * matrices)
    if kind.directory == "head":
        ends = head_size(network, tensor) * (1 if network.tie_embeddings else 2)
        layer = matrix_sizes(network) // network.num_layers  # its own, whole on each device
        return DraftNeed(COMPUTED * (ends + layer), 3 * COMPUTED * network.cached_shape.elements)
    if kind.directory != "network":
        return DraftNeed()
    own = check_model(name)
    whole, held = own.num_parameters(), parameter_sizes(own, tensor)
    width = 6 * own.hidden_size + 4 * own.intermediate_size + 4 * own.num_heads * own.head_dim
    # A small network is widened once; a cache is read while the next one is written, and a prompt's is written beside both.
    weights = (STORED + COMPUTED if whole <= SMALL else STORED) * held
    return DraftNeed(weights, 3 * COMPUTED * own.num_layers * own.cached_shape.elements, COMPUTED * width)


def wider_bytes(model: str, network: DecoderConfig, tensor: int = 1) -> int:
    """Bytes beyond 16 bits a value of what a container gives back in float32, on each of so many devices that its matrices are
    split over; 0 of every other model, and of a draft's name."""
    place = model_place(model)
    if not is_container(place):
        return 0
    with Container(place) as container:
        whole = sum(each.form.bytes - packed_form(each).bytes for each in container.tensors.values())
    return whole * matrix_sizes(network, tensor) // matrix_sizes(network)


def parameter_sizes(network: DecoderConfig, tensor: int = 1) -> int:
    """Values of all parameters of a network on each of so many devices that its matrices are split over."""
    outside = {(name,): shape for name, (shape, _) in network.outside_parameters.items()}
    return values_on_each(_of_layers(network) | outside, network, tensor)


def matrix_sizes(network: DecoderConfig, tensor: int = 1) -> int:
    """Values of all matrices of the layers, likewise."""
    return values_on_each({n: shape for n, shape in _of_layers(network).items() if len(shape) > 2}, network, tensor)


def head_size(network: DecoderConfig, tensor: int = 1) -> int:
    """Values of the LM head, likewise."""
    name = "embed" if network.tie_embeddings else "lm_head"
    return values_on_each({(name,): (network.vocab_size, network.hidden_size)}, network, tensor)


def _of_layers(network: DecoderConfig) -> dict[tuple[str, ...], tuple[int, ...]]:
    return {("layers", name): (p.num_layers, *p.shape) for name, p in network.layer_parameters.items()}
