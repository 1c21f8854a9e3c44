"""Decoding in a step: what passes the device's decoders, and what that takes."""

from __future__ import annotations

import math

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.decoders.decode_cost import fill_time
from hwmodels.device import Device
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from hwmodels.network.operators import OperatorWork
from hwmodels.numerics.scalars import as_float, with_last_axis
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = ["DecoderCost", "decoder_cost", "decoder_energy"]

#: What a decoder makes of each element that it decodes.
_ELEMENT_BYTES = UNCOMPRESSED_BITS / BITS_PER_BYTE


@flax.struct.dataclass
class DecoderCost:
    """What decoding takes; times broadcast to "... operator"."""

    limit_s: tuple[
        Float[Array, "... operator"], ...
    ]  # if only one limit of the decoders took time; none without decoders
    fill_s: Float[Array, "... operator"]  # from a launch to its first value, overlapped with nothing


def decoder_cost(device: Device, work: OperatorWork) -> DecoderCost:
    """Time of the decoders for what each operator reads in fewer than 16 bits; 0 without decoders.

    Each element passes the decoder once, also at the edge of an array, and all of its stored bits are parsed: how many of
    them are code of variable length is not known from its width. The limits are given apart: the smooth maximum over all
    that a step waits for takes them one by one.

    Args:
        device: leaves "*b".
        work: "*b operator".
    Raises:
        ValueError: a decoder without a rate, or work that does not say what is coded.
    """
    if device.decoder is None:
        return DecoderCost((), jnp.zeros_like(work.flops))
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
    rate_hz = decoder.count * decoder.frequency_hz
    symbols_s = work.coded_elements * (_ELEMENT_BYTES / decoder.symbol_bytes / (rate_hz * decoder.symbols_per_cycle))
    limit_s = [symbols_s]
    if decoder.code_bits_per_cycle is not None:
        # Divided twice: with an infinite rate, which limits nothing, the slope by the others of a product would be NaN.
        limit_s.append(work.coded_bits / rate_hz / decoder.code_bits_per_cycle)
    return DecoderCost(tuple(limit_s), jnp.where(work.coded_elements > 0, fill_time(decoder), 0.0))


def decoder_energy(device: Device, work: OperatorWork) -> Float[Array, "*b"]:
    """Joules of decoding a step: each unit's power while it decodes, and the energy of each symbol; 0 without decoders.

    Fewer units decode for longer, so their number cancels. Idle units are taken to be gated. Arguments: `decoder_cost`.
    """
    if device.decoder is None:
        return jnp.zeros_like(work.flops[..., 0])
    assert work.coded_elements is not None
    assert work.coded_bits is not None
    decoder = jax.tree.map(as_float, device.decoder)
    # Sums first: over operators they are one pass, and everything after them is per step.
    symbols = jnp.sum(work.coded_elements, axis=-1) * (_ELEMENT_BYTES / decoder.symbol_bytes)
    cycles = symbols / decoder.symbols_per_cycle
    if decoder.code_bits_per_cycle is not None:
        by_operator = with_last_axis(device.decoder)
        put_out = work.coded_elements * (_ELEMENT_BYTES / by_operator.symbol_bytes / by_operator.symbols_per_cycle)
        cycles = jnp.sum(jnp.maximum(put_out, work.coded_bits / by_operator.code_bits_per_cycle), axis=-1)
    return decoder.power_w * (cycles / decoder.frequency_hz) + symbols * decoder.symbol_energy_j
