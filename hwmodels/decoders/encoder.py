"""Encoders for what is written at run time: new keys and values, one token after the other.

An encoder takes values in, finds each token's largest ones, and writes them coded. It has the whole step for it, since a
token's cache is first read from memory in the next step: few are enough.

Source: Cassandra, V-A (encoder), V-B ("a comparatively smaller number of encoders may be sufficient").
Departs: the paper prints neither throughput nor number; both are leaves.
"""

from __future__ import annotations

from fractions import Fraction

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.decoders.decoder import exact_counts, round_up
from hwmodels.numerics.fields import FREQUENCY, NOT_NEGATIVE, POSITIVE, number
from hwmodels.numerics.folds import Whole
from hwmodels.numerics.scalars import Leaf, Number, as_float

__all__ = ["Encoder", "encode_energy", "encode_time", "encoders_needed"]


@flax.struct.dataclass
class Encoder:
    """Encoding units that work side by side; every field is a leaf, "*b"."""

    frequency_hz: Leaf = number(FREQUENCY)  # > 0
    values_per_cycle: Leaf = number(POSITIVE)  # that one unit takes in, > 0
    count: Leaf = number(POSITIVE, default=1.0)  # units, > 0
    area_m2: Leaf = number(NOT_NEGATIVE, default=0.0)  # of one unit, >= 0
    power_w: Leaf = number(NOT_NEGATIVE, default=0.0)  # of one unit while it encodes, >= 0
    value_energy_j: Leaf = number(NOT_NEGATIVE, default=0.0)  # in addition, of each value, >= 0
    #: From a token's last value to its last coded bit (the selection), >= 0.
    latency_cycles: Leaf = number(NOT_NEGATIVE, default=0.0)

    @property
    def total_area_m2(self) -> Leaf:
        """Area of all units, "*b"."""
        return as_float(self.count) * as_float(self.area_m2)


def encode_time(encoder: Encoder, values: Number) -> Float[Array, "*b"]:
    """Seconds in which all units together encode `values` ("*b", >= 0) elements, the last one's latency included."""
    values = jnp.asarray(as_float(values))
    cycles = values / (as_float(encoder.count) * as_float(encoder.values_per_cycle))
    return (cycles + jnp.where(values > 0, as_float(encoder.latency_cycles), 0.0)) / as_float(encoder.frequency_hz)


def encoders_needed(encoder: Encoder, values: Number, step_s: Number) -> Whole:
    """The smallest number of units that encode a step's values within the step, exactly, on the host.

    Args:
        encoder: leaves "*b"; its `count` does not matter.
        values: "*b", >= 0; elements that the step writes.
        step_s: "*b", > 0.
    Returns:
        "*b", whole >= 0; a Python integer where all are single numbers, int64 otherwise.
    Raises:
        ValueError: a number is traced, negative or not finite; or the step is over before the latency is, so that no number
            of units is enough.
    """
    arguments = {
        "frequency_hz": encoder.frequency_hz,
        "values_per_cycle": encoder.values_per_cycle,
        "latency_cycles": encoder.latency_cycles,
        "values": values,
        "step_s": step_s,
    }
    return exact_counts(_units, arguments, positive=("frequency_hz", "values_per_cycle", "step_s"))


def _units(written: dict[str, Fraction]) -> int:
    if not written["values"]:
        return 0
    left_cycles = written["step_s"] * written["frequency_hz"] - written["latency_cycles"]
    if left_cycles <= 0:
        raise ValueError(
            f"step_s is {float(written['step_s'])}, not longer than the encoder's latency; no number of units is enough"
        )
    return round_up(written["values"], left_cycles * written["values_per_cycle"])


def encode_energy(encoder: Encoder, values: Number) -> Float[Array, "*b"]:
    """Joules to encode `values` ("*b", >= 0) elements: each unit's power while it encodes, and the energy of each value.

    Fewer units encode for longer, so their number cancels.
    """
    values = jnp.asarray(as_float(values))
    active_s = 1.0 / (as_float(encoder.values_per_cycle) * as_float(encoder.frequency_hz))
    return values * (as_float(encoder.power_w) * active_s + as_float(encoder.value_energy_j))
