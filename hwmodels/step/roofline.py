"""Roofline time of an operator: the slowest of computing, moving and decoding, with a smooth maximum for gradients."""

from __future__ import annotations

import dataclasses
import math

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.decoders.decode_cost import decode_time, fill_time
from hwmodels.device import Device, WorkUnit
from hwmodels.memory.tiers import place_in_order, seconds_per_byte
from hwmodels.network.operators import EXPERT_OPERATORS, OPERATORS, MatrixShapes, OperatorWork
from hwmodels.numerics.scalars import Number, as_float, with_last_axis
from hwmodels.numerics.smoothing import smooth_maximum

_IS_EXPERT = np.array([name in EXPERT_OPERATORS for name in OPERATORS])


def compute_time(device: Device, work: OperatorWork, *, temperature: Number = 0.0) -> Float[Array, "... operator"]:
    """Seconds of each operator's arithmetic: products of matrices as the matrix unit has it, the rest at the roof's rate.

    Args:
        device: leaves "*b".
        work: "*b operator".
        temperature: one number in [0, 1], of tile counts; 0 is exact.
    """
    if isinstance(device.matrix_unit, WorkUnit):
        return operator_times(device, work, temperature=temperature).compute_s
    return _compute_time(device, work, temperature)


def _compute_time(device: Device, work: OperatorWork, temperature: Number) -> Float[Array, "... operator"]:
    rate_flops_per_s = as_float(device.peak_flops_per_s) * as_float(device.compute_efficiency)
    roof_s = work.flops / jnp.asarray(rate_flops_per_s)[..., None]
    if device.matrix_unit is None:
        return roof_s
    if isinstance(device.matrix_unit, WorkUnit):
        return device.matrix_unit.operator_compute_time(device, work, roof_s, temperature=temperature)
    unit, shapes = with_last_axis(device.matrix_unit), _shapes(work)
    product_s = unit.product_time(
        shapes.m, shapes.k, shapes.n, weight_bits=shapes.weight_bits, temperature=as_float(temperature)
    )
    return jnp.where(shapes.products > 0, product_s * shapes.products * work.launches, roof_s)


def memory_time(device: Device, work: OperatorWork, *, temperature: Number = 0.0) -> Float[Array, "... operator"]:
    """Seconds to move each operator's bytes, each of them once.

    With one memory all bytes stream from it. With several, KV, dense weights and experts fill them in this order, spread
    over the layers evenly, so that an operator reads its share of a class from each; activations stay in the first.

    Args:
        device: leaves "*b".
        work: "*b operator".
        temperature: one number in [0, 1], of the maximum over memories that work at the same time.
    Gradient: kinks where a memory is just full.
    """
    if isinstance(device.matrix_unit, WorkUnit):
        return operator_times(device, work, temperature=temperature).memory_s
    return _memory_time(device, work, temperature)


def _memory_time(device: Device, work: OperatorWork, temperature: Number) -> Float[Array, "... operator"]:
    share = _share_in_use(device, work, temperature)
    bytes_by_tier = traffic_by_memory(device, work)
    tiers = [with_last_axis(tier) for tier in (device.memory, *device.spill)]
    if isinstance(device.matrix_unit, WorkUnit):
        tiers[0] = dataclasses.replace(tiers[0], efficiency=device.matrix_unit.streaming_share(device, work))
    seconds = [
        moved * seconds_per_byte(tier, active_share=share)
        for moved, tier in zip(jnp.unstack(bytes_by_tier, axis=-1), tiers, strict=True)
    ]
    if not device.spill:
        return seconds[0]
    tier_s = jnp.stack(jnp.broadcast_arrays(*seconds), axis=-1)
    return jnp.sum(tier_s, axis=-1) if device.schedule == "serial" else smooth_maximum(tier_s, temperature)


def traffic_by_memory(device: Device, work: OperatorWork) -> Float[Array, "... operator tier"]:
    """Bytes that each operator moves to and from each memory, the first memory first; see `memory_time`."""
    kv_bytes = work.kv_bytes * with_last_axis(device.kv_traffic_factor)
    if not device.spill:
        return (work.weight_bytes + kv_bytes + work.activation_bytes)[..., None]
    tiers = (device.memory, *device.spill)
    if work.stored is None:
        raise ValueError(
            "the work does not say what is stored, which several memories need; build it with step_operators"
        )
    stored = jnp.stack(jnp.broadcast_arrays(work.stored.kv, work.stored.dense, work.stored.experts), axis=-1)
    placed = place_in_order(tiers, stored).stored_bytes
    share = placed / jnp.where(stored > 0, stored, 1.0)[..., None]
    # What is stored nowhere moves nothing; its share is put in the first memory so that shares always sum to one.
    first = jnp.arange(len(tiers)) == 0
    share = jnp.where((stored > 0)[..., None], share, first.astype(share.dtype))
    kv, dense, experts = (share[..., None, i, :] for i in range(3))
    weights = jnp.where(_IS_EXPERT[:, None], experts, dense)
    return (
        kv_bytes[..., None] * kv
        + work.weight_bytes[..., None] * weights
        + work.activation_bytes[..., None] * first.astype(share.dtype)
    )


def operator_time(device: Device, work: OperatorWork, *, temperature: Number = 0.0) -> Float[Array, "... operator"]:
    """Seconds of each operator: computing, moving and decoding overlap fully, launches do not.

    Args:
        device: leaves "*b".
        work: "*b operator".
        temperature: one number in [0, 1], of the smooth maximum.
    Returns:
        "*b operator", s; 0 for an operator that neither computes nor moves anything.
    Gradient: kink where computing takes as long as moving, at temperature 0; see `smooth_maximum`.
    Source: Williams, Waterman, Patterson 2009, doi:10.1145/1498765.1498785, per operator instead of per program.
    Departs: a fixed latency per launch is added.
    """
    return operator_times(device, work, temperature=temperature).total_s


