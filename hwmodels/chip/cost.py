"""Everything that a device costs: area, power and price, with their parts."""

from __future__ import annotations

import flax.struct
from jaxtyping import Array, Float

from hwmodels.chip.bill import ChipParts, chip_area_parts, chip_power_parts
from hwmodels.chip.price import die_price, memory_price
from hwmodels.chip.technology import Technology
from hwmodels.device import Device
from hwmodels.numerics.scalars import as_float

__all__ = ["ChipBill", "chip_bill", "static_power"]


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
    found = device.technology if technology is None else technology
    if found is None:
        raise ValueError("the device has no technology; give one, such as Technology(node_m=7e-9)")
    area, power = chip_area_parts(device, found), chip_power_parts(device, found)
    price = die_price(area.total, found) + memory_price(device, found)
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
