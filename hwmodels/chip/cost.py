"""Everything that a device costs: area, power and price, with their parts.

Price of a die and of its memory: dies of a wafer, those that work, and memory by the byte.

Departs: design, masks, package, test, boards and margins are left out.
"""

from __future__ import annotations

import math

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.chip.bill import ChipParts, chip_area_parts, chip_power_parts
from hwmodels.chip.blocks import power_law
from hwmodels.chip.hardware import Technology
from hwmodels.chip.published import MEMORY_USD_PER_BYTE, WAFER_USD
from hwmodels.device import Device
from hwmodels.numerics.scalars import Number, as_float
from hwmodels.numerics.units import NANO

__all__ = ["ChipBill", "chip_bill", "die_price", "die_yield", "dies_per_wafer", "memory_price", "static_power"]

_WAFER_M = 0.3
#: How faults come in clusters: the exponent of the negative binomial distribution; 3 is common for logic.
#: Cunningham 1990, doi:10.1109/66.53188.
_CLUSTERING = 3.0


def dies_per_wafer(area_m2: Number) -> Float[Array, "*b"]:
    """Whole square dies of a wafer of 300 mm, "*b"; real, and at least one thousandth, so that gradients go on.

    Source: Hennessy and Patterson, Computer Architecture, 6th ed., 1.6: pi (d/2)^2 / A - pi d / sqrt(2 A).
    """
    area = as_float(area_m2)
    dies = math.pi * (_WAFER_M / 2) ** 2 / area - math.pi * _WAFER_M / jnp.sqrt(2.0 * jnp.asarray(area))
    return jnp.maximum(dies, 1e-3)


def die_yield(area_m2: Number, defects_per_m2: Number) -> Float[Array, "*b"]:
    """Share of dies without a fault, "*b", in (0, 1]: negative binomial, (1 + A D / 3)^-3."""
    return jnp.asarray((1.0 + as_float(area_m2) * as_float(defects_per_m2) / _CLUSTERING) ** -_CLUSTERING)


def die_price(area_m2: Number, technology: Technology) -> Float[Array, "*b"]:
    """Price of a die that works, "*b", in USD: of the wafer over its good dies. Source: see `WAFER_USD`."""
    wafer = power_law({node * NANO: price for node, price in WAFER_USD.items()}, technology.node_m)
    return wafer / (dies_per_wafer(area_m2) * die_yield(area_m2, technology.defects_per_m2))


def memory_price(device: Device, technology: Technology) -> Float[Array, "*b"]:
    """Price of the device's memories by their capacity, "*b", in USD; those on the chip are paid for with the die."""
    capacity = sum((as_float(tier.capacity_bytes) for tier in device.tiers if not tier.on_chip), start=0.0)
    return jnp.asarray(capacity * MEMORY_USD_PER_BYTE[technology.memory_interface])


@flax.struct.dataclass
class ChipBill:
    """Cost of a device, "*b"."""

    area_m2: Float[Array, "*b"]  # of the die
    power_w: Float[Array, "*b"]  # with everything busy at once
    price_usd: Float[Array, "*b"]  # of die and memories
    area: ChipParts
    power: ChipParts


def chip_bill(device: Device, technology: Technology | None = None) -> ChipBill:
    """Area, power and price of a device by the sizes that its times follow from.

    Args:
        device: leaves "*b".
        technology: leaves "*b"; the device's own unless given.
    Raises:
        ValueError: no technology, neither given nor the device's.
    Gradient: smooth by sizes, rates and capacities; by the node with kinks at printed nodes.
    """
    process = device.technology if technology is None else technology
    if process is None:
        raise ValueError("the device has no technology; give one, such as Technology(node_m=7e-9)")
    area, power = chip_area_parts(device, process), chip_power_parts(device, process)
    price = die_price(area.total, process) + memory_price(device, process)
    return ChipBill(area.total, power.total, price, area, power)


def static_power(device: Device) -> Float[Array, "*b"]:
    """Power that the device draws whatever it does, "*b": as its [chip] says, or as area and technology have it.

    Raises:
        ValueError: the device has neither.
    """
    if device.chip is not None:
        return as_float(device.chip.static_power_w)
    if device.technology is None:
        raise ValueError("the device has neither a chip nor a technology, so that its power is not known")
    return chip_area_parts(device, device.technology).total * as_float(device.technology.static_w_per_m2)
