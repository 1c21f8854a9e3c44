"""Energy of a step: what arithmetic, memories and decoders take for its work, and what the chip draws meanwhile."""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.decoders.decode_cost import decode_energy
from hwmodels.device import Device
from hwmodels.network.operators import OperatorWork
from hwmodels.numerics.scalars import Number, as_float, with_last_axis
from hwmodels.numerics.units import BITS_PER_BYTE
from hwmodels.step.roofline import coded_bytes, traffic_by_memory

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


def step_energy(device: Device, work: OperatorWork, *, time_s: Number) -> StepEnergy:
    """Energy of given work that takes `time_s`.

    Args:
        device: leaves "*b"; its `chip` and the memories' energies per bit are what is charged.
        work: "*b operator".
        time_s: "*b", > 0; of the whole step.
    Raises:
        ValueError: the device has no `chip`, so that its energy is not known.
    Source: ELMoE-3D, 7.2: computation, accesses by tier and static power; Huff-LLM, appendix A.1: energy per operation.
    """
    if device.chip is None:
        raise ValueError(
            "the device has no chip, so its energy is not known; give it a [chip] with energy_j_per_flop, "
            "static_power_w and area_m2"
        )
    chip = jax.tree.map(as_float, device.chip)
    moved_bits = jnp.sum(traffic_by_memory(device, work), axis=-2) * BITS_PER_BYTE
    per_bit = jnp.stack(
        jnp.broadcast_arrays(*(jnp.asarray(as_float(t.energy_j_per_bit)) for t in (device.memory, *device.spill))),
        axis=-1,
    )
    arithmetic_j = jnp.sum(work.flops, axis=-1) * chip.energy_j_per_flop
    product_energy = getattr(device.matrix_unit, "product_energy", None)
    if product_energy is not None and work.shapes is not None:
        # The unit knows what a product takes, its buffers included; the chip's figure is for the rest.
        s = work.shapes
        unit = with_last_axis(device.matrix_unit)
        products_j = unit.product_energy(s.m, s.k, s.n, weight_bits=s.weight_bits) * s.products * work.launches
        rest_j = jnp.where(s.products > 0, 0.0, work.flops) * chip.energy_j_per_flop
        arithmetic_j = jnp.sum(jnp.where(s.products > 0, products_j, rest_j), axis=-1)
    decoder_j = jnp.zeros_like(arithmetic_j)
    if device.decoder is not None:
        decoder_j = decode_energy(device.decoder, jnp.sum(coded_bytes(device, work), axis=-1), 0.0)
    static_j = jnp.asarray(as_float(time_s)) * chip.static_power_w
    return StepEnergy(
        arithmetic_j=arithmetic_j,
        memory_j=moved_bits * per_bit,
        decoder_j=decoder_j,
        static_j=static_j,
    )
