"""Time and energy of decoding what a step reads: nothing while decoders keep up with the memory, and the rest otherwise.

In hardware beside the memory, decoding overlaps with reading, so that the slower of the two decides. Where the same unit
decodes and works on the result (a vector unit), or where whole tensors are decoded before use, one follows the other.

Source: Cassandra, V-B: decoding may slow down reads, so decoders are added until it does not.
"""

from __future__ import annotations

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.decoders.decoder import Decoder, cycles_per_symbol
from hwmodels.numerics.scalars import Number, as_float
from hwmodels.numerics.smoothing import smooth_maximum
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = [
    "COMBINATIONS",
    "ReadTime",
    "decode_energy",
    "decode_time",
    "energy_per_bit",
    "fill_time",
    "read_time",
    "total_power",
]

#: How reading and decoding share time: both at once, or one after the other.
COMBINATIONS = ("overlapped", "serial")


@flax.struct.dataclass
class ReadTime:
    """Time to read and decode, and its parts, "*b"."""

    total_s: Float[Array, "*b"]
    memory_s: Float[Array, "*b"]  # if decoding took none
    decode_s: Float[Array, "*b"]  # if only decoding took time, latency left out
    fill_s: Float[Array, "*b"]  # latency of the first symbols

    @property
    def stall_factor(self) -> Float[Array, "*b"]:
        """How many times as long as reading alone, >= 1; infinite where nothing but decoding takes time."""
        return self.total_s / self.memory_s


def decode_time(
    decoder: Decoder, decoded_bytes: Number, code_bits: Number, *, temperature: Number = 0.0
) -> Float[Array, "*b"]:
    """Seconds in which all units together decode, latency left out.

    Args:
        decoder: leaves "*b"; `count` may be a real number.
        decoded_bytes: "*b", >= 0; behind the decoder, each time that they pass it.
        code_bits: "*b", >= 0; mean bits to be parsed per symbol, see `cycles_per_symbol`.
        temperature: "*b" or one number, in [0, 1], of the smooth maximum over the decoder's limits.
    Returns:
        "*b", s; 0 without a decoder.
    """
    symbols = as_float(decoded_bytes) / as_float(decoder.symbol_bytes)
    rate_hz = as_float(decoder.count) * as_float(decoder.frequency_hz)
    return symbols * cycles_per_symbol(decoder, code_bits, temperature) / rate_hz


def fill_time(decoder: Decoder) -> Float[Array, "*b"]:
    """Seconds from the first coded symbol of a read to its value, which overlap with nothing; "*b"."""
    return jnp.asarray(as_float(decoder.latency_cycles) / as_float(decoder.frequency_hz))


def read_time(
    decoder: Decoder,
    decoded_bytes: Number,
    code_bits: Number,
    memory_s: Number,
    *,
    reads: Number = 1.0,
    combination: str = "overlapped",
    temperature: Number = 0.0,
) -> ReadTime:
    """Time of a read whose data pass the decoder.

    Args:
        decoder, decoded_bytes, code_bits: as of `decode_time`.
        memory_s: "*b", >= 0; time that the coded bytes take by themselves.
        reads: "*b", >= 0; how often the decoder starts anew, each time with its latency.
        combination: static, one of `COMBINATIONS`.
        temperature: "*b" or one number, in [0, 1], of the smooth maxima; 0 is exact.
    Returns:
        Times, "*b"; without bytes to decode and to move all are 0.
    Raises:
        ValueError: `combination` is not in `COMBINATIONS`.
    Gradient: kinks, at temperature 0, where decoding takes as long as reading and where the decoder's limits are equal.
    """
    if combination not in COMBINATIONS:
        raise ValueError(f"combination {combination!r} is unknown; choose one of {', '.join(COMBINATIONS)}")
    decode_s = decode_time(decoder, decoded_bytes, code_bits, temperature=temperature)
    fill_s = fill_time(decoder) * as_float(reads)
    memory_s, decode_s, fill_s = jnp.broadcast_arrays(jnp.asarray(as_float(memory_s)), decode_s, fill_s)
    fill_s = jnp.where(decode_s > 0, fill_s, 0.0)
    both = jnp.stack([memory_s, decode_s], axis=-1)
    busy = jnp.sum(both, axis=-1) if combination == "serial" else smooth_maximum(both, temperature)
    return ReadTime(total_s=busy + fill_s, memory_s=memory_s, decode_s=decode_s, fill_s=fill_s)


def decode_energy(
    decoder: Decoder, decoded_bytes: Number, code_bits: Number, *, temperature: Number = 0.0
) -> Float[Array, "*b"]:
    """Joules to decode: each unit's power while it decodes, and the energy of each symbol. Arguments: `decode_time`.

    Fewer units decode for longer, so their number cancels. Idle units are taken to be gated.
    """
    symbols = as_float(decoded_bytes) / as_float(decoder.symbol_bytes)
    active_s = cycles_per_symbol(decoder, code_bits, temperature) / as_float(decoder.frequency_hz)
    return symbols * (as_float(decoder.power_w) * active_s + as_float(decoder.symbol_energy_j))


def energy_per_bit(decoder: Decoder, code_bits: Number, *, temperature: Number = 0.0) -> Float[Array, "*b"]:
    """Joules per decoded bit, "*b". Arguments: `decode_time`."""
    return decode_energy(decoder, 1.0 / BITS_PER_BYTE, code_bits, temperature=temperature)


def total_power(decoder: Decoder, code_bits: Number, *, temperature: Number = 0.0) -> Float[Array, "*b"]:
    """Watts while all units decode, "*b". Arguments: `decode_time`."""
    symbol_s = cycles_per_symbol(decoder, code_bits, temperature) / as_float(decoder.frequency_hz)
    # Without a limit there is no unit that could work: no symbols' energy either.
    works = symbol_s > 0
    per_symbol_w = jnp.where(works, as_float(decoder.symbol_energy_j) / jnp.where(works, symbol_s, 1.0), 0.0)
    return as_float(decoder.count) * (as_float(decoder.power_w) + per_symbol_w)
