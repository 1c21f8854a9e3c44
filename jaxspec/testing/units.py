"""What every compute unit keeps to, whichever it is, as that of a small device with two memories."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hwmodels import OPERATORS, Chip, Device, MemoryTier, catalog, step_cost, step_operators, uniform_weight_bits
from hwmodels.compute.roofline import unit_of
from hwmodels.compute.unit import UnitTimes
from hwmodels.network.operators import StepShape
from hwmodels.network.operators.work import OperatorWork
from hwmodels.numerics.fields import check_numbers

__all__ = [
    "NETWORKS",
    "SMALL",
    "UNIT_CHECKS",
    "check_device",
    "check_unit",
    "price",
    "work",
]

# What every device keeps to, with networks of every kind, whatever computes and remembers.

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
    try:
        check_numbers(device)
    except ValueError as error:
        raise AssertionError(str(error)) from error
    for network in NETWORKS:
        stays_within_bounds(device, network)
        stays_within_bounds(device, network, tokens=1.0, batch=4.0, bits=4.5)
    halves_at_twice_the_rates(device)
    gains_by_bandwidth(device)


#: No size divides another, so that tiles are partly filled.
SMALL = Device(
    peak_flops_per_s=9e12,
    compute_efficiency=0.8,
    memory=MemoryTier(bandwidth_bytes_per_s=3e11, efficiency=0.9, capacity_bytes=5e9, energy_j_per_bit=4e-12),
    spill=(MemoryTier(bandwidth_bytes_per_s=5e10, efficiency=0.7, capacity_bytes=9e9, energy_j_per_bit=9e-12),),
    operator_latency_s=2e-6,
)
CHIP = Chip(energy_j_per_flop=5e-13, static_power_w=2.0, area_m2=1e-5)


def work_of(
    tokens: float = 5.0, batch: float = 2.0, context: float = 777.0, weight_bits: float = 9.7, growth: float = 1.0
) -> OperatorWork:
    """A step of a network, with each of its sizes times `growth`."""
    network = catalog.architecture("llama-3.2-1b")
    network = dataclasses.replace(
        network,
        hidden_size=network.hidden_size * growth,
        intermediate_size=network.intermediate_size * growth,
        num_heads=network.num_heads * growth,
        vocab_size=network.vocab_size * growth,
    )
    return step_operators(
        network,
        StepShape(
            tokens=tokens,
            batch=batch,
            context_tokens=context,
            weight_bits=uniform_weight_bits(weight_bits),
            kv_bits=12.3,
        ),
    )


def times(device: Device, work: OperatorWork, temperature: Any) -> list[UnitTimes]:
    """Times by each of the unit's kernels, which are asked one by one."""
    kernels = unit_of(device).kernels(work)
    return [kernel.operator_times(read, device, temperature=temperature) for kernel, read in kernels]


works = jax.jit(work_of)


#: One entry for each time that `_run` was traced.
TRACES: list[int] = []


@jax.jit
def _run(device: Device, work: OperatorWork, temperature: Any) -> list[UnitTimes]:
    TRACES.append(1)
    return times(device, work, temperature)


def says_what_it_is(device: Device) -> None:
    """It has titles of one line and a sentence about unpacking, and remarks in a form that tables read."""
    unit = unit_of(device)
    for text in (unit.short_title, unit.title, unit.unpacking):
        assert text.strip() == text != ""
        assert "\n" not in text
    assert unit.unpacking.endswith(".")
    assert unit.elements is None or unit.elements > 0
    remarks = [unit.growth_remarks(memories=n, experts=some) for n in (1, 2) for some in (False, True)]
    assert remarks[0] == []  # with one memory, and without experts, more never takes less
    assert all(text.partition(":")[0] in ("experts", "places") for said in remarks for text in said)
    if unit.measured is not None:
        widths = unit.measured.weight_widths
        assert widths == tuple(sorted(set(widths)))


def stays_in_range(device: Device) -> None:
    """Times are finite and not negative, shares lie in (0, 1]."""
    for temperature in (0.0, 0.4, 1.0):
        for work in (works(), works(tokens=1.0, batch=1.0, weight_bits=3.1), works(tokens=333.0, weight_bits=16.0)):
            for one in _run(device, work, temperature):
                for seconds in (one.compute_s, one.launch_s):
                    assert np.all(np.isfinite(seconds))
                    assert np.all(np.asarray(seconds) >= 0)
                assert np.all(np.asarray(one.compute_s)[np.asarray(work.flops) > 0] > 0)
                assert len(one.memory_share) == 1 + len(device.spill)
                assert all(np.all((np.asarray(share) > 0) & (np.asarray(share) <= 1)) for share in one.memory_share)
                assert 0 <= one.overlap_temperature <= 1


