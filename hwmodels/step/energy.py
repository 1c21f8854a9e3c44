"""Energy of a step: what arithmetic, memories and decoders take for its work, and what the chip draws meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.device import Device
from hwmodels.numerics.scalars import as_float
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = ["StepEnergy", "step_energy"]


@flax.struct.dataclass
class StepEnergy:
    """Joules of one step by component, "*b"."""

    arithmetic_j: Float[Array, "*b"]
    memory_j: Float[Array, "*b tier"]  # the first memory first
    decoder_j: Float[Array, "*b"]
    static_j: Float[Array, "*b"]  # drawn over the step's time, whatever it does

    @property
    def total_j(self) -> Float[Array, "*b"]:
        """All components."""
        return self.arithmetic_j + jnp.sum(self.memory_j, axis=-1) + self.decoder_j + self.static_j


def step_energy(
    device: Device,
    *,
    arithmetic_j: Float[Array, "... operator"] | None,
    traffic_bytes: Sequence[Float[Array, "... operator"]],
    decoder_j: Float[Array, "... operator"],
    time_s: Float[Array, "*b"],
) -> StepEnergy | None:
    """Energy of a step from its parts; None where the device has no chip, so that its energy is not known.

    Args:
        device: leaves "*b"; its `chip` and the memories' energies per bit are what is charged.
        arithmetic_j: as the compute unit has it; None: not known.
        traffic_bytes: of each memory.
        decoder_j: of the decoders.
        time_s: of the whole step.
    Source: ELMoE-3D, 7.2: computation, accesses by tier and static power; Huff-LLM, appendix A.1: energy per operation.
    """
    if device.chip is None or arithmetic_j is None:
        return None
    memory_j = [
        jnp.sum(moved, axis=-1) * (BITS_PER_BYTE * as_float(tier.energy_j_per_bit))
        for moved, tier in zip(traffic_bytes, (device.memory, *device.spill), strict=True)
    ]
    return StepEnergy(
        arithmetic_j=jnp.sum(arithmetic_j, axis=-1),
        memory_j=jnp.stack(jnp.broadcast_arrays(*memory_j), axis=-1),
        decoder_j=jnp.sum(decoder_j, axis=-1),
        static_j=time_s * as_float(device.chip.static_power_w),
    )
