"""Time of one step: its operators one after the other."""

from __future__ import annotations

from collections.abc import Mapping

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.device import Device
from hwmodels.network.architecture import Architecture
from hwmodels.network.operators import OperatorWork, step_operators
from hwmodels.numerics.scalars import Number
from hwmodels.step.roofline import operator_times


@flax.struct.dataclass
class StepTime:
    """Time of one step and where it goes; arrays are "*b operator" over `OPERATORS`, all layers together."""

    total_s: Float[Array, "*b"]
    operator_s: Float[Array, "... operator"]  # roofline time, launches included; sums to total_s
    compute_s: Float[Array, "... operator"]  # if only arithmetic took time
    memory_s: Float[Array, "... operator"]  # if only traffic took time
    decoding_s: Float[Array, "... operator"]  # if only decoding took time


def work_time(device: Device, work: OperatorWork, *, temperature: Number = 0.0) -> StepTime:
    """Time of given work: operators run one after the other, each at its own roofline.

    Args:
        device: leaves "*b".
        work: "*b operator".
        temperature: one number in [0, 1], of the smooth maximum; 0 is exact.
    """
    times = operator_times(device, work, temperature=temperature)
    return StepTime(
        total_s=jnp.sum(times.total_s, axis=-1),
        operator_s=times.total_s,
        compute_s=times.compute_s,
        memory_s=times.memory_s,
        decoding_s=times.decoding_s,
    )


def step_time(
    device: Device,
    architecture: Architecture,
    *,
    tokens: Number,
    batch: Number,
    context_tokens: Number,
    weight_bits: Mapping[str, Number],
    kv_bits: Number,
    logit_tokens: Number | None = None,
    temperature: Number = 0.0,
) -> StepTime:
    """Time of one forward pass over `tokens` new tokens per sequence.

    Args:
        device: leaves "*b".
        tokens, batch, context_tokens, weight_bits, kv_bits, logit_tokens: as `step_operators` takes them.
        temperature: one number in [0, 1], of the smooth maximum; 0 is exact.
    Raises:
        ValueError: `weight_bits` lacks a kind or names one that does not exist.
    """
    work = step_operators(
        architecture,
        tokens=tokens,
        batch=batch,
        context_tokens=context_tokens,
        weight_bits=weight_bits,
        kv_bits=kv_bits,
        logit_tokens=logit_tokens,
    )
    return work_time(device, work, temperature=temperature)
