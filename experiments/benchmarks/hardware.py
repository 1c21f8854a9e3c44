"""Design points per second of the hardware models: whole decode steps, and each kind of matrix unit.

    python -m experiments.benchmarks decode_steps matrix_units

A point is one decode step: work of all operators, their times on matrix unit, memories and decoder, and the step's energy.
Every leaf of device, network, workload and footprint differs from point to point, and every timed call gets other points than
the one before. A chunk of points goes through one jitted `vmap`; rates are medians over calls, the best one beside them.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import hwmodels
from experiments.benchmarks.harness import row
from hwmodels import catalog
from hwmodels.compute.systolic.array import OnChipBuffer
from hwmodels.compute.systolic.unit import SystolicUnit

#: Points of one call. Values and gradients of this many, 6 MB, stay in the caches; four times as many are a third slower.
CHUNK = 1 << 13

#: Timed calls of each function.
REPEATS = 40

#: Points per second below which sweeps and tuning are no longer interactive.
TARGETS = {"forward": 1e6, "value and gradient": 3e5}

#: Of the smooth maxima in the gradients that tuning takes.
TEMPERATURE = 0.05

#: What stands in for 0 in a leaf that has to vary: too small to matter as a time, an energy or a count.
_NEARLY_ZERO = 1e-12


class Point(NamedTuple):
    """What one decode step is priced from."""

    device: hwmodels.Device
    architecture: hwmodels.Architecture
    workload: hwmodels.Workload
    footprint: hwmodels.Footprint


class Rate(NamedTuple):
    """Points per second of a function."""

    median: float
    best: float
    first_call_s: float  # tracing and compiling, and one call


def decode_device() -> hwmodels.Device:
    """A device with all parts: two memories, a decoder limited by symbols and by code bits, and a known energy."""
    device, spill = catalog.device("cassandra-npu-roofline"), catalog.device("elmoe3d-hb8").spill
    decoder = dataclasses.replace(device.decoder, code_bits_per_cycle=64.0)
    # Small enough that many of the networks need the second memory as well.
    memory = dataclasses.replace(device.memory, capacity_bytes=1e10)
    return dataclasses.replace(device, memory=memory, spill=spill, decoder=decoder)


def systolic_device() -> hwmodels.Device:
    """An array of as many elements as the device has multiply-adds per cycle, with buffers that keep up."""
    buffer = OnChipBuffer(bandwidth_bytes_per_s=1e12, access_bytes=32.0, access_energy_j=1e-11)
    array = SystolicUnit(128.0, 256.0, 1e9, 1e-12, buffer, buffer, buffer)
    return dataclasses.replace(catalog.device("cassandra-npu-roofline"), matrix_unit=array)


def npu_device() -> hwmodels.Device:
    """The phone's NPU without its host, which would compute the logits by a time of its own."""
    device = catalog.device("hexagon-v75")
    return dataclasses.replace(device, matrix_unit=dataclasses.replace(device.matrix_unit, host=None))


#: Matrix unit -> a device that has it.
UNIT_DEVICES: dict[str, Callable[[], hwmodels.Device]] = {
    "GPU, calibrated, a100-sxm-80gb": lambda: catalog.device("a100-sxm-80gb"),
    "systolic array 128 x 256": systolic_device,
    "FPGA array, alveo-v80": lambda: catalog.device("alveo-v80"),
    "matrix-vector NPU, hexagon-v75": npu_device,
    "near-memory unit, elmoe3d-hb8": lambda: catalog.device("elmoe3d-hb8"),
}

#: Units that do not time a single product by themselves -> what does.
PRODUCT_TIMES: dict[str, Callable[[hwmodels.Device], Callable[..., Any]]] = {
    "GPU, calibrated, a100-sxm-80gb": lambda device: device.matrix_unit.gemm(device).product_time,
    "matrix-vector NPU, hexagon-v75": lambda device: device.matrix_unit.on(device).product_time,
}


