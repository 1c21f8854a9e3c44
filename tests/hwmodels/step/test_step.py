import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from narrow_devices import kernels_of_16_bits, one_of_each_form

from hwmodels import (
    OPERATORS,
    Workload,
    catalog,
    decode_operators,
    step_cost,
    step_operators,
    uniform_footprint,
    uniform_weight_bits,
)
from hwmodels.compute.fpga_array import FpgaArray
from hwmodels.compute.roofline import unit_of
from hwmodels.network.operators import StepShape

BF16 = uniform_footprint(16)
STEP: dict[str, Any] = {
    "tokens": 4.0,
    "batch": 3.0,
    "context_tokens": 117.0,
    "weight_bits": uniform_weight_bits(13.9),
    "kv_bits": 12.7,
}
#: Every rate of a device, none of its capacities.
RATES = ("peak_flops_per_s", "compute_efficiency", "bandwidth_bytes_per_s", "efficiency")


def step_time(device, architecture, *, temperature=0.0, **step):
    return step_cost(device, step_operators(architecture, StepShape(**step)), temperature=temperature)


def scale(device, factors):
    """The device with the fields named multiplied; the memory's fields by their own names."""
    return jax.tree_util.tree_map_with_path(lambda path, leaf: leaf * factors.get(path[-1].name, 1.0), device)


@pytest.mark.device_matrix
def test_llama_decodes_at_the_bandwidth_of_an_rtx_4090():
    # Weights 15.01 GB, KV of 1001 tokens 0.131 GB, activations below 0.1 %: 15.14 GB at 1008 GB/s take 15.0 ms.
    # Computing takes 15.0 GFLOP / 165 TFLOP/s = 0.09 ms: hidden.
    work = decode_operators(catalog.architecture("llama-3.1-8b"), Workload(context_tokens=1000.0), footprint=BF16)
    time = step_cost(catalog.device("rtx-4090"), work)
    assert float(time.total_s) == pytest.approx(15.14e9 / 1008e9, rel=2e-3)
    assert float(time.compute_s.sum()) == pytest.approx(0.094e-3, rel=0.05)
    assert np.all(time.operator_s == time.memory_s)


@pytest.mark.device_matrix
def test_long_prefill_is_bound_by_computing():
    # 2 * 6.98e9 layer weights * 2048 tokens = 28.6 TFLOP, and attention 4 * 4096 * 1024.5 * 2048 * 32 = 1.1: 0.18 s.
    time = step_time(
        catalog.device("rtx-4090"),
        catalog.architecture("llama-3.1-8b"),
        tokens=2048,
        batch=1,
        context_tokens=0,
        logit_tokens=1,
        weight_bits=BF16.target_weight_bits,
        kv_bits=16,
    )
    assert float(time.total_s) == pytest.approx(29.7e12 / 165.2e12, rel=0.02)
    gate = OPERATORS.index("gate_up")
    assert time.compute_s[gate] > 9 * time.memory_s[gate]


@pytest.mark.device_matrix
def test_parts_sum_to_the_total(small, toy_device):
    time = step_time(toy_device, small, **STEP)
    assert float(time.total_s) == pytest.approx(float(time.operator_s.sum()), rel=1e-6)
    launches_s = 2e-9 * (5 * 3 + 7 + 1 + 1)  # 5 operators per layer, 3 layers; 2 norms each and one more; embed; head
    busy_s = np.maximum(time.compute_s, time.memory_s).sum()
    assert float(time.total_s) == pytest.approx(busy_s + launches_s, rel=1e-6)


@pytest.mark.device_matrix
@settings(deadline=None, max_examples=12)
@given(st.sampled_from(RATES), st.floats(1.0, 50.0), st.sampled_from([0.0, 0.1]))
def test_a_higher_rate_never_lengthens_a_step(rate, factor, temperature):
    for device in _devices():
        slow, fast = (float(_embedded_s(d, temperature)) for d in (device, scale(device, {rate: factor})))
        assert fast <= slow * (1 + 1e-6)


@functools.cache
def _devices():
    """All of the catalog, without what is only said of measured kernels: it is static, and would keep programs apart.

    Of measured GPUs the first has its kernels of all widths, which take long to compile for all of them.
    """
    devices = list(map(catalog.device, one_of_each_form()))
    plain = [device for device in devices if unit_of(device).measured is None]
    whole, *others = (
        device.replace(matrix_unit=device.matrix_unit.replace(remarks=(), spreads=(), engine="", weight_format=None))
        for device in devices
        if unit_of(device).measured is not None
    )
    return [*plain, whole, *map(kernels_of_16_bits, others)]


# One program for each structure of devices: compiled, twenty devices take no longer than three.
@jax.jit
def _embedded_s(device, temperature):
    return step_time(device, catalog.architecture("embedded"), **STEP, temperature=temperature).total_s


@pytest.mark.device_matrix(1)
@pytest.mark.parametrize("temperature", [0.0, 0.2])
def test_twice_the_rates_and_half_the_latencies_halve_the_time(small, toy_device, temperature):
    faster = scale(toy_device, {"peak_flops_per_s": 2.0, "bandwidth_bytes_per_s": 2.0, "operator_latency_s": 0.5})
    one, two = (step_time(d, small, **STEP, temperature=temperature).total_s for d in (toy_device, faster))
    assert float(two) == pytest.approx(float(one) / 2, rel=1e-6)


@pytest.mark.device_matrix
def test_temperature_to_zero_is_the_roofline(small, toy_device):
    exact = float(step_time(toy_device, small, **STEP).total_s)
    excess = [float(step_time(toy_device, small, **STEP, temperature=t).total_s) / exact - 1 for t in (0.4, 0.1, 0.01)]
    assert excess[0] > excess[1] > excess[2] > -1e-6
    assert excess[2] < 0.01


@pytest.mark.device_matrix(3)
@pytest.mark.parametrize("field", ["tokens", "batch", "context_tokens", "kv_bits"])
def test_more_work_never_takes_less_time(small, toy_device, field):
    less, more = (step_time(toy_device, small, **dict(STEP, **{field: value})).total_s for value in (3.0, 30.0))
    assert more > less


@pytest.mark.device_matrix
def test_no_retrace_on_new_values_and_all_boards_in_one_vmap(jit_once):
    # Devices of one structure: those with the same kind of unit and as many memories.
    devices = [catalog.device(name) for name in catalog.device_names()]
    devices = [device for device in devices if isinstance(device.matrix_unit, FpgaArray)]
    assert len(devices) == 4
    stacked = jax.tree.map(lambda *leaves: jnp.array(leaves), *devices)
    architecture = catalog.architecture("qwen3-4b")

    def total_s(devices, step):
        return jax.vmap(lambda device: step_time(device, architecture, **step).total_s)(devices)

    traced = jit_once(total_s)
    for tokens in (1.0, 6.0):
        step = dict(STEP, tokens=tokens)
        expected = [float(step_time(device, architecture, **step).total_s) for device in devices]
        np.testing.assert_allclose(traced(stacked, step), expected, rtol=1e-5)


@pytest.mark.device_matrix
def test_gradient(small, toy_device, check_gradient):
    def exact_and_smooth(x):
        times = (step_time(x[0], x[1], **x[2], temperature=temperature) for temperature in (0.0, 0.15))
        return sum(jnp.log(time.total_s) for time in times)

    check_gradient(exact_and_smooth, (toy_device, small, STEP))
