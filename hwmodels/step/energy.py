"""Energy of a step: what arithmetic, memories, decoders and encoders take for its work, and what the chip draws meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.chip.bill import static_power
from hwmodels.device import Device
from hwmodels.numerics.scalars import as_float
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = ["StepEnergy", "idle_energy", "memory_energy", "step_energy"]


@flax.struct.dataclass
class StepEnergy:
    """Joules of one step by component, "*b"."""

    arithmetic_j: Float[Array, "*b"]
    memory_j: Float[Array, "*b tier"]  # the first memory first
    link_j: Float[Array, "*b"]  # between the parts of the compute unit, and to memories that it does not sit in
    decoder_j: Float[Array, "*b"]
    encoder_j: Float[Array, "*b"]  # of new keys and values
    static_j: Float[Array, "*b"]  # drawn over the step's time, whatever it does

    @property
    def total_j(self) -> Float[Array, "*b"]:
        """All components."""
        parts = self.arithmetic_j + jnp.sum(self.memory_j, axis=-1) + self.link_j + self.decoder_j + self.static_j
        return parts + self.encoder_j


def memory_energy(
    device: Device, traffic_bytes: Sequence[Float[Array, "... operator"]]
) -> Float[Array, "*b tier"] | None:
    """Joules of a step's traffic to each memory, the first memory first; None unless each says what a bit takes.

    Args:
        device: leaves "*b".
        traffic_bytes: of each memory.
    """
    per_bit = [tier.energy_j_per_bit for tier in device.tiers]
    if any(energy is None for energy in per_bit):
        return None
    joules = [
        jnp.sum(moved, axis=-1) * (BITS_PER_BYTE * as_float(energy))
        for moved, energy in zip(traffic_bytes, per_bit, strict=True)
    ]
    return jnp.stack(jnp.broadcast_arrays(*joules), axis=-1)


def idle_energy(device: Device, time_s: Float[Array, "*#b"]) -> Float[Array, "*b"]:
    """Joules that the device draws whatever it does, and all others of its group with it; "*b".

    Args:
        device: leaves "*b"; its energy is known.
        time_s: that passes.
    """
    devices = 1.0 if device.group is None else as_float(device.group.devices)
    return jnp.asarray(time_s * static_power(device) * devices)


def step_energy(
    device: Device,
    *,
    arithmetic_j: Float[Array, "... operator"] | None,
    memory_j: Float[Array, "... tier"] | None,
    link_j: Float[Array, "... operator"],
    decoder_j: Float[Array, "*#b"],
    encoder_j: Float[Array, "*#b"],
    time_s: Float[Array, "*#b"],
) -> StepEnergy | None:
    """Energy of a step from its parts; None where the device has neither chip nor technology.

    Args:
        device: leaves "*b"; its `chip` or technology and the memories' energies per bit are what is charged.
        arithmetic_j: as the compute unit has it; None: not known.
        memory_j: of each memory; None: not known, and taken as 0.
        link_j: of the compute unit's links.
        decoder_j: of the decoders.
        encoder_j: of the encoders.
        time_s: of the whole step.
    Source: ELMoE-3D, 7.2: computation, accesses by tier and static power; Huff-LLM, appendix A.1: energy per operation.
    """
    if arithmetic_j is None or not device.knows_energy:
        return None
    arithmetic = jnp.sum(arithmetic_j, axis=-1)
    nothing = jnp.zeros((*arithmetic.shape, 1 + len(device.spill)), arithmetic.dtype)
    return StepEnergy(
        arithmetic_j=arithmetic,
        memory_j=nothing if memory_j is None else memory_j,
        link_j=jnp.sum(link_j, axis=-1),
        decoder_j=decoder_j,
        encoder_j=encoder_j,
        static_j=time_s * static_power(device),
    )
