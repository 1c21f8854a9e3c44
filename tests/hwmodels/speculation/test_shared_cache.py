"""Target and draft share a processor's cache: what one reads, the other finds no more."""

import dataclasses

import jax
import numpy as np
import pytest

from hwmodels import (
    Case,
    DraftCost,
    MemoryTier,
    Workload,
    catalog,
    chain_plan,
    price,
    serving_cycle,
    tree_plan,
    uniform_footprint,
)
from hwmodels.analysis.uncertainty.cycle_errors import chain_numbers
from hwmodels.compute.measured_host import Between, HostAttention, HostProducts, MeasuredHost
from hwmodels.device import Device
from hwmodels.serving.step_table import priced_table

pytestmark = pytest.mark.device_matrix

LENGTH = 3.0


def machine(cache_bytes, *, near=0.5, far=0.05):
    """Products alone take time, and all of it is streaming: 100 GB/s at its peak."""
    unit = MeasuredHost(
        formats=(HostProducts(0.0, 1.0, near, far),),
        cache_bytes=cache_bytes,
        cache_sharpness=30.0,
        attention=HostAttention(0.0, 0.0, 0.0, 1.0, 1.0),
        between=Between(0.0, 0.0, 0.0, 1e-30, 0.0, 0.0),
        overlap_temperature=0.0,
    )
    memory = MemoryTier(bandwidth_bytes_per_s=1e11, efficiency=1.0, capacity_bytes=1e12)
    return Device(
        peak_flops_per_s=1e20, compute_efficiency=1.0, memory=memory, operator_latency_s=0.0, matrix_unit=unit
    )


@jax.jit
def priced(device, draft_layers=2.0, length=LENGTH):
    target = catalog.architecture("embedded")
    draft = DraftCost(architecture=dataclasses.replace(target, num_layers=draft_layers))
    return price(
        Case(device, target, workload=Workload(context_tokens=0.0), footprint=uniform_footprint(32.0), draft=draft),
        chain_plan(length),
    )


def test_two_networks_that_fill_the_cache_read_from_memory():
    # The target has 12.4 MB, the draft with half of its layers 6.3 MB. 15 MB hold either, not both. So the verification and the
    # first of three draft passes read from memory, which takes ten times as long; the other two passes follow their like.
    together, apart = priced(machine(1.5e7)), priced(machine(1e12))
    assert together.verify_s / apart.verify_s == pytest.approx(10.0, rel=0.03)
    assert together.draft_s / apart.draft_s == pytest.approx((10.0 + 2.0) / 3.0, rel=0.03)
    # Decoding without a draft has the cache to itself.
    alone = [float(found.baselines.stored.cost.total_s) for found in (together, apart)]
    assert alone[0] == pytest.approx(alone[1], rel=0.1)


def test_a_larger_draft_never_shortens_the_verification():
    times = [float(priced(machine(1.5e7), layers).verify_s) for layers in (0.1, 0.5, 1.0, 2.0, 4.0)]
    assert times == sorted(times)
    assert times[-1] > 2 * times[0]


def test_gradient_by_the_cache(check_gradient):
    check_gradient(lambda size: jax.numpy.log(priced(machine(size)).total_s), 1.86e7)


def case_on(device, context=60.0):
    """Two networks that 15 MB do not hold together."""
    target = catalog.architecture("embedded")
    draft = DraftCost(architecture=dataclasses.replace(target, num_layers=2.0))
    return Case(device, target, Workload(context_tokens=context), uniform_footprint(32.0), draft)


def test_every_way_to_price_a_cycle_knows_the_cache():
    device, lengths = machine(1.5e7), np.arange(1.0, LENGTH + 1.0)
    case = case_on(device)
    case = dataclasses.replace(case, workload=dataclasses.replace(case.workload, prompt_tokens=0.0))
    cycle = price(case, chain_plan(lengths))
    # The first of three passes takes ten times as long as the others.
    assert cycle.draft_s[-1] > 3.5 * cycle.draft.cost.total_s[0]
    table = priced_table(case, max_batch=1, max_context=60, max_chunk=8, draft_length=int(LENGTH))
    np.testing.assert_allclose(table.seconds[1:, 1, -1, 0], cycle.total_s, rtol=1e-5)
    for length, expected in zip(lengths, cycle.total_s, strict=True):
        served = serving_cycle(case, chain_plan(length), tokens_per_cycle=2.0)
        assert float(served.total_s) == pytest.approx(float(expected), rel=1e-5)
        numbers = chain_numbers(device, cycle, length, np.full(int(LENGTH), 0.7))
        assert float(numbers["cycle_s"].value) == pytest.approx(float(expected), rel=1e-5)


def test_a_tree_runs_one_pass_after_the_verification():
    plan = tree_plan(np.array([-1, -1, 0, 0, 2]))
    cycle = price(case_on(machine(1.5e7)), plan)
    runs = np.asarray(plan.draft_repeats)
    told = cycle.draft_runs(runs)
    assert len(told) == 2
    assert sum(float(np.sum(often)) for often, _ in told) == runs.sum()
    seconds = sum(float(np.sum(often * step.cost.total_s)) for often, step in told)
    assert seconds == pytest.approx(float(cycle.draft_s), rel=1e-5)
