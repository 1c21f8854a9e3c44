"""When a reader is told of launches."""

import jax
import pytest

from hwmodels import Workload, uniform_footprint
from hwmodels.analysis.remarks import launch_remarks
from hwmodels.network.operators import decode_step
from hwmodels.step.priced_steps import price_steps

pytestmark = pytest.mark.device_matrix


# A program: operation by operation a step is seventy.
@jax.jit
def step_of(device, architecture):
    (step,) = price_steps(device, architecture, [decode_step(Workload(), footprint=uniform_footprint(16.0))])
    return step


def test_launches_that_are_most_of_a_step(small, toy_device):
    slow = toy_device.replace(operator_latency_s=1e-3)
    (line,) = launch_remarks(slow, step_of(slow, small))
    assert line.startswith("launches: 100 % of a decoding step is launching its")
    quick = toy_device.replace(operator_latency_s=1e-12)
    assert launch_remarks(quick, step_of(quick, small)) == []
