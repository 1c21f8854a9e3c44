"""Decoding in a step: what passes the device's decoders, and what that takes."""

from __future__ import annotations

import math

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.decoders.decode_cost import decode_energy, decode_time, fill_time
from hwmodels.device import Device
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from hwmodels.network.operators import OperatorWork
from hwmodels.numerics.scalars import Number, with_last_axis
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = ["DecoderCost", "decoder_cost"]

#: What a decoder makes of each element that it decodes.
_ELEMENT_BYTES = UNCOMPRESSED_BITS / BITS_PER_BYTE


@flax.struct.dataclass
class DecoderCost:
    """What decoding takes; arrays broadcast to "... operator"."""

    seconds: Float[Array, "... operator"]  # if only decoding took time
    fill_s: Float[Array, "... operator"]  # from a launch to its first value, overlapped with nothing
    energy_j: Float[Array, "... operator"]


def decoder_cost(device: Device, work: OperatorWork, *, temperature: Number = 0.0) -> DecoderCost:
    """Time and energy of the decoders for what each operator reads in fewer than 16 bits; 0 without decoders.

    Each element passes the decoder once, also at the edge of an array, and all of its stored bits are parsed: how many of
    them are code of variable length is not known from its width.

    Args:
        device: leaves "*b".
        work: "*b operator".
        temperature: one number in [0, 1], of the smooth maximum over the decoder's limits.
    Raises:
        ValueError: a decoder without a rate, or work that does not say what is coded.
    """
    none = jnp.zeros_like(work.flops)
    if device.decoder is None:
        return DecoderCost(none, none, none)
    rate = device.decoder.symbols_per_cycle
    if isinstance(rate, float) and math.isinf(rate) and device.decoder.kind != "none":
        raise ValueError(
            f"the device's decoder of kind {device.decoder.kind!r} has no limit of symbols per cycle, so that a step would "
            "decode infinitely fast; set symbols_per_cycle"
        )
    if work.coded_elements is None or work.coded_bits is None:
        raise ValueError(
            "the work does not say what is coded, which a device with a decoder needs; build it with step_operators"
        )
    decoder = with_last_axis(device.decoder)
    decoded_bytes, coded = work.coded_elements * _ELEMENT_BYTES, work.coded_elements > 0
    symbols = decoded_bytes / decoder.symbol_bytes
    code_bits = jnp.where(coded, work.coded_bits / jnp.where(coded, symbols, 1.0), 0.0)
    return DecoderCost(
        seconds=decode_time(decoder, decoded_bytes, code_bits, temperature=temperature),
        fill_s=jnp.where(coded, fill_time(decoder), 0.0),
        energy_j=decode_energy(decoder, decoded_bytes, code_bits, temperature=temperature),
    )
