"""When a reader is told of launches."""

import jax
import numpy as np
import pytest

from hwmodels import Workload, catalog, uniform_footprint
from hwmodels.analysis.remarks import launch_remarks
from hwmodels.compute.fpga_array import FpgaArray
from hwmodels.network.operators import decode_step
from hwmodels.step.priced_steps import price_steps

pytestmark = pytest.mark.device_matrix


# A program: operation by operation a step is seventy.
@jax.jit
def step_of(device, architecture):
    (step,) = price_steps(device, architecture, [decode_step(Workload(), footprint=uniform_footprint(16.0))])
    return step


def test_a_tiny_network_on_a_device_without_launches(small, toy_device):
    silent = toy_device.replace(operator_latency_s=0.0)
    step = step_of(silent, small)
    (line,) = launch_remarks(silent, step)
    launches = float(np.sum(step.work.launches))
    assert line.startswith("launches: this device's file gives 0 s for one. At the 3 us")
    assert f"{launches:.0f} launches of a decoding step take {3 * launches:.0f} us" in line
    # An array that runs the network as one program is what it says it is.
    array = silent.replace(matrix_unit=FpgaArray(12.0, 10.0, 1e9))
    assert launch_remarks(array, step_of(array, small)) == []


def test_launches_that_are_most_of_a_step(small, toy_device):
    slow = toy_device.replace(operator_latency_s=1e-3)
    (line,) = launch_remarks(slow, step_of(slow, small))
    assert line.startswith("launches: 100 % of a decoding step is launching its")
    quick = toy_device.replace(operator_latency_s=1e-12)
    assert launch_remarks(quick, step_of(quick, small)) == []


@pytest.mark.parametrize("name", ["rtx-4090", "h100-sxm"])
def test_a_large_network_hears_nothing(name):
    device = catalog.device(name)
    assert launch_remarks(device, step_of(device, catalog.architecture("llama-3.1-8b"))) == []