def knows_energy_of_chips(device: Device) -> None:
    """Energies are not negative, and None without a chip."""
    work = works()
    assert all(one.energy_j is None for one in _run(dataclasses.replace(device, chip=None), work, 0.0))
    for one in _run(dataclasses.replace(device, chip=CHIP), work, 0.0):
        assert one.energy_j is None or np.all(np.isfinite(one.energy_j) & (np.asarray(one.energy_j) >= 0))


def takes_no_less_for_more(device: Device) -> None:
    """More work never takes less time."""
    more = [{"tokens": 6.0}, {"tokens": 40.0}, {"batch": 2.5}, {"batch": 70.0}, {"context": 900.0}, {"growth": 1.3}]
    for temperature in (0.0, 0.7):
        before = _run(device, works(), temperature)
        for changes in more:
            after = _run(device, works(**changes), temperature)
            for one, other in zip(before, after, strict=True):
                assert np.all(np.asarray(other.compute_s) >= np.asarray(one.compute_s) * (1 - 1e-5)), changes


def shares_operators(device: Device) -> None:
    """Shares of kernels sum to one."""
    work, unit = works(), unit_of(device)
    kernels = unit.kernels(work)
    assert all(len(kernel.kernels(read)) == 1 for kernel, read in kernels)
    total_s = np.random.default_rng(0).uniform(1, 2, (*work.flops.shape, len(kernels))).astype(np.float32)
    shares = np.asarray(unit.kernel_shares(work, jnp.asarray(total_s)))
    np.testing.assert_allclose(shares.sum(-1), 1, rtol=1e-6)
    assert np.all(shares >= 0)


def changed(device: Device, factor: float = 1.03, step: float = 0.007) -> Device:
    """Other values of the same tree: each number of the device times one of its own."""
    leaves, treedef = jax.tree.flatten(device)
    return treedef.unflatten([leaf * (factor + step * i) for i, leaf in enumerate(leaves)])


def traces_once(device: Device) -> None:
    """New values are not traced again, and change the times."""
    before = _run(device, works(), 0.0)
    traced = len(TRACES)
    after = _run(changed(device), works(tokens=7.0, weight_bits=4.4), 0.3)
    assert len(TRACES) == traced > 0
    assert np.any(np.asarray(before[0].compute_s) != np.asarray(after[0].compute_s))


def maps(device: Device) -> None:
    """A batch of devices and works is what each of them gives."""
    pairs = [(device, works(), 0.3), (changed(device, 0.9), works(tokens=9.0), 0.8)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf, jnp.float32) for leaf in leaves]), *pairs)
    mapped = jax.jit(jax.vmap(times))(*stacked)
    for i, pair in enumerate(pairs):
        for alone, together in zip(jax.tree.leaves(_run(*pair)), jax.tree.leaves(mapped), strict=True):
            np.testing.assert_allclose(together[i], alone, rtol=1e-4)


def has_right_gradients(device: Device) -> None:
    """Along random directions over all numbers of the device, against differences; counts relaxed, so that none has steps."""
    with jax.enable_x64(True):
        leaves, treedef = jax.tree.flatten(changed(dataclasses.replace(device, chip=CHIP)))
        centre, rng = jnp.asarray(leaves, float), np.random.default_rng(1)
        weights = rng.uniform(0.5, 1.5, len(OPERATORS))
        work = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), works())

        @jax.jit
        @jax.value_and_grad
        def slopes(factors: Array) -> Any:
            # Kernels of one unit differ in their numbers alone: one is enough to trace and compile.
            scaled = treedef.unflatten(list(centre * factors))
            kernel, read = unit_of(scaled).kernels(work)[0]
            unit_times = kernel.operator_times(read, scaled, temperature=1.0)
            return sum(
                jnp.sum(weights * jnp.log(jnp.where(leaf > 0, leaf, 1.0))) for leaf in jax.tree.leaves(unit_times)
            )

        _, gradient = slopes(jnp.ones_like(centre))
        assert np.all(np.isfinite(gradient))
        for direction in rng.standard_normal((3, len(leaves))):
            above, below = (slopes(1 + sign * 1e-4 * direction)[0] for sign in (1, -1))
            quotient = float(above - below) / 2e-4
            assert abs(gradient @ direction - quotient) <= max(1e-2 * abs(quotient), 1e-3)


#: What every unit is held to, as that of a device.
UNIT_CHECKS = (
    says_what_it_is,
    shares_operators,
    stays_in_range,
    knows_energy_of_chips,
    takes_no_less_for_more,
    traces_once,
    maps,
    has_right_gradients,
)


def check_unit(unit: Any) -> None:
    """Hold a compute unit to all that a member of the registry keeps to.

    Args:
        unit: with numbers.
    Raises:
        AssertionError: it does not.
    """
    for check in UNIT_CHECKS:
        check(dataclasses.replace(SMALL, matrix_unit=unit))
