"""A host beside elements in its memory: each operator where it is faster, links that limit and hide."""

import jax
import numpy as np
import pytest

import hwmodels
from hwmodels import OPERATORS, Case, Workload, catalog, uniform_footprint
from hwmodels.compute.unit import SingleKernel
from hwmodels.network.operators import step_operators, verify_step

pytestmark = pytest.mark.device_matrix

NETWORK = catalog.architecture("qwen3-30b-a3b")
WIDTHS = uniform_footprint(8.5)
EXPERT = OPERATORS.index("expert_gate_up")

# Programs: operation by operation a step is seventy.
step_cost, baselines = jax.jit(hwmodels.step_cost, static_argnames="temperature"), jax.jit(hwmodels.baselines)


@jax.jit
def work(batch=1.0, tokens=1.0):
    load = Workload(batch=batch, context_tokens=1000.0)
    return step_operators(NETWORK, verify_step(load, footprint=WIDTHS, verify_tokens=tokens))


@pytest.mark.parametrize("name", ["pim", "logic-pim"])
def test_each_operator_takes_the_faster_place(name):
    device = catalog.device(f"elmoe3d-xpu-{name}")
    host, alone = catalog.device("elmoe3d-xpu"), catalog.device(f"elmoe3d-{name}")
    for step in (work(), work(16.0), work(16.0, 60.0)):
        both, slow, near = (step_cost(one, step).operator_s for one in (device, host, alone))
        multiplies = np.asarray(step.shapes.products) > 0
        expected = np.where(multiplies, np.minimum(slow, near), slow)
        np.testing.assert_allclose(both, expected, rtol=1e-5)
    # One token is decoded in memory; a verification of many, whose products are long, is sent to the host.
    assert step_cost(device, work()).operator_s[EXPERT] < 0.5 * step_cost(host, work()).operator_s[EXPERT]
    long = work(16.0, 60.0)
    dense = OPERATORS.index("qkv")
    assert step_cost(device, long).operator_s[dense] == pytest.approx(step_cost(host, long).operator_s[dense])


def test_what_lies_elsewhere_is_the_hosts():
    device = catalog.device("elmoe3d-xpu-nmp")
    step = work(4.0)
    cost = step_cost(device, step)
    near, far = np.asarray(cost.traffic_bytes[EXPERT])
    held = float(step.stored.experts)
    near_weights = near - float(step.activation_bytes[EXPERT])
    assert near_weights / (near_weights + far) == pytest.approx(16e9 / held, rel=1e-5)
    # Both at once, each from its own memory.
    assert float(cost.memory_s[EXPERT]) == pytest.approx(max(near / (819.2e9 * 0.97), far / (76.8e9 * 0.99)), rel=1e-2)
    assert float(cost.traffic_bytes[OPERATORS.index("qkv"), 0]) == pytest.approx(
        float(step.activation_bytes[OPERATORS.index("qkv")])
    )


def test_energy_of_crossing_to_the_host():
    device, alone = catalog.device("elmoe3d-xpu-pim"), catalog.device("elmoe3d-xpu")
    plain = baselines(Case(alone, NETWORK, workload=Workload(), footprint=WIDTHS)).stored.cost.energy
    energy = baselines(Case(device, NETWORK, workload=Workload(), footprint=WIDTHS)).stored.cost.energy
    assert energy.total_j == pytest.approx(
        energy.arithmetic_j + energy.memory_j.sum() + energy.link_j + energy.decoder_j + energy.static_j
    )
    # In memory, an access costs half; only activations cross.
    assert float(energy.memory_j[0]) == pytest.approx(float(plain.memory_j[0]) / 2, rel=1e-5)
    assert 0 < float(energy.link_j) < 0.03 * float(energy.memory_j[0])
    assert energy.total_j < plain.total_j
    everything = device.replace(
        matrix_unit=device.matrix_unit.replace(near=device.matrix_unit.near.replace(frequency_hz=1e3))
    )
    sent = baselines(Case(everything, NETWORK, workload=Workload(), footprint=WIDTHS)).stored.cost.energy
    assert float(sent.memory_j[0] + sent.link_j) == pytest.approx(float(plain.memory_j[0]), rel=1e-5)
    assert SingleKernel.unpacking == device.matrix_unit.unpacking


def test_links_limit_streams_and_hide_exchange():
    device, step = catalog.device("elmoe3d-hb8"), work(16.0, 20.0)
    links = device.matrix_unit.links

    def cost(**changes):
        unit = device.matrix_unit.replace(links=links.replace(**changes))
        return step_cost(device.replace(matrix_unit=unit), step)

    free = step_cost(device.replace(matrix_unit=device.matrix_unit.replace(links=None)), step)
    usual, slow = cost(), cost(aggregation_bytes_per_s=1e8)
    # As printed, exchange hides behind fetching and computing; on slow links it is what takes time.
    assert np.all(np.asarray(usual.exchange_s) <= np.maximum(usual.memory_s, usual.compute_s))
    np.testing.assert_allclose(usual.operator_s, free.operator_s, rtol=1e-6)
    assert float(slow.operator_s[EXPERT]) == pytest.approx(float(slow.exchange_s[EXPERT]))
    assert float(slow.exchange_s[EXPERT]) == pytest.approx(320 * float(usual.exchange_s[EXPERT]), rel=1e-5)
    # A streamline of half the external bandwidth doubles what is fetched through it.
    half = cost(streamline_bytes_per_s=51.2e9)
    assert float(half.memory_s[EXPERT]) == pytest.approx(2 * 0.99 * float(free.memory_s[EXPERT]), rel=1e-4)
    assert float(usual.energy.link_j) > 0 == float(free.energy.link_j)
    rows = device.replace(matrix_unit=device.matrix_unit.replace(external_phase="data"))
    assert np.all(np.asarray(step_cost(rows, step).compute_s) >= np.asarray(usual.compute_s) * (1 - 1e-6))


def test_gradient_through_host_links_and_phases(check_gradient):
    step = jax.tree.map(lambda leaf: leaf.astype(float), jax.tree.map(np.asarray, work(3.0, 5.0)))
    device = catalog.device("elmoe3d-hb8")
    unit = device.matrix_unit.replace(external_phase="data")
    leaves, treedef = jax.tree.flatten(device.replace(matrix_unit=unit))
    device = treedef.unflatten([leaf * (1.03 + 0.007 * i) for i, leaf in enumerate(leaves)])
    check_gradient(lambda d: 1e3 * step_cost(d, step, temperature=0.3).total_s, device, step=1e-8)
