"""Energy of a flop on a device: as its [chip] says, or as its technology has it."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.chip.blocks import mac_energy
from hwmodels.device import Device
from hwmodels.numerics.scalars import as_float

__all__ = ["energy_per_flop", "knows_energy"]


def knows_energy(device: Device) -> bool:
    """Whether the device says what arithmetic takes."""
    return device.chip is not None or device.technology is not None


def energy_per_flop(device: Device) -> Float[Array, "*b"] | None:
    """Energy of arithmetic, "*b", half a multiply-add each; None: not known."""
    if device.chip is not None:
        return jnp.asarray(as_float(device.chip.energy_j_per_flop))
    if device.technology is None:
        return None
    return mac_energy(device.technology.node_m, device.technology.number_format) / 2.0
