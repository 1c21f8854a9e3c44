"""Unary exponent decoders: zero counters over chunks of equal width, all in one cycle.

A unit has so many counters, each of which takes a chunk of the exponent stream per cycle whatever codewords lie in it: its rate
is in coded bits. Mantissas are only shifted and joined, and the bitmap puts zeros between the values, so neither limits it.

Source: Cassandra, V-A, Fig. 8(a), Fig. 9 and Algorithm 1 (chunks of 8 bits); IV-B (mean code length).
Departs: the paper prints neither the counters of a unit nor its throughput; both are leaves here.
"""

from __future__ import annotations

import math

from hwmodels.decoders.decoder import Decoder
from hwmodels.numerics.scalars import Number, as_float

__all__ = ["unary_decoder"]


def unary_decoder(
    *,
    counters: Number,
    frequency_hz: Number,
    chunk_bits: Number = 8.0,
    symbols_per_cycle: Number = math.inf,
    symbol_bytes: Number = 2.0,
    count: Number = 1.0,
    area_m2: Number = 0.0,
    power_w: Number = 0.0,
    latency_cycles: Number = 0.0,
    place: str = "dma",
) -> Decoder:
    """Units of `counters` parallel zero counters each.

    Args:
        counters: "*b", > 0; chunks that a unit takes per cycle.
        frequency_hz: "*b", > 0.
        chunk_bits: "*b", > 0; width of a chunk.
        symbols_per_cycle: "*b", > 0; values that a unit can put out, infinite where its output is wide enough.
        symbol_bytes, count, area_m2, power_w, latency_cycles, place: as of `Decoder`.
    Raises:
        ValueError: `place` is unknown.
    """
    return Decoder(
        frequency_hz=frequency_hz,
        symbols_per_cycle=symbols_per_cycle,
        code_bits_per_cycle=as_float(chunk_bits) * as_float(counters),
        symbol_bytes=symbol_bytes,
        count=count,
        area_m2=area_m2,
        power_w=power_w,
        latency_cycles=latency_cycles,
        kind="unary",
        place=place,
    )
