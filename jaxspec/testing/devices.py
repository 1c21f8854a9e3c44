"""What every device keeps to, with networks of every kind, whatever computes and remembers."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from hwmodels import Device, catalog, step_cost, step_operators, uniform_weight_bits
from hwmodels.network.operators import StepShape
from hwmodels.network.operators.work import OperatorWork

__all__ = ["NETWORKS", "check_device", "price", "work"]

#: Dense and mixed, with and without latent attention.
NETWORKS = ("llama-3.2-1b", "qwen3-30b-a3b", "deepseek-v2-lite", "gpt-oss-20b", "opt-2.7b")

_step = jax.jit(
    lambda architecture, tokens, batch, context, bits: step_operators(
        architecture,
        StepShape(
            tokens=tokens, batch=batch, context_tokens=context, weight_bits=uniform_weight_bits(bits), kv_bits=bits
        ),
    )
)
#: `step_cost`, compiled.
price = jax.jit(step_cost)


def work(
    network: str, tokens: float = 5.0, batch: float = 1.0, context: float = 777.0, bits: float = 16.0
) -> OperatorWork:
    """A step of a network of the catalog."""
    return _step(catalog.architecture(network), tokens, batch, context, bits)


def stays_within_bounds(
    device: Device, network: str = NETWORKS[0], *, tokens: float = 5.0, batch: float = 1.0, bits: float = 16.0
) -> None:
    """No step beats the peak or the bandwidth, and every byte is moved once."""
    moved = work(network, tokens, batch, 777.0, bits)
    time = price(device, moved)
    assert np.all(np.isfinite(time.operator_s))
    peak = max(device.peak_flops_per_s, getattr(device.matrix_unit, "peak_flops_per_s", None) or 0.0)
    # Not faster than all FLOPs at the peak, nor than all bytes over all memories at once.
    assert float(time.total_s) >= float(moved.flops.sum()) / peak * (1 - 1e-5)
    bandwidth = sum(tier.bandwidth_bytes_per_s for tier in device.tiers)
    assert float(time.total_s) >= float(moved.memory_bytes.sum()) / bandwidth * (1 - 1e-5)
    np.testing.assert_array_less(0.0, np.asarray(time.operator_s)[np.asarray(moved.flops) > 0])
    expected = moved.weight_bytes + device.kv_traffic_factor * moved.kv_bytes + moved.activation_bytes
    np.testing.assert_allclose(time.traffic_bytes.sum(-1), expected, rtol=1e-5)


def halves_at_twice_the_rates(device: Device) -> None:
    """Twice the rates and half the latencies, told by the names of their fields, are half the time."""

    def faster(path: Any, leaf: Any) -> Any:
        field = path[-1].name
        if field.endswith(("_per_s", "_hz")):
            return 2.0 * leaf
        return leaf / 2.0 if field.endswith("_s") else leaf

    twice = jax.tree_util.tree_map_with_path(faster, device)
    for network in NETWORKS[:2]:
        moved = work(network)
        slow, fast = price(device, moved), price(twice, moved)
        np.testing.assert_allclose(fast.operator_s, np.asarray(slow.operator_s) / 2, rtol=1e-5)


def gains_by_bandwidth(device: Device) -> None:
    """More bandwidth never lengthens a step."""
    moved, times = work("qwen3-30b-a3b"), []
    for factor in (1.0, 1.3, 4.0):
        rate = device.memory.bandwidth_bytes_per_s * factor
        faster = dataclasses.replace(device, memory=dataclasses.replace(device.memory, bandwidth_bytes_per_s=rate))
        times.append(float(price(faster, moved).total_s))
    assert times == sorted(times, reverse=True)


def check_device(device: Device) -> None:
    """Hold a device to all that those of the catalog keep to.

    Raises:
        AssertionError: it does not.
    """
    for network in NETWORKS:
        stays_within_bounds(device, network)
        stays_within_bounds(device, network, tokens=1.0, batch=4.0, bits=4.5)
    halves_at_twice_the_rates(device)
    gains_by_bandwidth(device)
