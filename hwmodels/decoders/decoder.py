"""A decoder as hardware: how many symbols per cycle it delivers, and how many of them a consumer needs.

One unit has two limits: symbols that it can put out per cycle, and bits of the coded stream that it can parse per cycle. Which
of them holds depends on the data. Codes of fixed length (MX, table lookup) and one-symbol-per-cycle decoders (Huffman) know the
first only; a unary decoder knows the second, and is the slower the longer the codewords are.

Source: Cassandra, V-A (decoders), V-B (where they sit, how many); Huff-LLM, 3.2 (one symbol per cycle at the array's edge).
Departs: a queue between parsing and output is taken to be deep enough that only means count. Superblocks keep it short.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from fractions import Fraction

import flax.struct
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from hwmodels.numerics.fields import FREQUENCY, NOT_NEGATIVE, POSITIVE, choice, number
from hwmodels.numerics.folds import Whole
from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.numerics.smoothing import smooth_largest
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = [
    "DECODER_KINDS",
    "LEVELS",
    "PLACES",
    "Decoder",
    "bits_at",
    "cycles_per_symbol",
    "decoded_bytes_per_cycle",
    "decoded_bytes_per_s",
    "decoders_needed",
    "exact_counts",
    "is_coded_at",
    "round_up",
]

# Exact counts on the host: rational arithmetic on numbers as their decimals are written.


def round_up(work: Fraction, rate: Fraction) -> int:
    """The smallest whole number of units of this rate (> 0) that do the work (>= 0)."""
    return -int(-work // rate)


def exact_counts(
    count: Callable[[dict[str, Fraction]], int],
    arguments: Mapping[str, Number],
    *,
    positive: Collection[str] = (),
    whole: Collection[str] = (),
    may_be_infinite: Collection[str] = (),
) -> Whole:
    """A count for each entry of arguments that are broadcast together.

    Args:
        count: from one entry's arguments; those that are infinite are left out.
        arguments: name -> "*b", numbers >= 0.
        positive, whole, may_be_infinite: names of which more, or less, is asked.
    Returns:
        "*b"; a Python integer where all arguments are single numbers, int64 otherwise.
    Raises:
        ValueError: a number is traced, or not what is asked.
    """
    for name, value in arguments.items():
        if isinstance(value, Tracer):
            raise ValueError(
                f"{name} is traced, but exact counts need known numbers; under jit use the smooth function"
            )
    columns = {name: np.asarray(value) for name, value in arguments.items()}
    shape = np.broadcast_shapes(*(column.shape for column in columns.values()))
    counts = []
    for row in zip(*(np.broadcast_to(column, shape).flat for column in columns.values())):
        written = {}
        for name, value in zip(columns, row):
            infinite = math.isinf(value) and value > 0 and name in may_be_infinite
            if not infinite and not (math.isfinite(value) and (value > 0 or (value == 0 and name not in positive))):
                raise ValueError(f"{name} is {value}; it must be a finite number {'>' if name in positive else '>='} 0")
            if name in whole and value != math.floor(value):
                raise ValueError(f"{name} is {value}; it must be a whole number")
            if not infinite:
                written[name] = Fraction(str(value))
        counts.append(count(written))
    return counts[0] if not shape else np.array(counts, np.int64).reshape(shape)


#: What a decoder undoes.
DECODER_KINDS = ("none", "unary", "mx", "huffman_cam", "lut")

#: What a place divides: memory off chip, the last one on chip (L2 cache or scratchpad), and the links behind that one.
LEVELS = ("dram", "on_chip", "link")

#: Where decoders sit, and at which levels the data are therefore still coded.
PLACES = {
    "dma": ("dram",),  # in an NPU's DMA, before the scratchpad
    "l2": ("dram", "on_chip"),  # between a GPU's L2 cache and the interconnect
    "array_edge": LEVELS,  # between the weight buffer and the first row of elements, or in each compute unit
}


@flax.struct.dataclass
class Decoder:
    """Units of one kind, working side by side; every number is a leaf, "*b".

    Raises:
        ValueError: `kind` is not in `DECODER_KINDS` or `place` not in `PLACES`.
    """

    frequency_hz: Leaf = number(FREQUENCY)  # > 0
    symbols_per_cycle: Leaf = number(
        POSITIVE, default=math.inf
    )  # that one unit puts out, > 0; infinite where only parsing limits it
    code_bits_per_cycle: Leaf = number(
        POSITIVE, default=math.inf
    )  # that one unit parses, > 0; infinite where codes have a fixed length
    symbol_bytes: Leaf = number(POSITIVE, default=2.0)  # of a decoded symbol, > 0
    count: Leaf = number(POSITIVE, default=1.0)  # units, > 0
    area_m2: Leaf = number(NOT_NEGATIVE, default=0.0)  # of one unit, >= 0
    power_w: Leaf = number(NOT_NEGATIVE, default=0.0)  # of one unit while it decodes, >= 0
    symbol_energy_j: Leaf = number(NOT_NEGATIVE, default=0.0)  # in addition, of each symbol, >= 0
    latency_cycles: Leaf = number(
        NOT_NEGATIVE, default=0.0
    )  # from a coded symbol to its value, >= 0; hidden but for the first
    kind: str = choice(*DECODER_KINDS)
    place: str = choice(*PLACES)

    def __post_init__(self) -> None:
        for name, value, allowed in (("kind", self.kind, DECODER_KINDS), ("place", self.place, tuple(PLACES))):
            if value not in allowed:
                raise ValueError(f"{name} {value!r} is unknown; choose one of {', '.join(allowed)}")

    def check_together(self) -> None:
        """Hold the rate to the kind, where its number is at hand.

        Raises:
            ValueError: coded data and no limit of symbols per cycle.
        """
        rate = self.symbols_per_cycle
        if isinstance(rate, float) and math.isinf(rate) and self.kind != "none":
            raise ValueError(
                f"the device's decoder of kind {self.kind!r} has no limit of symbols per cycle, so that a step would "
                "decode infinitely fast; set symbols_per_cycle"
            )

    @property
    def total_area_m2(self) -> Leaf:
        """Area of all units, "*b"."""
        return as_float(self.count) * as_float(self.area_m2)


def is_coded_at(decoder: Decoder, level: str) -> bool:
    """Whether data are coded where they lie or pass; never without a decoder.

    Raises:
        ValueError: `level` is not in `LEVELS`.
    """
    if level not in LEVELS:
        raise ValueError(f"level {level!r} is unknown; choose one of {', '.join(LEVELS)}")
    return decoder.kind != "none" and level in PLACES[decoder.place]


def bits_at(decoder: Decoder, level: str, coded_bits: Number) -> Leaf:
    """Bits that a value takes at a level: `coded_bits` ("*b") before the decoder, those of a symbol behind it.

    Raises:
        ValueError: `level` is not in `LEVELS`.
    """
    return as_float(coded_bits) if is_coded_at(decoder, level) else as_float(decoder.symbol_bytes) * BITS_PER_BYTE


def cycles_per_symbol(decoder: Decoder, code_bits: Number, temperature: Number = 0.0) -> Float[Array, "*b"]:
    """Cycles that one unit takes for a symbol: the slower of putting out and parsing.

    Args:
        decoder: leaves "*b".
        code_bits: "*b", >= 0; mean bits to be parsed per symbol put out. Symbols that need none (pruned ones, which the
            bitmap restores) lower the mean.
        temperature: "*b" or one number, in [0, 1], of the smooth maximum; 0 is exact.
    Returns:
        "*b", >= 0; 0 where neither limit exists.
    Gradient: right everywhere but at the kink where both limits are equal, at temperature 0; see `smooth_maximum`.
    """
    put_out = 1.0 / as_float(decoder.symbols_per_cycle)
    if decoder.code_bits_per_cycle is None:
        return jnp.broadcast_to(put_out, jnp.broadcast_shapes(jnp.shape(put_out), jnp.shape(code_bits)))
    parsed = as_float(code_bits) / as_float(decoder.code_bits_per_cycle)
    return smooth_largest(put_out, parsed, temperature=temperature)


def decoded_bytes_per_cycle(decoder: Decoder, code_bits: Number, temperature: Number = 0.0) -> Float[Array, "*b"]:
    """Decoded bytes that one unit delivers per cycle, "*b"; infinite without a decoder. Arguments: `cycles_per_symbol`."""
    return as_float(decoder.symbol_bytes) / cycles_per_symbol(decoder, code_bits, temperature)


def decoded_bytes_per_s(decoder: Decoder, code_bits: Number, temperature: Number = 0.0) -> Float[Array, "*b"]:
    """Decoded bytes that all units deliver per second, "*b". Arguments: `cycles_per_symbol`."""
    unit = decoded_bytes_per_cycle(decoder, code_bits, temperature)
    return unit * (as_float(decoder.count) * as_float(decoder.frequency_hz))


def decoders_needed(
    decoder: Decoder, demand_bytes_per_cycle: Number, code_bits: Number, *, partitions: Number = 1
) -> Whole:
    """The smallest number of units that never stalls a consumer, exactly, on the host.

    Args:
        decoder: leaves "*b"; its `count` does not matter.
        demand_bytes_per_cycle: "*b", >= 0; decoded bytes that the consumer takes per cycle of the decoder.
        code_bits: "*b", >= 0; mean bits to be parsed per symbol.
        partitions: "*b", whole >= 1; equal shares of the demand, none of which can use another's units.
    Returns:
        "*b", whole >= 0; a Python integer where all are single numbers, int64 otherwise. 0 without demand or without limits.
    Raises:
        ValueError: a number is traced, negative or not finite, a rate is not positive, or `partitions` is not whole.
    Source: Cassandra, V-B and VI-D, in words.
    Departs: numbers are taken as their decimals are written, so that 40 units of 25.6 bytes are enough for 1024.
    """
    arguments = {
        "symbols_per_cycle": decoder.symbols_per_cycle,
        "code_bits_per_cycle": math.inf if decoder.code_bits_per_cycle is None else decoder.code_bits_per_cycle,
        "symbol_bytes": decoder.symbol_bytes,
        "demand_bytes_per_cycle": demand_bytes_per_cycle,
        "code_bits": code_bits,
        "partitions": partitions,
    }
    limits = ("symbols_per_cycle", "code_bits_per_cycle")
    return exact_counts(
        _units,
        arguments,
        positive=(*limits, "symbol_bytes", "partitions"),
        whole=("partitions",),
        may_be_infinite=limits,
    )


def _units(written: dict[str, Fraction]) -> int:
    symbols = written["demand_bytes_per_cycle"] / written["symbol_bytes"] / written["partitions"]
    work = {"symbols_per_cycle": symbols, "code_bits_per_cycle": symbols * written["code_bits"]}
    units = max((round_up(work[limit], written[limit]) for limit in work if limit in written), default=0)
    return int(written["partitions"]) * units