@flax.struct.dataclass
class OperatorTimes:
    """Seconds of each operator and where they go, "... operator"."""

    total_s: Float[Array, "... operator"]  # launches included
    compute_s: Float[Array, "... operator"]  # if only arithmetic took time
    memory_s: Float[Array, "... operator"]  # if only traffic took time
    decoding_s: Float[Array, "... operator"]  # if only decoding took time
    launch_s: Float[Array, "... operator"]  # overlapped with nothing


def operator_times(device: Device, work: OperatorWork, *, temperature: Number = 0.0) -> OperatorTimes:
    """`operator_time` with its parts, computed once; arguments and gradient as there.

    A unit with several kernels mixes them by what each takes in all, parts likewise: parts of different kernels would add
    up to one that does not exist.
    """
    unit = device.matrix_unit
    if not isinstance(unit, WorkUnit):
        return _times(device, work, temperature)
    found = [
        _times(dataclasses.replace(device, matrix_unit=one), its_work, temperature)
        for one, its_work in unit.kernels(work)
    ]
    if len(found) == 1:
        return found[0]
    stacked = jax.tree.map(lambda *parts: jnp.stack(jnp.broadcast_arrays(*parts), axis=-1), *found)
    shares = unit.kernel_shares(work, stacked.total_s)
    return jax.tree.map(lambda part: jnp.sum(shares * part, axis=-1), stacked)


def _times(device: Device, work: OperatorWork, temperature: Number) -> OperatorTimes:
    """Of a device whose matrix unit has one kernel, or none."""
    compute_s = _compute_time(device, work, temperature)
    memory_s = _memory_time(device, work, temperature)
    decoding_s = decoding_time(device, work, temperature=temperature)
    times = [compute_s, memory_s] + ([decoding_s] if device.decoder is not None else [])
    if isinstance(device.matrix_unit, WorkUnit):
        # Its numbers were fitted with this smoothing: less of it would be another model.
        temperature = jnp.maximum(as_float(temperature), device.matrix_unit.overlap_temperature)
    busy = smooth_maximum(jnp.stack(jnp.broadcast_arrays(*times), axis=-1), temperature)
    launch_s = _launch_time(device, work)
    return OperatorTimes(busy + jnp.where(busy > 0, launch_s, 0.0), compute_s, memory_s, decoding_s, launch_s)


def decoding_time(device: Device, work: OperatorWork, *, temperature: Number = 0.0) -> Float[Array, "... operator"]:
    """Seconds in which the decoders decode what each operator reads in fewer than 16 bits; 0 without decoders.

    Of the decoder's two limits only that of symbols per cycle is seen: how many bits of a value are code of variable length
    is not known from its width. Each element passes the decoder once, also at the edge of an array.
    """
    if device.decoder is None:
        return jnp.zeros_like(work.flops)
    rate = device.decoder.symbols_per_cycle
    if isinstance(rate, float) and math.isinf(rate) and device.decoder.kind != "none":
        raise ValueError(
            f"the device's decoder of kind {device.decoder.kind!r} has no limit of symbols per cycle, so that a step would "
            "decode infinitely fast; set symbols_per_cycle"
        )
    decoder = with_last_axis(device.decoder)
    return decode_time(decoder, coded_bytes(device, work), 0.0, temperature=temperature)


def coded_bytes(device: Device, work: OperatorWork) -> Float[Array, "... operator"]:
    """Decoded bytes that each operator gets from the device's decoders."""
    if work.coded_elements is None:
        raise ValueError(
            "the work does not say what is coded, which a device with a decoder needs; build it with step_operators"
        )
    return work.coded_elements * with_last_axis(device.decoder.symbol_bytes)


def launch_time(device: Device, work: OperatorWork) -> Float[Array, "... operator"]:
    """Seconds of each operator's launches, which overlap with nothing: also a decoder's way to its first symbol."""
    if isinstance(device.matrix_unit, WorkUnit):
        return operator_times(device, work).launch_s
    return _launch_time(device, work)


def _launch_time(device: Device, work: OperatorWork) -> Float[Array, "... operator"]:
    latency_s = with_last_axis(device.operator_latency_s)
    if isinstance(device.matrix_unit, WorkUnit):
        latency_s = device.matrix_unit.operator_launch_time(device, work)
    elif device.matrix_unit is not None:
        unit, shapes = with_last_axis(device.matrix_unit), _shapes(work)
        own_s = unit.launch_time(shapes.m, shapes.k, shapes.n, weight_bits=shapes.weight_bits)
        latency_s = latency_s + jnp.where(shapes.products > 0, own_s, 0.0)
    if device.decoder is not None:
        fill_s = fill_time(with_last_axis(device.decoder))
        latency_s = latency_s + jnp.where(coded_bytes(device, work) > 0, fill_s, 0.0)
    return latency_s * work.launches


def _share_in_use(device: Device, work: OperatorWork, temperature: Number) -> Number:
    """Share of the processing elements that work on each operator, which slows down memories coupled with them."""
    share_in_use = getattr(device.matrix_unit, "share_in_use", None)
    if share_in_use is None:
        return 1.0
    unit, shapes = with_last_axis(device.matrix_unit), _shapes(work)
    share = unit.share_in_use(shapes.k, shapes.n, temperature=as_float(temperature))
    return jnp.where(shapes.products > 0, share, 1.0)


def _shapes(work: OperatorWork) -> MatrixShapes:
    if work.shapes is None:
        raise ValueError(
            "the work has no shapes, which a device with a matrix unit needs; build it with step_operators"
        )
    return work.shapes