def draw_points(
    count: int,
    *,
    device: hwmodels.Device,
    seed: int,
    networks: Sequence[str] = (),
    batch: tuple[float, float] = (1, 33),
) -> Point:
    """Points around a device, each with one of the networks (all of the catalog unless named) and its own of everything."""
    rng = np.random.default_rng([seed, count])

    def between(low: float, high: float) -> jax.Array:
        return jnp.asarray(rng.uniform(low, high, count), jnp.float32)

    def scattered(values: np.ndarray, low: float = 0.8, high: float = 1.0) -> jax.Array:
        """Below the values, so that shares stay at most 1."""
        if not values.any():
            values = np.full_like(values, _NEARLY_ZERO)
        factors = rng.uniform(low, high, values.shape)
        return jnp.asarray(values * factors, jnp.float32)

    def repeated(leaf: Any) -> np.ndarray:
        leaf = np.asarray(leaf, np.float64)
        return np.broadcast_to(leaf, (count, *leaf.shape))

    entries = [catalog.architecture(name) for name in networks or catalog.architecture_names()]
    which = rng.integers(len(entries), size=count)
    drawn = jax.tree.map(lambda *leaves: np.array(leaves, np.float64)[which], *entries)
    # More layers of all kinds together than of any one kind.
    architecture = dataclasses.replace(
        jax.tree.map(scattered, drawn), num_layers=scattered(drawn.num_layers, 1.0, 1.25)
    )
    draft_widths, target_widths = ({kind: between(3, 16) for kind in hwmodels.KINDS} for _ in range(2))
    return Point(
        device=jax.tree.map(lambda leaf: scattered(repeated(leaf)), device),
        architecture=architecture,
        workload=hwmodels.Workload(
            between(*batch), between(100, 9000), between(10, 900), between(10, 900), shared_tokens=between(1, 90)
        ),
        footprint=hwmodels.Footprint(draft_widths, target_widths, between(3, 16), between(3, 16)),
    )


def decode_cost(point: Point, temperature: float = 0.0) -> tuple[jax.Array, jax.Array]:
    """Seconds and joules of one decode step; 0 J where the device's energy is not known."""
    work = hwmodels.decode_operators(point.architecture, point.workload, footprint=point.footprint)
    cost = hwmodels.step_cost(point.device, work, temperature=temperature)
    return cost.total_s, jnp.zeros_like(cost.total_s) if cost.energy is None else cost.energy.total_j


def log_energy_delay(point: Point, temperature: float = 0.0) -> jax.Array:
    """Natural logarithm of time and energy multiplied: one number to differentiate by every leaf."""
    seconds, joules = decode_cost(point, temperature)
    return jnp.log(seconds) + jnp.log(joules)


def measure(function: Callable[[Any], Any], chunks: Sequence[Any], *, repeats: int = REPEATS) -> Rate:
    """Rate of a function of one point over chunks of them in turn, results awaited; compiling is timed apart.

    Raises:
        AssertionError: new values were traced anew, or a result is not finite.
    """
    traces = 0

    def counted(point: Any) -> Any:
        nonlocal traces
        traces += 1
        return function(point)

    many = jax.jit(jax.vmap(counted))
    started = time.perf_counter()
    results = jax.block_until_ready(many(chunks[0]))
    first_call_s = time.perf_counter() - started
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(results)), "a result is not finite"
    times = []
    for repeat in range(repeats):
        chunk = chunks[repeat % len(chunks)]
        started = time.perf_counter()
        jax.block_until_ready(many(chunk))
        times.append(time.perf_counter() - started)
    assert traces == 1, f"{traces} traces, though only values changed"
    count = jax.tree.leaves(chunks[0])[0].shape[0]
    return Rate(count / float(np.median(times)), count / min(times), first_call_s)


