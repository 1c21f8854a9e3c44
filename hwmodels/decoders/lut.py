"""Dequantisation by table lookup on vector units: a 4-bit code is an index into 16 stored values.

One lookup instruction takes a register of 8-bit indices and gives a value for each, a pair of registers of 16-bit values. The
scales of several groups are the contents of a second table, whose constant indices spread them; products follow register by
register. A unit's rate is the vector's elements over the instructions that they take.

Source: mobile NPU, 5.2.2 and Fig. 9 (vlut16), 5.1.2 (groups).
Departs: the paper prints no count of instructions. Here they issue one by one unless said, and nothing else uses the units.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.decoders.decoder import Decoder
from hwmodels.numerics.scalars import Number, as_float

__all__ = ["instructions_per_vector", "lut_decoder"]


def instructions_per_vector(
    *,
    vector_bytes: Number = 128.0,
    group_size: Number = 32.0,
    groups_per_lookup: Number = 4.0,
    value_bytes: Number = 2.0,
    unpack_instructions: Number = 1.0,
) -> Float[Array, "*b"]:
    """Vector instructions for as many codes as a register has bytes.

    Args:
        vector_bytes: "*b", > 0; of a register: one index each.
        group_size: "*b", > 0; codes that share a scale.
        groups_per_lookup: "*b", > 0; groups whose scales one lookup spreads.
        value_bytes: "*b", > 0; of a dequantised value; products take a register each.
        unpack_instructions: "*b", >= 0; to bring one code of a byte in place.
    Returns:
        "*b": unpacking, one lookup of values, the lookups of scales, the products. Fractions are means over many vectors.
    """
    scale_lookups = as_float(vector_bytes) / (as_float(group_size) * as_float(groups_per_lookup))
    return jnp.asarray(as_float(unpack_instructions) + 1.0 + scale_lookups + as_float(value_bytes))


def lut_decoder(
    *,
    instructions: Number,
    frequency_hz: Number,
    units: Number,
    vector_bytes: Number = 128.0,
    instructions_per_cycle: Number = 1.0,
    symbol_bytes: Number = 2.0,
    area_m2: Number = 0.0,
    power_w: Number = 0.0,
    latency_cycles: Number = 0.0,
) -> Decoder:
    """Vector units that dequantise what the matrix unit takes.

    Args:
        instructions: "*b", > 0; for a register of indices, see `instructions_per_vector`.
        frequency_hz: "*b", > 0; of the vector units.
        units: "*b", > 0.
        vector_bytes: "*b", > 0; of a register.
        instructions_per_cycle: "*b", > 0; that one unit executes.
        symbol_bytes, area_m2, power_w, latency_cycles: as of `Decoder`; the area is 0 as the units are there anyway.
    """
    symbols = as_float(vector_bytes) * as_float(instructions_per_cycle) / as_float(instructions)
    return Decoder(
        frequency_hz=frequency_hz,
        symbols_per_cycle=symbols,
        symbol_bytes=symbol_bytes,
        count=units,
        area_m2=area_m2,
        power_w=power_w,
        latency_cycles=latency_cycles,
        kind="lut",
        place="array_edge",
    )
