"""What one step costs: time by cause, traffic by memory, energy, computed once.

Each operator takes the longest of computing, moving, on the chip too, and decoding, with a smooth maximum for gradients, plus
its launches; operators follow one another.

Source: Williams, Waterman, Patterson 2009, doi:10.1145/1498765.1498785, per operator instead of per program.
Departs: a fixed latency per launch is added.
"""

from __future__ import annotations

from collections.abc import Sequence

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.compute.roofline import unit_of
from hwmodels.compute.unit import ComputeUnit
from hwmodels.device import Device
from hwmodels.memory.padded_work import padded_work
from hwmodels.network.operators import OPERATORS, OperatorWork
from hwmodels.network.operators.work import over_batches
from hwmodels.numerics.layouts import batch_innermost
from hwmodels.numerics.quick_jit import priced_at_once
from hwmodels.numerics.scalars import Number
from hwmodels.numerics.smoothing import smooth_maximum, wider_temperature
from hwmodels.parallel.collectives import COLLECTIVES
from hwmodels.step.decoding import decoder_cost, decoder_energy
from hwmodels.step.encoding import encoder_energy, encoder_time, time_with_encoder
from hwmodels.step.energy import StepEnergy, memory_energy, step_energy
from hwmodels.step.on_chip import on_chip_cost
from hwmodels.step.traffic import memory_time, traffic_by_memory

__all__ = ["STEP_PARTS", "StepCost", "seconds_by_part", "step_cost"]

#: What a step waits for where encoding new keys and values outlasts all else.
_ENCODING = "kv_encoding"

#: What a step's time is told apart by: operators, then collectives of several devices, then waiting for encoders.
STEP_PARTS = (*OPERATORS, *COLLECTIVES, _ENCODING)


@flax.struct.dataclass
class StepCost:
    """Cost of one step and where it goes; arrays are "... operator" over `OPERATORS`, all layers together."""

    total_s: Float[Array, "*b"]  # of the step: its operators, and collectives, one after the other, or `encoding_s`
    operator_s: Float[Array, "... operator"]  # the longest of the next five, launches included
    compute_s: Float[Array, "... operator"]  # if only arithmetic took time
    memory_s: Float[Array, "... operator"]  # if only traffic took time
    #: If only traffic between memories and compute unit took time; 0: the device does not say what it takes.
    on_chip_s: Float[Array, "... operator"]
    decoding_s: Float[Array, "... operator"]  # if only decoding took time
    exchange_s: Float[Array, "... operator"]  # if only exchange between the parts of a unit took time
    launch_s: Float[Array, "... operator"]  # overlapped with nothing
    encoding_s: Float[Array, "*b"]  # if only encoding new keys and values took time
    traffic_bytes: Float[Array, "... operator tier"]  # to and from each memory, the first one first
    memory_j: Float[Array, "*b tier"] | None  # of moving it; None unless all memories say what a bit takes
    energy: StepEnergy | None  # of everything; None where the device's energy is not known
    collective_s: Float[Array, "... collective"] | None = None  # of several devices, over `COLLECTIVES`; None for one

    @property
    def power_w(self) -> Float[Array, "*b"] | None:
        """Mean power of the step; None where the device's energy is not known."""
        return None if self.energy is None else self.energy.total_j / self.total_s


@priced_at_once
def step_cost(device: Device, work: OperatorWork, *, temperature: Number = 0.0) -> StepCost:
    """Time, traffic and energy of given work.

    Args:
        device: leaves "*b".
        work: "*b operator".
        temperature: one number in [0, 1], of the smooth maximum and of counts of tiles; 0 is exact.
    Returns:
        0 s for an operator that neither computes nor moves anything.
    Raises:
        ValueError: the work does not say what the device's parts need; a decoder without a rate.
    Gradient: kinks where computing takes as long as moving, at temperature 0, and where a memory is just full; see
        `smooth_maximum`, `place_in_order`.
    """
    device, work = over_batches(device, work)
    unit, on_chip = unit_of(device), on_chip_cost(device, work)
    # Padding is loaded, and goes no further.
    work = padded_work(device, work)
    kernels = unit.kernels(work)
    price = _kernel_cost_once if len(kernels) > 1 and isinstance(temperature, (int, float)) else _kernel_cost
    found = [price(device, one, its_work, temperature, on_chip.limit_s) for one, its_work in kernels]
    cost, traffic = found[0], found[0].traffic_bytes
    if len(found) > 1:
        # Of the work as it is given: a kernel may read weights that are stored wider.
        traffic = traffic_by_memory(device, work)
        # Kernels are mixed by what each takes in all, and their parts likewise.
        total_s = jnp.stack(jnp.broadcast_arrays(*(kernel.total_s for kernel in found)), axis=-1)
        shares = jnp.unstack(unit.kernel_shares(work, total_s), axis=-1)
        cost = jax.tree.map(lambda *parts: _mixed(shares, parts), *found)
    # Summed here, not by a reader: inside a map over steps the sum is one pass with what it adds up.
    total_s = jnp.sum(batch_innermost(cost.total_s), axis=-1)
    total_s = time_with_encoder(device, work, total_s, temperature=temperature)
    memory_j = memory_energy(device, traffic)
    energy = step_energy(
        device,
        arithmetic_j=cost.arithmetic_j,
        memory_j=memory_j,
        link_j=cost.link_j if on_chip.link_j is None else cost.link_j + on_chip.link_j,
        decoder_j=decoder_energy(device, work),
        encoder_j=encoder_energy(device, work),
        time_s=total_s,
    )
    return StepCost(
        total_s=total_s,
        operator_s=cost.total_s,
        compute_s=cost.compute_s,
        memory_s=cost.memory_s,
        on_chip_s=_longest(on_chip.limit_s, temperature) if on_chip.limit_s else jnp.zeros_like(work.flops),
        decoding_s=cost.decoding_s,
        exchange_s=cost.exchange_s,
        launch_s=cost.launch_s,
        encoding_s=encoder_time(device, work),
        traffic_bytes=jnp.stack(jnp.broadcast_arrays(*traffic), axis=-1),
        memory_j=memory_j,
        energy=energy,
    )