def decode_steps(chunk: int = CHUNK, repeats: int = REPEATS) -> list[dict[str, Any]]:
    """Decode steps on a device with all parts: times and energies, and gradients by every leaf, against the targets."""
    chunks = [draw_points(chunk, device=decode_device(), seed=seed) for seed in range(3)]
    leaves = len(jax.tree.leaves(chunks[0]))
    cases: list[tuple[str, str, Callable[[Point], Any]]] = [
        ("forward", "exact", decode_cost),
        ("forward", f"temperature {TEMPERATURE}", lambda point: decode_cost(point, TEMPERATURE)),
        ("value and gradient", "exact", jax.value_and_grad(log_energy_delay)),
        (
            "value and gradient",
            f"temperature {TEMPERATURE}",
            jax.value_and_grad(lambda point: log_energy_delay(point, TEMPERATURE)),
        ),
    ]
    rows = []
    for what, maximum, function in cases:
        rate, target = measure(function, chunks, repeats=repeats), TARGETS[what]
        workload = f"{what}, {maximum}: {leaves} leaves vary, {told(rate, chunk)}"
        rows.append(measured_row("decode_steps", workload, rate, target, "target", rate.median / target))
    return rows


def matrix_units(chunk: int = CHUNK, repeats: int = REPEATS) -> list[dict[str, Any]]:
    """The same steps with each kind of matrix unit, against the same device by its roofline alone."""
    rows: list[dict[str, Any]] = []
    for name, make in UNIT_DEVICES.items():
        try:
            device = make()
            check_unit(device, PRODUCT_TIMES[name](device) if name in PRODUCT_TIMES else None)
            with_unit, without = (
                measure(decode_cost, [draw_points(chunk, device=one, seed=seed) for seed in range(3)], repeats=repeats)
                for one in (device, dataclasses.replace(device, matrix_unit=None))
            )
        except Exception as error:  # the other units are measured all the same
            rows.append({"name": "matrix_units", "failed": f"{name}: {type(error).__name__}: {error}"})
            continue
        ratio = with_unit.median / without.median
        rows.append(
            measured_row(
                "matrix_units", f"{name}: {told(with_unit, chunk)}", with_unit, without.median, "roofline", ratio
            )
        )
    return rows


def check_unit(device: hwmodels.Device, product_time: Callable[..., Any] | None = None) -> None:
    """A step's products take as long as the unit says that they take one by one.

    Args:
        product_time: of one product; the unit's own method unless given.
    Raises:
        AssertionError: they do not.
    """
    # At 16 bits every unit has kernels of its own; between measured widths a GPU mixes whole times of two.
    workload, footprint = hwmodels.Workload(batch=3.0), hwmodels.uniform_footprint(16.0)
    work = hwmodels.decode_operators(catalog.architecture("llama-3.1-8b"), workload, footprint=footprint)
    assert work.shapes is not None
    one_product = product_time or device.matrix_unit.product_time
    seconds = hwmodels.step_cost(device, work).compute_s
    for name in ("qkv", "down", "lm_head"):
        place = hwmodels.OPERATORS.index(name)
        m, k, n, bits = (leaf[place] for leaf in (work.shapes.m, work.shapes.k, work.shapes.n, work.shapes.weight_bits))
        alone = one_product(m, k, n, weight_bits=bits) * work.launches[place]
        assert np.isclose(seconds[place], alone, rtol=1e-4), f"{name} takes {seconds[place]:.3g} s, alone {alone:.3g} s"


def measured_row(name: str, workload: str, rate: Rate, peer: float, peer_name: str, ratio: float) -> dict[str, Any]:
    """A line of the result, with the best call, the first one and the machine's load beside the median."""
    timed = row(name, workload, rate.median, peer, peer_name, "points/s", ratio)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else math.nan
    return timed | {"best": rate.best, "first_call_s": rate.first_call_s, "load": load}


def told(rate: Rate, chunk: int) -> str:
    """What the table says of a rate beside its median."""
    return f"chunks of {chunk}, best {rate.best:.3g}, first call {rate.first_call_s:.1f} s"


# Decode steps of calibrated GPUs per second, forward and with their gradient by rates of the device and bits.
#
# python -m experiments.benchmarks gpu_gradients
#
# What a search over designs or a tuning step asks for: the time of one decode step of a known network, and its slopes
# by a few numbers. Those numbers, the batch and the context differ from point to point; a chunk of points goes through
# one jitted `vmap`.

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
