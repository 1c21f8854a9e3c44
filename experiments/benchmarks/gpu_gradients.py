"""Decode steps of calibrated GPUs per second, forward and with their gradient by rates of the device and bits.

    python -m experiments.benchmarks gpu_gradients

What a search over designs or a tuning step asks for: the time of one decode step of a known network, and its slopes by a few
numbers. Those numbers, the batch and the context differ from point to point; a chunk of points goes through one jitted `vmap`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import hwmodels
from experiments.benchmarks.hardware import CHUNK, REPEATS, TEMPERATURE, measure, measured_row, told
from hwmodels import catalog

__all__ = ["CASES", "Design", "draw_designs", "gpu_gradients", "step_seconds"]

#: Calibrated devices, few formats of weights and many, and a network for each: with routed experts and without.
CASES = (("l40s", "llama-3.1-8b"), ("h100-sxm", "llama-3.1-8b"), ("h100-sxm", "qwen3-30b-a3b"))


class Design(NamedTuple):
    """What differs from point to point; leaves "*b". The gradient is by the first five."""

    peak_flops_per_s: Any
    bandwidth_bytes_per_s: Any
    attention_bits: Any  # of weights
    feed_forward_bits: Any  # of weights
    kv_bits: Any
    batch: Any
    context_tokens: Any


#: By which numbers slopes are taken.
SLOPES = Design._fields[:5]


def draw_designs(count: int, *, device: hwmodels.Device, seed: int) -> Design:
    """Designs around a device, leaves "count"."""
    rng = np.random.default_rng([seed, count])
    drawn = {
        "peak_flops_per_s": device.peak_flops_per_s * rng.uniform(0.5, 2.0, count),
        "bandwidth_bytes_per_s": device.memory.bandwidth_bytes_per_s * rng.uniform(0.5, 2.0, count),
        "attention_bits": rng.uniform(3, 16, count),
        "feed_forward_bits": rng.uniform(3, 16, count),
        "kv_bits": rng.uniform(4, 16, count),
        "batch": rng.uniform(1, 65, count),
        "context_tokens": rng.uniform(100, 9000, count),
    }
    return Design(**{name: jnp.asarray(values, jnp.float32) for name, values in drawn.items()})


def step_seconds(
    device: hwmodels.Device, architecture: hwmodels.Architecture, design: Design, temperature: float = 0.0
) -> jax.Array:
    """Seconds of one decode step, "*b"."""
    memory = dataclasses.replace(device.memory, bandwidth_bytes_per_s=design.bandwidth_bytes_per_s)
    changed = dataclasses.replace(device, peak_flops_per_s=design.peak_flops_per_s, memory=memory)
    attention = dict.fromkeys(("q", "k", "v", "o"), design.attention_bits)
    others = set(hwmodels.ALL_LAYER_MATRICES) - set(attention)
    widths = hwmodels.uniform_weight_bits(16.0) | attention | dict.fromkeys(others, design.feed_forward_bits)
    footprint = hwmodels.Footprint(widths, widths, design.kv_bits, design.kv_bits)
    workload = hwmodels.Workload(batch=design.batch, context_tokens=design.context_tokens)
    work = hwmodels.decode_operators(architecture, workload, footprint=footprint)
    return hwmodels.step_cost(changed, work, temperature=temperature).total_s


def gpu_gradients(chunk: int = CHUNK, repeats: int = REPEATS) -> list[dict[str, Any]]:
    """Value and gradient of decode steps on calibrated GPUs, against the value alone."""
    rows = []
    for name, network in CASES:
        device, architecture = catalog.device(name), catalog.architecture(network)
        chunks = [draw_designs(chunk, device=device, seed=seed) for seed in range(3)]
        for temperature in (0.0, TEMPERATURE):

            def forward(design: Design, device=device, architecture=architecture, temperature=temperature) -> jax.Array:
                return step_seconds(device, architecture, design, temperature)

            def with_slopes(design: Design, forward=forward) -> Any:
                by = {field: getattr(design, field) for field in SLOPES}
                return jax.value_and_grad(lambda numbers: forward(design._replace(**numbers)))(by)

            value, both = (measure(function, chunks, repeats=repeats) for function in (forward, with_slopes))
            maxima = f"temperature {temperature}" if temperature else "exact"
            workload = f"{name}, {network}, {maxima}, by {len(SLOPES)} numbers: {told(both, chunk)}"
            ratio = both.median / value.median
            rows.append(measured_row("gpu_gradients", workload, both, value.median, "the value alone", ratio))
    return rows
