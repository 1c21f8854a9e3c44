"""MX decoders: a shared exponent is broadcast to the elements of its block, each of which is normalised by itself.

One zero counter takes one mantissa, so a unit takes as many elements of a block per cycle as it has lanes for it; a block that
does not fill its last cycle leaves lanes idle, as another block has another exponent.

Source: Cassandra, V-A, Decoder #N of Fig. 8(a).
Departs: the paper prints neither block size nor element width nor lanes; all are arguments here.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.decoders.decoder import Decoder
from hwmodels.numerics.folds import smooth_ceil_div
from hwmodels.numerics.scalars import Number, as_float

__all__ = ["bits_per_value", "elements_per_cycle", "mx_decoder"]


def bits_per_value(element_bits: Number, block_elements: Number, *, shared_bits: Number = 8.0) -> Float[Array, "*b"]:
    """Bits of a stored value with its share of the block's exponent.

    Args:
        element_bits: "*b", > 0; sign, own exponent if any, mantissa.
        block_elements: "*b", >= 1; values that share an exponent.
        shared_bits: "*b", >= 0; of that exponent.
    """
    return jnp.asarray(as_float(element_bits) + as_float(shared_bits) / as_float(block_elements))


def elements_per_cycle(
    lanes_per_block: Number, block_elements: Number, *, blocks_per_cycle: Number = 1.0, temperature: Number = 0.0
) -> Float[Array, "*b"]:
    """Elements that a unit takes per cycle, idle lanes of a block's last cycle counted as lost.

    Args:
        lanes_per_block: "*b", >= 1; elements of one block in a cycle.
        block_elements: "*b", >= 1.
        blocks_per_cycle: "*b", > 0; exponents that are broadcast in a cycle, each to its own lanes.
        temperature: "*b" or one number, in [0, 1]; 0 is exact.
    Returns:
        "*b", at most lanes_per_block * blocks_per_cycle.
    Gradient: at temperature 0 none by the lanes, as cycles per block are whole; see `smooth_ceil_div`.
    """
    cycles = smooth_ceil_div(block_elements, lanes_per_block, temperature)
    return as_float(blocks_per_cycle) * as_float(block_elements) / cycles


def mx_decoder(
    *,
    lanes_per_block: Number,
    block_elements: Number,
    frequency_hz: Number,
    blocks_per_cycle: Number = 1.0,
    kept_share: Number = 1.0,
    symbol_bytes: Number = 2.0,
    count: Number = 1.0,
    area_m2: Number = 0.0,
    power_w: Number = 0.0,
    latency_cycles: Number = 0.0,
    place: str = "dma",
    temperature: Number = 0.0,
) -> Decoder:
    """Units that decode blocks lane by lane.

    Args:
        lanes_per_block, block_elements, blocks_per_cycle, temperature: as of `elements_per_cycle`.
        frequency_hz: "*b", > 0.
        kept_share: "*b", in (0, 1]; values that are elements of a block. The zeros that the bitmap adds pass no lane, so the
            unit puts out 1 / kept_share values per element.
        symbol_bytes, count, area_m2, power_w, latency_cycles, place: as of `Decoder`.
    Raises:
        ValueError: `place` is unknown.
    """
    elements = elements_per_cycle(
        lanes_per_block, block_elements, blocks_per_cycle=blocks_per_cycle, temperature=temperature
    )
    return Decoder(
        frequency_hz=frequency_hz,
        symbols_per_cycle=elements / as_float(kept_share),
        symbol_bytes=symbol_bytes,
        count=count,
        area_m2=area_m2,
        power_w=power_w,
        latency_cycles=latency_cycles,
        kind="mx",
        place=place,
    )
