"""The vocabulary projection on a host, as whole steps show it."""

import jax
import numpy as np
import pytest

from hwmodels import OPERATORS, catalog, step_cost, step_operators, uniform_weight_bits
from hwmodels.compute.matrix_vector_npu import HostProcessor, reached_share
from hwmodels.network.operators import StepShape

pytestmark = pytest.mark.device_matrix

HEAD = OPERATORS.index("lm_head")
DEVICE = catalog.device("hexagon-v75")
HOST = HostProcessor(cores=3.0, peak_flops_per_s=7e10, bandwidth_bytes_per_s=1e10, power_w=2.5)


@jax.jit
def cost(device, tokens):
    work = step_operators(
        catalog.architecture("llama-3.2-1b"),
        StepShape(tokens=tokens, batch=1.0, context_tokens=99.0, weight_bits=uniform_weight_bits(6.5), kv_bits=16.0),
    )
    return work, step_cost(device, work)


def with_host(host, **changes):
    unit = DEVICE.matrix_unit.replace(host=host)
    return DEVICE.replace(matrix_unit=unit, operator_latency_s=0.0, **changes)


def test_one_token_waits_for_memory_and_many_for_the_cores():
    work, one = cost(with_host(HOST), 1.0)
    assert float(one.operator_s[HEAD]) == pytest.approx(float(work.memory_bytes[HEAD]) / 1e10, rel=1e-5)
    work, many = cost(with_host(HOST), 50.0)
    assert float(many.operator_s[HEAD]) == pytest.approx(float(work.flops[HEAD]) / (3 * 7e10), rel=1e-5)


def test_no_other_operator_knows_of_it():
    (_, host), (_, none) = cost(with_host(HOST), 9.0), cost(with_host(None), 9.0)
    others = np.arange(len(OPERATORS)) != HEAD
    np.testing.assert_array_equal(np.asarray(host.operator_s)[others], np.asarray(none.operator_s)[others])
    assert float(host.operator_s[HEAD]) > 3 * float(none.operator_s[HEAD])


def test_energy_is_its_power_over_its_time():
    silent = DEVICE.chip.replace(static_power_w=0.0)
    (_, busy), (_, idle) = (
        cost(with_host(HOST.replace(power_w=power), chip=silent), 50.0) for power in (HOST.power_w, 0.0)
    )
    spent = float(busy.energy.total_j - idle.energy.total_j)
    assert spent == pytest.approx(2.5 * float(busy.operator_s[HEAD]), rel=1e-3)


def test_a_path_is_never_faster_than_the_memory():
    np.testing.assert_allclose(reached_share(26e9, 60e9), 26 / 60)
    np.testing.assert_allclose(reached_share(np.array([70e9, 60e9]), 60e9), 1.0)