def seconds_by_part(cost: StepCost) -> dict[str, float]:
    """Part of `STEP_PARTS` -> seconds of a single step, launches included; they sum to the step's time.

    Collectives are those of several devices, and encoders are named where the step waits for them.

    Args:
        cost: of one step, on the host.
    """
    found: dict[str, float] = dict(zip(OPERATORS, cost.operator_s.tolist(), strict=True))
    if cost.collective_s is not None:
        found |= dict(zip(COLLECTIVES, cost.collective_s.tolist(), strict=True))
    waiting_s = float(cost.total_s) - sum(found.values())
    # Sums of single precision differ by roundings.
    if float(cost.encoding_s) > 0 and waiting_s > 1e-5 * float(cost.total_s):
        found[_ENCODING] = waiting_s
    return found


@flax.struct.dataclass
class _OperatorCost:
    """Of one kernel; all leaves "... operator", so that kernels can be mixed operator by operator."""

    total_s: Float[Array, "... operator"]
    compute_s: Float[Array, "... operator"]
    memory_s: Float[Array, "... operator"]
    launch_s: Float[Array, "... operator"]
    traffic_bytes: tuple[Float[Array, "... operator"], ...]
    arithmetic_j: Float[Array, "... operator"] | None
    link_j: Float[Array, "... operator"]
    exchange_s: Float[Array, "... operator"]
    decoding_s: Float[Array, "... operator"]


def _kernel_cost(
    device: Device,
    unit: ComputeUnit,
    work: OperatorWork,
    temperature: Number,
    on_chip_s: tuple[Float[Array, "... operator"], ...],
) -> _OperatorCost:
    times = unit.operator_times(work, device, temperature=temperature)
    traffic = traffic_by_memory(device, work)
    memory_s = memory_time(device, traffic, work=work, share=times.memory_share, temperature=temperature)
    decoded = decoder_cost(device, work)
    limits = [times.compute_s, memory_s, *on_chip_s, *decoded.limit_s]
    limits += [] if times.exchange_s is None else [times.exchange_s]
    busy = _longest(limits, wider_temperature(temperature, times.overlap_temperature))
    launch_s = (times.launch_s + decoded.fill_s) * work.launches
    return _OperatorCost(
        total_s=busy + jnp.where(busy > 0, launch_s, 0.0),
        compute_s=times.compute_s,
        memory_s=memory_s,
        launch_s=launch_s,
        traffic_bytes=traffic,
        arithmetic_j=times.energy_j,
        link_j=jnp.zeros_like(work.flops) if times.link_j is None else times.link_j,
        exchange_s=jnp.zeros_like(work.flops) if times.exchange_s is None else times.exchange_s,
        decoding_s=_longest(decoded.limit_s, temperature) if decoded.limit_s else decoded.fill_s,
    )


#: Kernels of one form are traced and transformed once for all formats: programs that price steps are made in two thirds of the
#: time, and run as fast.
_kernel_cost_once = jax.jit(_kernel_cost, static_argnames="temperature")


def _mixed(
    shares: Sequence[Float[Array, "... operator"]], parts: Sequence[Float[Array, "... operator"]]
) -> Float[Array, "... operator"]:
    """Sum of shares times parts. Kernel by kernel: an axis of so few is not vectorised."""
    return sum((share * part for share, part in zip(shares[1:], parts[1:], strict=True)), start=shares[0] * parts[0])


def _longest(times: Sequence[Float[Array, "... operator"]], temperature: Number) -> Float[Array, "... operator"]:
    return smooth_maximum(jnp.stack(jnp.broadcast_arrays(*times), axis=-1), temperature)
