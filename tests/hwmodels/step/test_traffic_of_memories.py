"""Time of a step's traffic to several memories, by hand."""

import numpy as np
import pytest

from hwmodels import OPERATORS, Device, MemoryTier, catalog, decode_operators, uniform_footprint
from hwmodels.network.architecture import Workload
from hwmodels.step.step_cost import memory_time


def seconds(first, second, *, schedule="overlapped", temperature=0.0):
    """Of the first operator, whose bytes lie in a memory of 16 GB/s and in one of 1 GB/s."""
    tiers = [MemoryTier(bandwidth_bytes_per_s=rate, efficiency=1.0, capacity_bytes=1e9) for rate in (16e9, 1e9)]
    device = Device(
        peak_flops_per_s=1e12,
        compute_efficiency=1.0,
        memory=tiers[0],
        operator_latency_s=0.0,
        spill=(tiers[1],),
        schedule=schedule,
    )
    work = decode_operators(catalog.architecture("llama-3.2-1b"), Workload(), footprint=uniform_footprint(16))
    traffic = [np.full(len(OPERATORS), moved, np.float32) for moved in (first, second)]
    share = [np.ones(len(OPERATORS), np.float32)] * 2
    return float(memory_time(device, traffic, work=work, share=share, temperature=temperature)[0])


def test_a_memory_that_is_too_small_saves_no_time():
    # 3 of 100 bytes in the slower memory take 3 ns, the other 97 take 6.06: together they enter as 100 at 16 GB/s.
    assert seconds(100.0, 0.0) == pytest.approx(6.25e-9, rel=1e-6)
    assert seconds(97.0, 3.0) == pytest.approx(6.25e-9, rel=1e-6)
    # Of 10 the slower memory takes longest.
    assert seconds(90.0, 10.0) == pytest.approx(10e-9, rel=1e-6)
    # Outside of the first memory it limits nothing.
    assert seconds(0.0, 100.0) == pytest.approx(100e-9, rel=1e-6)


def test_one_after_the_other_is_the_sum():
    assert seconds(96.0, 4.0, schedule="serial") == pytest.approx(10e-9, rel=1e-6)
    assert seconds(96.0, 4.0, temperature=1.0) == pytest.approx(10e-9, rel=1e-6)
