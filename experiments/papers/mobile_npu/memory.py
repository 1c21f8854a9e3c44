"""Memory of the NPU's session and of the process: weights, cache and buffers as stored.

The session holds the layers and the cache of the context budget, and the activations of a chunk of a prompt: in 32 bits, the
two inputs of the gated product, the residual stream and a normalised copy of it. The vocabulary matrix, tied to the embedding,
stays in the process.
"""

from __future__ import annotations

from experiments.papers.mobile_npu.versions import network_of, weight_bits
from hwmodels import Architecture, Device
from hwmodels.numerics.units import BITS_PER_BYTE, MIB
from hwmodels.step.capacity import activation_buffer_bytes, held_bytes

__all__ = ["CHUNK_TOKENS", "fits", "process_mib", "session_mib", "weights_and_cache_mib", "weights_mib"]

#: Tokens of a prompt that llama.cpp processes at once unless told otherwise (`n_ubatch`).
CHUNK_TOKENS = 512
_ACTIVATION_BYTES = 4


def _held(network: Architecture, context: float) -> tuple[float, float]:
    """MiB of the layers' weights, and of the cache."""
    bits = weight_bits() | {"embed": 0.0, "lm_head": 0.0}
    held = held_bytes(network, batch=1.0, context_tokens=context, weight_bits=bits, kv_bits=16.0)
    return float(held.weights) / MIB, float(held.kv) / MIB


def weights_mib(model: str) -> float:
    """Of the layers alone."""
    return _held(network_of(model), 0.0)[0]


def weights_and_cache_mib(model: str, context: float) -> float:
    """Of the layers and the cache of a context."""
    return sum(_held(network_of(model), context))


def session_mib(model: str, context: float) -> float:
    """All that the NPU's session holds."""
    held = activation_buffer_bytes(network_of(model), tokens=CHUNK_TOKENS, element_bytes=_ACTIVATION_BYTES)
    return weights_and_cache_mib(model, context) + float(held) / MIB


def process_mib(model: str, context: float) -> float:
    """The session and the vocabulary matrix in the process."""
    network = network_of(model)
    vocabulary = float(network.vocab_size) * float(network.hidden_size) * weight_bits()["embed"]
    return session_mib(model, context) + vocabulary / BITS_PER_BYTE / MIB


def fits(model: str, device: Device, context: float) -> bool:
    """Whether a session on the device can address all that it holds."""
    return session_mib(model, context) * MIB <= float(device.memory.capacity_bytes)
