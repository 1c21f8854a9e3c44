"""Price of a die and of its memory: dies of a wafer, those that work, and memory by the byte.

Departs: design, masks, package, test, boards and margins are left out.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.chip.nodes import power_law
from hwmodels.chip.published import MEMORY_USD_PER_BYTE, WAFER_USD
from hwmodels.chip.technology import Technology
from hwmodels.device import Device
from hwmodels.numerics.scalars import Number, as_float
from hwmodels.numerics.units import NANO

__all__ = ["die_price", "die_yield", "dies_per_wafer", "memory_price"]

_WAFER_M = 0.3
#: How faults come in clusters: the exponent of the negative binomial distribution; 3 is common for logic.
#: Cunningham 1990, doi:10.1109/66.53188.
_CLUSTERING = 3.0


def dies_per_wafer(area_m2: Number) -> Float[Array, "*b"]:
    """Whole square dies of a wafer of 300 mm, "*b"; real, and at least one thousandth, so that gradients go on.

    Source: Hennessy and Patterson, Computer Architecture, 6th ed., 1.6: pi (d/2)^2 / A - pi d / sqrt(2 A).
    """
    area = as_float(area_m2)
    found = math.pi * (_WAFER_M / 2) ** 2 / area - math.pi * _WAFER_M / jnp.sqrt(2.0 * jnp.asarray(area))
    return jnp.maximum(found, 1e-3)


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
