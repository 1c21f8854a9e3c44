"""Intervals of a cycle's numbers: against Monte Carlo, in their limits, and how often they cover in simulation."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from narrow_devices import kernels_of_16_bits

from hwmodels import catalog, uniform_footprint
from hwmodels.analysis.kernel_widths import kernel_remarks
from hwmodels.analysis.uncertainty.cycle_errors import (
    CycleTimes,
    conditional_errors,
    cycle_numbers,
    cycle_times,
    draw_cycle,
)
from hwmodels.analysis.uncertainty.kernel_errors import part_deviations, part_times, step_interval
from hwmodels.compute.unit import ErrorInterval
from hwmodels.network.architecture import Workload
from hwmodels.network.operators import decode_step, verify_step
from hwmodels.network.operators.work import OPERATORS
from hwmodels.step.priced_steps import price_steps

pytestmark = pytest.mark.device_matrix

#: Three steps of four operators, none of them alike: autoregressive, draft, verification.
TIMES = CycleTimes(
    part_s=jnp.array([[4e-3, 3e-3, 2e-3, 5e-4], [1e-3, 8e-4, 9e-4, 2e-4], [5e-3, 3.1e-3, 2.6e-3, 6e-4]]),
    deviation=jnp.array([[0.08, 0.06, 0.1, 0.0], [0.09, 0.06, 0.1, 0.0], [0.07, 0.06, 0.1, 0.0]]),
    bf16=jnp.array([1.0, 0.0, 0.0]),
    stored=jnp.array([1.0, 0.0, 0.0]),
    cycle=jnp.array([0.0, 3.0, 1.0]),
    engine_s=jnp.asarray(1.5e-3),
    scatter=jnp.asarray(0.02),
)
CHANCES = jnp.array([0.82, 0.74, 0.7])
SOURCES = 4 + 12 + 3 + 1
numbers = jax.jit(lambda times, chances, errors: cycle_numbers(times, chances, jnp.diag(errors), batch=5.0))


@functools.partial(jax.jit, static_argnames="count")
def drawn(key, errors, count):
    deviates = jax.random.normal(key, (count, SOURCES))
    return jax.vmap(lambda one: draw_cycle(TIMES, CHANCES, jnp.diag(errors), one, batch=5.0))(deviates)


def test_intervals_are_those_of_monte_carlo():
    errors = conditional_errors(CHANCES, 400.0)
    found, sample = numbers(TIMES, CHANCES, errors), drawn(jax.random.key(0), errors, 40_000)
    for name, number in found.items():
        low, high = np.quantile(np.asarray(sample[name]), [0.05, 0.95])
        ends = [float(end) for end in number.ends()]
        np.testing.assert_allclose(ends, [low, high], rtol=0.01, err_msg=name)


def test_more_cycles_and_better_fits_narrow_intervals():
    few, many = (numbers(TIMES, CHANCES, conditional_errors(CHANCES, n))["tokens_per_s"] for n in (50.0, 5000.0))
    assert float(few.log_deviation) > 1.2 * float(many.log_deviation)
    better = dataclasses.replace(TIMES, deviation=TIMES.deviation / 2)
    assert float(numbers(better, CHANCES, jnp.zeros(3))["cycle_s"].log_deviation) < 0.7 * float(
        numbers(TIMES, CHANCES, jnp.zeros(3))["cycle_s"].log_deviation
    )


def test_errors_of_counts_are_those_of_repeated_counting():
    cycles, rng = 300, np.random.default_rng(1)
    alive, counted = np.full(4000, cycles), []
    for chance in np.asarray(CHANCES):
        accepted = rng.binomial(alive, chance)
        counted.append(accepted / np.maximum(alive, 1))
        alive = accepted
    np.testing.assert_allclose(np.std(counted, axis=1), conditional_errors(CHANCES, float(cycles)), rtol=0.05)
    assert np.all(np.asarray(conditional_errors(jnp.array([1.0, 0.0, 0.5]), 20.0)) > 0.01)


@pytest.mark.parametrize("cycles", [40, 400])
def test_coverage_in_simulation(cycles):
    """The truth errs as kernels do, acceptance is counted anew: nine in ten intervals about what was seen hold the truth."""
    runs, rng = 3000, np.random.default_rng(cycles)
    alive, seen = np.full(runs, cycles), []
    for chance in np.asarray(CHANCES):
        accepted = rng.binomial(alive, chance)
        seen.append(np.where(alive > 0, accepted / np.maximum(alive, 1), 0.5))
        alive = accepted
    seen = jnp.asarray(np.stack(seen, axis=1), jnp.float32)
    truth = drawn(jax.random.key(cycles), jnp.zeros(3), runs)
    found = jax.vmap(lambda chances: numbers(TIMES, chances, conditional_errors(chances, float(cycles))))(seen)
    for name, number in found.items():
        low, high = number.ends()
        inside = float(jnp.mean((truth[name] >= low) & (truth[name] <= high)))
        assert 0.85 <= inside <= 0.95, (name, inside)


@pytest.fixture(scope="module")
def priced():
    # Nothing else is used here.
    device, shape = kernels_of_16_bits(catalog.device("h100-sxm")), catalog.architecture("llama-3.1-8b")
    work = {"workload": Workload(batch=2.0, context_tokens=700.0), "footprint": uniform_footprint(16.0)}
    steps = [decode_step(**work), decode_step(**work), verify_step(**work, verify_tokens=4.0, visible_new_tokens=2.5)]
    return device, jax.jit(price_steps)(device, shape, steps)


def test_deviations_are_those_of_the_calibrated_kernels(priced):
    device, (plain, _, _) = priced
    found = dict(zip(OPERATORS, part_deviations(device, plain)))
    spreads = {(one.part, one.bits): one for one in device.matrix_unit.spreads}
    products, attention = spreads["products", 16.0], spreads["attention", 16.0]
    assert found["qkv"] == pytest.approx(np.log(products.high / products.low) / 2 / 1.6448536, rel=1e-5)
    assert found["attention"] == pytest.approx(np.log(attention.high / attention.low) / 2 / 1.6448536, rel=1e-5)
    assert found["norm"] == 0.0
    ends = step_interval(device, plain)
    assert ends.low_s < float(plain.cost.total_s) < ends.high_s
    bare = dataclasses.replace(device, matrix_unit=None)
    assert part_deviations(bare, plain) is None
    assert step_interval(bare, plain) is None


@pytest.mark.parametrize(("low", "high"), [(1.1, 1.4), (0.6, 0.8), (0.9, 1.2)])
@pytest.mark.parametrize("part", ["steps", "products"])
def test_a_price_never_lies_outside_its_interval(priced, part, low, high):
    device, (plain, stored, verify) = priced
    biased = ErrorInterval(part, 16.0, low, high, 0.9)
    unit = dataclasses.replace(device.matrix_unit, spreads=(biased,))
    measured = dataclasses.replace(device, matrix_unit=unit)
    total, ends = float(plain.cost.total_s), step_interval(measured, plain)
    assert ends.low_s <= total <= ends.high_s
    # Times that were measured lie in it too: of the whole step, or of those parts that err, apart from each other.
    errs = np.asarray(part_times(plain))[np.asarray(part_deviations(measured, plain)) > 0]
    for end in (low, high):
        late_s = total * (end - 1) if part == "steps" else np.sign(end - 1) * np.sqrt(np.sum((errs * (end - 1)) ** 2))
        assert ends.low_s * (1 - 1e-6) <= total + late_s <= ends.high_s * (1 + 1e-6)
    times = cycle_times(measured, bf16=plain, stored=plain, cycle=[(2.0, stored), (1.0, verify)])
    for name, number in cycle_numbers(times, CHANCES[:1], np.zeros((1, 0), np.float32)).items():
        below, above = number.ends()
        assert below <= number.value <= above, name
    below, above = cycle_numbers(times, CHANCES[:1], np.zeros((1, 0), np.float32))["ar_stored_s"].ends()
    if part == "steps" and biased.one_sided:
        # As far as the farthest measured time, on both sides.
        assert max(float(above) / total, total / float(below)) == pytest.approx(max(high, 1 / low), rel=1e-4)
    told = [line for line in kernel_remarks(measured, uniform_footprint(16.0)) if line.startswith("biased")]
    assert bool(told) == biased.one_sided


def test_parts_are_the_whole_step_and_whole_steps_err_as_measured(priced):
    device, (plain, *_) = priced
    seconds = part_times(plain)
    assert seconds.sum() == pytest.approx(float(plain.cost.total_s), rel=1e-6)
    whole = ErrorInterval("steps", 16.0, 0.9, 1.2, 0.9)
    unit = dataclasses.replace(device.matrix_unit, spreads=(*device.matrix_unit.spreads, whole))
    measured = dataclasses.replace(device, matrix_unit=unit)
    ends = step_interval(measured, plain)
    assert ends.high_s == pytest.approx(1.2 * float(plain.cost.total_s), rel=1e-6)
    errors = part_deviations(measured, plain) * seconds / seconds.sum()
    assert np.sqrt(np.sum(errors**2)) == pytest.approx(np.log(1.2 / 0.9) / 2 / 1.6448536, rel=1e-5)
