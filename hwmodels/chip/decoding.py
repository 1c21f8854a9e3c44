"""Area and energy of decoders at a node where nothing else is known: those of Cassandra's unary decoders, by values per cycle.

Source: Cassandra, Table V: 40 decoders of 12.8 values of two bytes per cycle take 1.76 mm2 and 0.264 W at 28 nm.
Departs: the clock is not printed; 1 GHz is assumed.
"""

from __future__ import annotations

from jaxtyping import Array, Float

from hwmodels.chip.blocks import mac_energy
from hwmodels.chip.nodes import logic_area_factor
from hwmodels.numerics.scalars import Number, as_float
from hwmodels.numerics.units import NANO

__all__ = ["decoder_area_at", "decoder_symbol_energy_at"]

_NODE_M = 28 * NANO
_VALUES_PER_CYCLE = 40 * 12.8
_AREA_M2 = 1.76e-6 / _VALUES_PER_CYCLE
_SYMBOL_J = 0.264 / (_VALUES_PER_CYCLE * 1e9)


def decoder_area_at(node_m: Number, symbols_per_cycle: Number) -> Float[Array, "*b"]:
    """Area of a decoder of so many values per cycle, "*b", in m^2; scaled as logic."""
    return as_float(symbols_per_cycle) * _AREA_M2 * logic_area_factor(node_m) / logic_area_factor(_NODE_M)


def decoder_symbol_energy_at(node_m: Number) -> Float[Array, "*b"]:
    """Energy of a decoded value, "*b"; scaled as a multiply-add."""
    return _SYMBOL_J * mac_energy(node_m) / mac_energy(_NODE_M)
