"""How much memory passes over calibration text take on each device, and what they leave, estimated from shapes."""

from __future__ import annotations

import jax.numpy as jnp

from jaxspec.models.config import DecoderConfig
from jaxspec.models.mesh import activation_shares, rows_on_each, split_by_output
from jaxspec.models.stored import SMALL, is_widened
from jaxspec.studies.measured.draft_memory import COMPUTED, STORED

__all__ = ["ONE_DEVICE", "ROOM_BYTES", "calibration_bytes", "laid_out_anew", "pass_bytes"]

#: Room for programs, and for logits that are made piece by piece.
ROOM_BYTES = 1 << 29

#: A mesh along data and tensor that is none.
ONE_DEVICE = (1, 1)


def calibration_bytes(
    network: DecoderConfig, windows: int, tokens: int, *, stream: bool = False, mesh: tuple[int, int] = ONE_DEVICE
) -> int:
    """What is held of calibration text on each device: KV and hidden states.

    Args:
        windows: of so many tokens. stream: whether KV stays in host memory, but for a layer.
        mesh: devices along data, which share windows, and along tensor, which share heads.
    """
    data, tensor = mesh
    shares, places = activation_shares(network, tensor), rows_on_each(windows, data) * tokens
    mixed = network.mixed_layers
    if mixed is None:
        elements = STORED * network.cached_shape.elements
    else:  # beside the rows that are compressed, the whole cache as it is
        rows = 0 if mixed.attention is None else mixed.attention.elements
        elements = STORED * rows + COMPUTED * network.cached_shape.elements
    kv = elements * places // shares.heads
    hidden = COMPUTED * network.hidden_size * places // shares.hidden
    return hidden + (kv if stream else network.num_layers * kv)


def pass_bytes(
    network: DecoderConfig, windows: int, tokens: int, *, gradient: bool, mesh: tuple[int, int] = ONE_DEVICE
) -> int:
    """What a pass over so many windows takes on each device while it runs.

    Args:
        gradient: whether it is followed by a backward pass, which keeps what enters each layer, and has as many activations.
        others: as for `calibration_bytes`.
    """
    data, tensor = mesh
    shares, places = activation_shares(network, tensor), rows_on_each(windows, data) * tokens
    ways = 2 if gradient else 1
    channels = (3 * ways + network.num_layers * gradient) * network.hidden_size
    inner = 2 * ways * network.intermediate_size
    # With scores of queries and keys.
    heads = ways * (2 * network.num_heads * network.head_dim + network.scored_heads * tokens)
    each = channels // shares.hidden + inner // shares.inner + heads // shares.heads
    # A draft's matrix is made beside what it is made from; in the backward pass, its gradient with them.
    matrices = 2 * ways * network.intermediate_size * network.hidden_size // shares.inner
    # Logits are made when the layers are done with, before these run back.
    return max(COMPUTED * (each * places + matrices), ROOM_BYTES) + 2 * _gathered_head(network, tensor)


def laid_out_anew(network: DecoderConfig, tensor: int) -> int:
    """Bytes of matrices that decoding on a mesh lays out anew on each device, where it reads them in pieces of their rows.

    Their rows are split. Where hidden states are split by channel, devices exchange rows for channels, which takes two copies;
    elsewhere each gathers all rows.
    """
    if not _gathers(network, tensor) or network.num_parameters() <= SMALL:
        return 0
    copies = 2 if activation_shares(network, tensor).hidden > 1 else tensor
    return STORED * copies * split_by_output(network, tensor) + _gathered_head(network, tensor)


def _gathered_head(network: DecoderConfig, tensor: int) -> int:
    """Bytes of the LM head as a program on a mesh gathers it, once for the logits of each network.

    Its rows are split, and a loop over pieces of rows has no use for a part: XLA gathers the whole before the loop, or the
    channels that a device has of the hidden states.
    """
    shares = activation_shares(network, tensor).hidden
    return STORED * network.vocab_size * network.hidden_size // shares if _gathers(network, tensor) else 0


def _gathers(network: DecoderConfig, tensor: int) -> bool:
    """Whether products read pieces of matrices that are split; where they take matrices as these lie, nothing is gathered."""
    return tensor > 1 and is_widened(jnp.dtype("float32"), jnp.dtype(network.stored_dtype))
