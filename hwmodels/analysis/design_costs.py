"""What a device costs as a function of its numbers: area of the die, power at full load, off-package bandwidth, a price.

A device with a technology has its bill (`hwmodels.chip.chip_bill`): area, power and price of every part by the node. One with a
chip has what its file says: the die with its elements and decoders (`chip_area`), static power, decoders, arithmetic of its
array or peak, and memories that all stream at once. What a file is silent on is added by terms, each a coefficient times a
product of powers of numbers:

    area = area of the device + sum over terms of area_m2 * product of number^exponent

Sums of a chip's numbers are posynomials, which are convex in the logarithms of the numbers, so that a budget never cuts a
design space into islands. Source: Boyd, Kim, Vandenberghe, Hassibi 2007, doi:10.1007/s11081-007-9001-7, sec. 2.
Departs: without a technology the price is a proxy, of what terms state alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.analysis.design_point import chip_area
from hwmodels.analysis.sensitivity import leaf_names
from hwmodels.chip.bill import decoder_power, encoder_power, path_power
from hwmodels.chip.cost import chip_bill, die_price, memory_price
from hwmodels.compute.roofline import unit_of
from hwmodels.device import Device
from hwmodels.numerics.scalars import Leaf, as_float
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = ["DIE_AREA", "ELEMENTS", "CostTerm", "DesignCosts", "cost_names", "design_costs"]

#: Name of the number of equal elements of the matrix unit.
ELEMENTS = "elements"

#: Name of the area of the die, its terms included; itself in terms of power and price only.
DIE_AREA = "die_area_m2"


@flax.struct.dataclass
class CostTerm:
    """What a product of powers of numbers costs; the coefficients are leaves, "*b"."""

    of: tuple[tuple[str, float], ...] = flax.struct.field(pytree_node=False)  # name of `cost_names` and its exponent
    area_m2: Leaf = 0.0
    power_w: Leaf = 0.0
    price: Leaf = 0.0


@flax.struct.dataclass
class DesignCosts:
    """Costs of a device; each "*b"."""

    area_m2: Float[Array, "*b"]  # of the die, as far as device and terms say
    power_w: Float[Array, "*b"]  # with everything busy at once
    bandwidth_bytes_per_s: Float[Array, "*b"]  # of memories outside: neither bonded to compute units nor on the chip
    price: Float[Array, "*b"]


def cost_names(device: Device) -> list[str]:
    """Numbers that terms may name: the device's leaves, the elements of its matrix unit where it has any, the die's area."""
    elements = [] if unit_of(device).elements is None else [ELEMENTS]
    return [*leaf_names(device), *elements, DIE_AREA]


def design_costs(device: Device, terms: Sequence[CostTerm] = ()) -> DesignCosts:
    """Costs of a device.

    Args:
        device: leaves "*b".
        terms: beside what the device itself says; static number.
    Returns:
        costs; with a technology, a die that terms make larger leaks and is priced as a whole. A term by the die's area adds
        none to it.
    Raises:
        ValueError: a term names something else than `cost_names`.
    Gradient: smooth.
    """
    numbers = dict(zip(leaf_names(device), map(as_float, jax.tree.leaves(device)), strict=True))
    elements = unit_of(device).elements
    if elements is not None:
        numbers[ELEMENTS] = as_float(elements)
    own_area = area = _own_area(device)
    for term in terms:
        if all(name != DIE_AREA for name, _ in term.of):
            area = area + as_float(term.area_m2) * _product(term, numbers)
    numbers[DIE_AREA] = area
    power, price = _own_power(device), jnp.zeros(())
    if device.technology is not None:
        power = power + (area - own_area) * as_float(device.technology.static_w_per_m2)
        price = die_price(area, device.technology) + memory_price(device, device.technology)
    for term in terms:
        product = _product(term, numbers)
        power = power + as_float(term.power_w) * product
        price = price + as_float(term.price) * product
    tiers = [tier for tier in device.tiers if not (tier.coupled or tier.on_chip)]
    bandwidth = sum((as_float(tier.bandwidth_bytes_per_s) for tier in tiers), jnp.zeros(()))
    return DesignCosts(*map(jnp.asarray, (area, power, bandwidth, price)))


def _product(term: CostTerm, numbers: dict[str, Leaf]) -> Leaf:
    product: Leaf = 1.0
    for name, exponent in term.of:
        if name not in numbers:
            raise ValueError(f"a cost names {name!r}; known are {', '.join(numbers)}")
        product = product * numbers[name] ** exponent
    return product


def _own_area(device: Device) -> Leaf:
    """Of the die as far as the device says: terms add what its elements take where it does not."""
    whole = chip_area(device)
    if whole is not None:
        return whole
    fixed = 0.0 if device.chip is None or device.chip.area_m2 is None else as_float(device.chip.area_m2)
    coders = [one.total_area_m2 for one in (device.decoder, device.encoder) if one is not None]
    return jnp.asarray(sum(coders, start=fixed))


def _own_power(device: Device) -> Leaf:
    """By technology; else static power, decoders, encoders, memories, links and a roofline's arithmetic at full rate."""
    if device.technology is not None:
        return chip_bill(device).power_w
    power: Leaf = path_power(device)
    for tier in device.tiers:
        if tier.energy_j_per_bit is not None:
            power = power + as_float(tier.bandwidth_bytes_per_s) * BITS_PER_BYTE * as_float(tier.energy_j_per_bit)
    if device.decoder is not None:
        power = power + decoder_power(device.decoder)
    if device.encoder is not None:
        power = power + encoder_power(device.encoder)
    if device.chip is not None:
        power = power + as_float(device.chip.static_power_w)
        if device.matrix_unit is None:
            power = power + as_float(device.peak_flops_per_s) * as_float(device.chip.energy_j_per_flop)
    return jnp.asarray(power)
