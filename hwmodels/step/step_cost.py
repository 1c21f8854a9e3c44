"""What one step costs: time by cause, traffic by memory, energy, computed once.

Each operator takes the longest of computing, moving, on the chip too, and decoding, with a smooth maximum for gradients, plus
its launches and its rows beyond the first (`hwmodels.device.ExtraRows`); operators follow one another.

Source: Williams, Waterman, Patterson 2009, doi:10.1145/1498765.1498785, per operator instead of per program.
Departs: a fixed latency per launch is added.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.compute.roofline import unit_of
from hwmodels.compute.unit import ComputeUnit
from hwmodels.decoders.decoder import is_coded_at
from hwmodels.decoders.encoder import encode_energy, encode_time
from hwmodels.device import Device, MemoryTier
from hwmodels.memory.placement import placement_of
from hwmodels.memory.tiers import half_efficiency_bytes, superblock_padding
from hwmodels.network.architecture import UNCOMPRESSED_BITS
from hwmodels.network.operators import EXPERT_OPERATORS, OPERATORS, OperatorWork
from hwmodels.network.operators.work import MATRIX_OPERATORS, over_batches
from hwmodels.numerics.fast_compile import in_small_program, priced_at_once
from hwmodels.numerics.gradients import batch_innermost, share_cotangent
from hwmodels.numerics.scalars import Number, as_float, select, with_last_axis, with_rank
from hwmodels.numerics.smoothing import smooth_maximum, wider_temperature
from hwmodels.numerics.units import BITS_PER_BYTE
from hwmodels.parallel.collectives import COLLECTIVES
from hwmodels.step.energy import StepEnergy, memory_energy, step_energy

__all__ = [
    "STEP_PARTS",
    "DecoderCost",
    "OnChipCost",
    "StepCost",
    "decoder_cost",
    "decoder_energy",
    "memory_time",
    "on_chip_cost",
    "seconds_by_part",
    "step_cost",
    "traffic_by_memory",
]

# Traffic of a step: which bytes each operator moves to and from each memory, and how long that takes.

_IS_EXPERT = np.array([name in EXPERT_OPERATORS for name in OPERATORS])


def traffic_by_memory(device: Device, work: OperatorWork) -> tuple[Float[Array, "... operator"], ...]:
    """Bytes that each operator moves to and from each memory, the first memory first.

    Args:
        device: leaves "*b".
        work: "*b operator".
    Raises:
        ValueError: several memories, and the work does not say what is stored, or read, as the placement needs it.
    Gradient: kinks where a memory is just full.
    """
    device, work = over_batches(device, work)
    kv_bytes = work.kv_bytes * with_last_axis(device.kv_traffic_factor)
    if not device.spill:
        return (share_cotangent(work.weight_bytes + kv_bytes + work.activation_bytes),)
    shares = placement_of(device).shares(device.tiers, work)
    kv, dense, experts = (share[..., None, :] for share in vars(shares).values())
    weights = select(_IS_EXPERT[:, None], experts, dense)
    first = with_rank((jnp.arange(1 + len(device.spill)) == 0).astype(kv.dtype), work.flops.ndim + 1)
    moved = kv_bytes[..., None] * kv + work.weight_bytes[..., None] * weights + work.activation_bytes[..., None] * first
    return tuple(jnp.unstack(share_cotangent(moved), axis=-1))


def memory_time(
    device: Device,
    traffic_bytes: Sequence[Float[Array, "... operator"]],
    *,
    work: OperatorWork,
    share: Sequence[Float[Array, "... operator"]],
    temperature: Number = 0.0,
) -> Float[Array, "... operator"]:
    """Seconds to move each operator's bytes, each of them once.

    Args:
        device: leaves "*b".
        traffic_bytes: of each memory, see `traffic_by_memory`.
        work: "*b operator"; each product of each launch is one access to a memory that lets accesses wait.
        share: of each memory's bandwidth that each operator's streams reach, in (0, 1].
        temperature: one number in [0, 1], of the maximum over memories that work at the same time.
    Returns:
        never less than if what lies in a memory and behind it all came from the fastest of these: all streams enter the unit
        by ports as wide as that memory, so that a memory that is too small saves no time.
    Gradient: a kink where the ports decide.
    """
    rates = [
        with_last_axis(tier.bandwidth_bytes_per_s) * reached for tier, reached in zip(device.tiers, share, strict=True)
    ]
    alone = lambda place, moved: _with_waiting(device.tiers[place], moved, work) / rates[place]
    seconds = [alone(place, moved) for place, moved in enumerate(traffic_bytes)]
    if not device.spill:
        return seconds[0]
    tier_s = jnp.stack(jnp.broadcast_arrays(*seconds), axis=-1)
    if device.schedule == "serial":
        return jnp.sum(tier_s, axis=-1)
    total_s, last = smooth_maximum(tier_s, temperature), len(device.spill)
    for first in range(last):
        behind = sum(traffic_bytes[first + 1 :], start=traffic_bytes[first])
        entered_s = functools.reduce(jnp.minimum, [alone(place, behind) for place in range(first, last + 1)])
        total_s = jnp.maximum(total_s, entered_s)
    return total_s


def _with_waiting(
    tier: MemoryTier, moved: Float[Array, "... operator"], work: OperatorWork
) -> Float[Array, "... operator"]:
    """Bytes that the tier could have moved in the time: an access of a bytes takes as long as a + a_half streamed ones."""
    if tier.given_half_bytes is None and tier.access_latency_s is None:
        return moved
    products = 1.0 if work.shapes is None else jnp.maximum(work.shapes.products, 1.0)
    accesses = jnp.where(moved > 0, work.launches * products, 0.0)
    return moved + accesses * with_last_axis(half_efficiency_bytes(tier))


#: What a decoder makes of each element that it decodes.
_ELEMENT_BYTES = UNCOMPRESSED_BITS / BITS_PER_BYTE

#: Types of data of a tensor.
STREAMS = ("bitmap", "exponents", "mantissas")

_IS_ATTENTION = np.array([name == "attention" for name in OPERATORS])
_IS_MATRIX = np.array([name in MATRIX_OPERATORS for name in OPERATORS])


def padded_work(device: Device, work: OperatorWork) -> OperatorWork:
    """The work with what is read to fill blocks and superblocks, in weights and in the cache; as it is without superblocks.

    Args:
        device: leaves "*b".
        work: "*b operator".
    Raises:
        ValueError: superblocks, and work that does not say how many tensors are coded.
    Gradient: right by every leaf; counts are real numbers. A kink where padding takes as much as storing 16 bits.
    """
    if device.superblocks is None:
        return work
    if work.coded_tensors is None or work.coded_elements is None or work.coded_bits is None:
        raise ValueError(
            "the work does not say how many tensors are coded, which a device with superblocks needs; build it with "
            "step_operators"
        )
    blocks = with_last_axis(device.superblocks)
    padding = superblock_padding(
        len(STREAMS),
        blocks_per_superblock=blocks.blocks_per_superblock,
        block_bytes=blocks.block_bytes,
        num_tensors=work.coded_tensors,
    )
    # What padding would make longer than its 16 bits is stored in these.
    padding = jnp.minimum(padding, work.coded_elements * _ELEMENT_BYTES - work.coded_bits / BITS_PER_BYTE)
    of_cache = padding * _IS_ATTENTION.astype(padding.dtype)
    return dataclasses.replace(
        work, weight_bytes=work.weight_bytes + (padding - of_cache), kv_bytes=work.kv_bytes + of_cache
    )


@flax.struct.dataclass
class DecoderCost:
    """What decoding takes; times broadcast to "... operator"."""

    limit_s: tuple[
        Float[Array, "... operator"], ...
    ]  # if only one limit of the decoders took time; none without decoders
    fill_s: Float[Array, "... operator"]  # from a launch to its first value, overlapped with nothing


def decoder_cost(device: Device, work: OperatorWork) -> DecoderCost:
    """Time of the decoders for what each operator reads in fewer than 16 bits; 0 without decoders.

    Each element passes the decoder once, also at the edge of an array, and all of its stored bits are parsed: how many of
    them are code of variable length is not known from its width. The limits are given apart: the smooth maximum over all
    that a step waits for takes them one by one.

    Args:
        device: leaves "*b".
        work: "*b operator".
    Raises:
        ValueError: a decoder without a rate, or work that does not say what is coded.
    """
    if device.decoder is None:
        return DecoderCost((), jnp.zeros_like(work.flops))
    device.decoder.check_together()
    if work.coded_elements is None or work.coded_bits is None:
        raise ValueError(
            "the work does not say what is coded, which a device with a decoder needs; build it with step_operators"
        )
    decoder = with_last_axis(device.decoder)
    rate_hz = decoder.count * decoder.frequency_hz
    symbols_s = work.coded_elements * (_ELEMENT_BYTES / decoder.symbol_bytes / (rate_hz * decoder.symbols_per_cycle))
    limit_s = [symbols_s]
    if decoder.code_bits_per_cycle is not None:
        # Divided twice: with an infinite rate, which limits nothing, the slope by the others of a product would be NaN.
        limit_s.append(work.coded_bits / rate_hz / decoder.code_bits_per_cycle)
    return DecoderCost(
        tuple(limit_s), jnp.where(work.coded_elements > 0, decoder.latency_cycles / decoder.frequency_hz, 0.0)
    )


def decoder_energy(device: Device, work: OperatorWork) -> Float[Array, "*b"]:
    """Joules of decoding a step: each unit's power while it decodes, and the energy of each symbol; 0 without decoders.

    Fewer units decode for longer, so their number cancels. Idle units are taken to be gated. Arguments: `decoder_cost`.
    """
    if device.decoder is None:
        return jnp.zeros_like(work.flops[..., 0])
    assert work.coded_elements is not None
    assert work.coded_bits is not None
    decoder = jax.tree.map(as_float, device.decoder)
    # Sums first: over operators they are one pass, and everything after them is per step.
    symbols = jnp.sum(work.coded_elements, axis=-1) * (_ELEMENT_BYTES / decoder.symbol_bytes)
    cycles = symbols / decoder.symbols_per_cycle
    if decoder.code_bits_per_cycle is not None:
        by_operator = with_last_axis(device.decoder)
        put_out = work.coded_elements * (_ELEMENT_BYTES / by_operator.symbol_bytes / by_operator.symbols_per_cycle)
        cycles = jnp.sum(jnp.maximum(put_out, work.coded_bits / by_operator.code_bits_per_cycle), axis=-1)
    return decoder.power_w * (cycles / decoder.frequency_hz) + symbols * decoder.symbol_energy_j


@flax.struct.dataclass
class OnChipCost:
    """What traffic on the chip takes; times broadcast to "... operator"."""

    limit_s: tuple[Float[Array, "... operator"], ...]  # if only buffer or links took time; none without a path
    link_j: Float[Array, "... operator"] | None  # of the links; None: not known


def on_chip_cost(device: Device, work: OperatorWork) -> OnChipCost:
    """Time and energy of what each operator moves between the memories and the compute unit.

    Args:
        device: leaves "*b".
        work: "*b operator".
    Raises:
        ValueError: decoders and a path, and work that does not say what is coded.
    Gradient: right by every leaf; no kinks but those of `traffic_by_memory`.
    """
    if device.on_chip_path is None:
        return OnChipCost((), None)
    path, coded = with_last_axis(device.on_chip_path), sum(traffic_by_memory(device, work))
    buffer_bytes, link_bytes = (coded + _widening(device, work, level) for level in ("on_chip", "link"))
    if path.link_bytes_per_s is None:
        # Nothing is narrower behind the buffer than in it.
        limit_s = (link_bytes / path.buffer_bytes_per_s,)
    else:
        limit_s = (buffer_bytes / path.buffer_bytes_per_s, link_bytes / path.link_bytes_per_s)
    per_bit = path.link_energy_j_per_bit
    return OnChipCost(limit_s, None if per_bit is None else link_bytes * (BITS_PER_BYTE * per_bit))


def _widening(device: Device, work: OperatorWork, level: str) -> Float[Array, "... operator"]:
    """Bytes that decoding adds to what passes a level: none where values are still coded."""
    decoder = device.decoder
    if decoder is None or decoder.kind == "none" or is_coded_at(decoder, level):
        return jnp.zeros_like(work.flops)
    if work.coded_elements is None or work.coded_bits is None:
        raise ValueError(
            "the work does not say what is coded, which a device with a decoder needs; build it with step_operators"
        )
    added = work.coded_elements * _ELEMENT_BYTES - work.coded_bits / BITS_PER_BYTE
    return select(_IS_ATTENTION, added * with_last_axis(device.kv_traffic_factor), added)


#: What a step waits for where encoding new keys and values outlasts all else.
_ENCODING = "kv_encoding"

#: Parts of a step's time: operators, then collectives of several devices, then waiting for encoders.
STEP_PARTS = (*OPERATORS, *COLLECTIVES, _ENCODING)


@flax.struct.dataclass
class StepCost:
    """Cost of one step and where it goes; arrays are "... operator" over `OPERATORS`, all layers together."""

    total_s: Float[Array, "*b"]  # of the step: its operators, and collectives, one after the other, or `encoding_s`
    operator_s: Float[Array, "... operator"]  # the longest of the next five, launches and further rows included
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
    costs = _kernel_costs(device, kernels, temperature, on_chip.limit_s)
    cost, traffic = costs[0], costs[0].traffic_bytes
    if len(costs) > 1:
        # Of the work as it is given: a kernel may read weights that are stored wider.
        traffic = traffic_by_memory(device, work)
        # Kernels are mixed by what each takes in all, and their parts likewise.
        total_s = jnp.stack(jnp.broadcast_arrays(*(kernel.total_s for kernel in costs)), axis=-1)
        shares = jnp.unstack(unit.kernel_shares(work, total_s), axis=-1)
        cost = jax.tree.map(lambda *parts: _mixed(shares, parts), *costs)
    # Summed here, not by a reader: inside a map over steps the sum is one pass with what it adds up.
    total_s = jnp.sum(batch_innermost(cost.total_s), axis=-1)
    encoding_s = encoder_j = jnp.zeros_like(work.flops[..., 0])
    if device.encoder is not None:
        if work.encoded_kv is None:
            raise ValueError(
                "the work does not say which new keys and values are stored coded, which a device with an encoder needs; "
                "build it with step_operators"
            )
        encoding_s, encoder_j = (of(device.encoder, work.encoded_kv) for of in (encode_time, encode_energy))
        # The last layer's values come at the end of the step; they are encoded during the next one.
        total_s = _longest((total_s, encoding_s), temperature)
    memory_j = memory_energy(device, traffic)
    energy = step_energy(
        device,
        arithmetic_j=cost.arithmetic_j,
        memory_j=memory_j,
        link_j=cost.link_j if on_chip.link_j is None else cost.link_j + on_chip.link_j,
        decoder_j=decoder_energy(device, work),
        encoder_j=encoder_j,
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
        encoding_s=encoding_s,
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
    seconds: dict[str, float] = dict(zip(OPERATORS, cost.operator_s.tolist(), strict=True))
    if cost.collective_s is not None:
        seconds |= dict(zip(COLLECTIVES, cost.collective_s.tolist(), strict=True))
    waiting_s = float(cost.total_s) - sum(seconds.values())
    # Sums of single precision differ by roundings.
    if float(cost.encoding_s) > 0 and waiting_s > 1e-5 * float(cost.total_s):
        seconds[_ENCODING] = waiting_s
    return seconds


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
        total_s=busy + jnp.where(busy > 0, launch_s, 0.0) + _extra_rows_time(device, work),
        compute_s=times.compute_s,
        memory_s=memory_s,
        launch_s=launch_s,
        traffic_bytes=traffic,
        arithmetic_j=times.energy_j,
        link_j=jnp.zeros_like(work.flops) if times.link_j is None else times.link_j,
        exchange_s=jnp.zeros_like(work.flops) if times.exchange_s is None else times.exchange_s,
        decoding_s=_longest(decoded.limit_s, temperature) if decoded.limit_s else decoded.fill_s,
    )


def _extra_rows_time(device: Device, work: OperatorWork) -> Float[Array, "... operator"] | float:
    """Seconds of the rows of each stored matrix beyond the first; rows of experts are the mean of those that are read.

    Gradient: right, with kinks at 1 row and at `ExtraRows.until`.
    """
    if device.extra_rows is None:
        return 0.0
    if work.shapes is None:
        raise ValueError("the work has no shapes, which a device with extra_rows needs; build it with step_operators")
    extra, shapes = with_last_axis(device.extra_rows), work.shapes
    rate = device.peak_flops_per_s if device.vector_flops_per_s is None else device.vector_flops_per_s
    further = jnp.clip(shapes.m - 1.0, 0.0, jnp.maximum(extra.until - 1.0, 0.0))
    weights = shapes.k * shapes.n * shapes.products * work.launches
    return select(
        _IS_MATRIX & (shapes.weight_bits < UNCOMPRESSED_BITS),
        (2.0 * extra.instructions / with_last_axis(rate)) * weights * further,
        0.0,
    )


#: Kernels of one form are traced and transformed once for all formats: programs that price steps are made in two thirds of the
#: time, and run as fast.
_kernel_cost_once = jax.jit(_kernel_cost, static_argnames="temperature")


def _kernel_costs(
    device: Device,
    kernels: Sequence[tuple[ComputeUnit, OperatorWork]],
    temperature: Number,
    on_chip_s: tuple[Float[Array, "... operator"], ...],
) -> list[_OperatorCost]:
    """Cost of each kernel; in small programs those of one form go through one map."""
    alike = len(kernels) > 1 and len({jax.tree.structure(kernel) for kernel in kernels}) == 1
    if not (alike and in_small_program()):
        price = _kernel_cost_once if len(kernels) > 1 and isinstance(temperature, (int, float)) else _kernel_cost
        return [price(device, unit, work, temperature, on_chip_s) for unit, work in kernels]
    leaves = list(zip(*(jax.tree.leaves(kernel) for kernel in kernels), strict=True))
    axes = [None if all(leaf is each[0] for leaf in each) else 0 for each in leaves]
    as_stack = lambda each: jnp.stack(jnp.broadcast_arrays(*(jnp.asarray(as_float(leaf)) for leaf in each)))
    stacked = [each[0] if axis is None else as_stack(each) for each, axis in zip(leaves, axes, strict=True)]
    form = jax.tree.structure(kernels[0])

    def of_leaves(leaves: list[Array]) -> _OperatorCost:
        unit, work = form.unflatten(leaves)
        return _kernel_cost(device, unit, work, temperature, on_chip_s)

    parts, treedef = jax.tree.flatten(jax.vmap(of_leaves, (axes,))(stacked))
    return [treedef.unflatten(kernel) for kernel in zip(*map(jnp.unstack, parts), strict=True)]


def _mixed(
    shares: Sequence[Float[Array, "... operator"]], parts: Sequence[Float[Array, "... operator"]]
) -> Float[Array, "... operator"]:
    """Sum of shares times parts. Kernel by kernel: an axis of so few is not vectorised."""
    return sum((share * part for share, part in zip(shares[1:], parts[1:], strict=True)), start=shares[0] * parts[0])


def _longest(times: Sequence[Float[Array, "*#b"]], temperature: Number) -> Float[Array, "*b"]:
    return smooth_maximum(jnp.stack(jnp.broadcast_arrays(*times), axis=-1), temperature)
