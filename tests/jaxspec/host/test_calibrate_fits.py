"""Fits of a machine whose numbers are known: they are found again, with honest errors, and priced as they were measured."""

import dataclasses

import numpy as np
import pytest
from known_machine import (
    CACHE_BYTES,
    FAR,
    FLOPS_PER_S,
    LAUNCH_S,
    RATES,
    SLOT_S,
    TERMS,
    cycle_rows,
    known_rows,
    noisy,
    product_s,
    step_of,
    step_rows,
    true_device,
    work_of,
)

from hwmodels import OPERATORS, catalog, step_cost, step_operators, uniform_weight_bits
from hwmodels.compute.roofline import row_factor
from hwmodels.network.operators import StepShape
from jaxspec.host.fits import factors, fit_cycles, fit_machine, row_costs_of
from jaxspec.host.run import device_text
from jaxspec.host.table import Row

pytestmark = [pytest.mark.usefixtures("compile_quickly"), pytest.mark.study]


@pytest.fixture(scope="module")
def table():
    return noisy(known_rows() + step_rows())


@pytest.fixture(scope="module")
def machine(table):
    return fit_machine(table, catalog.architecture, capacity_bytes=2e10)


def test_the_numbers_are_found_again(machine):
    wide, narrow = (machine.products[bits] for bits in (32.0, 16.0))
    found = wide.fit.estimates
    assert found["flops_per_s"] == pytest.approx(FLOPS_PER_S, rel=0.1)
    assert found["launch_s"] == pytest.approx(LAUNCH_S, rel=0.5)
    assert found["near_bytes_per_s"] == pytest.approx(RATES[32.0], rel=0.2)
    assert found["cache_bytes"] == pytest.approx(CACHE_BYTES, rel=0.5)
    assert found["far_share"] == pytest.approx(FAR, rel=0.2)
    assert narrow.fit.estimates["near_bytes_per_s"] == pytest.approx(RATES[16.0], rel=0.2)
    # Arithmetic and traffic of this machine add up.
    assert machine.device.matrix_unit.overlap_temperature == 1.0


def test_steps_of_rows_are_found_and_halve_the_error(machine):
    wide = machine.products[32.0]
    for size in wide.costs.factors:
        ratio = np.array(size) / np.array([step_of(rows) for rows in wide.costs.rows])
        np.testing.assert_allclose(ratio, np.median(ratio), rtol=0.12)
    assert wide.fit.errors.mean < 0.06
    assert wide.fit.errors.mean < wide.smooth_error / 2
    assert wide.fit.interval["low"] < 1 < wide.fit.interval["high"]
    assert machine.parts["attention"].errors.mean < 0.06
    assert machine.parts["attention"].estimates["slot_s"] == pytest.approx(SLOT_S, rel=0.3)
    assert machine.device.matrix_unit.attention.slot_s == machine.parts["attention"].estimates["slot_s"]


def test_products_that_are_faster_within_steps_are_priced_so(machine):
    table = noisy(known_rows() + step_rows(within_steps=0.55))
    found = fit_machine(table, catalog.architecture, capacity_bytes=2e10)
    measured = np.array([table[i].seconds for i in found.step_rows])
    assert np.mean(np.abs(found.step_s / measured - 1)) < 0.05
    # Of one row alone. In a small network products are a part of a step's time, and say less.
    small, large = (
        np.array(size) / np.array(before)
        for size, before in zip(found.products[32.0].costs.factors, machine.products[32.0].costs.factors, strict=True)
    )
    assert small[0] < 0.8
    assert large[0] == pytest.approx(0.55, abs=0.1)
    np.testing.assert_allclose(large[1:], 1.0, rtol=0.12)


def test_the_file_is_a_device_with_its_errors_inside(machine, tmp_path):
    text = device_text(machine, 'My "machine"', ("one remark",), "measured by jaxspec calibrate")
    (tmp_path / "my.toml").write_text(text, encoding="utf-8")
    entry = catalog.device_entry(str(tmp_path / "my.toml"))
    unit = entry.device.matrix_unit
    assert entry.title == 'My "machine"'
    assert unit.remarks == ("one remark",)
    assert unit.weight_widths == (16.0, 32.0)
    assert [one.part for one in unit.spreads] == ["products", "products", "attention", "steps"]
    assert all(0.5 < one.low < 1 < one.high < 2 and one.coverage == 0.9 for one in unit.spreads)
    assert "standard error" in entry.sources["matrix_unit.formats.1.compute_efficiency"]
    for row in step_rows()[:1]:
        own, read = (float(step_cost(device, work_of(row)).total_s) for device in (machine.device, entry.device))
        assert read == pytest.approx(own, rel=1e-4)


def test_a_measured_product_takes_in_a_step_what_was_measured(machine):
    """The down projection of a network with just one measured matrix, at temperature 0."""
    network = catalog.architecture("embedded").replace(hidden_size=300.0, intermediate_size=700.0, num_layers=2.0)
    down = OPERATORS.index("down")
    for rows in (1.0, 2.0, 9.0):
        work = step_operators(
            network,
            StepShape(tokens=rows, batch=1.0, context_tokens=10.0, weight_bits=uniform_weight_bits(32.0), kv_bits=32.0),
        )
        one = float(step_cost(machine.device, work).operator_s[down]) / 2
        at = Row("product", 0.0, weight_bits=32.0, batch=1.0, tokens=rows, inner=700.0, outer=300.0, read_bytes=8e6)
        assert one == pytest.approx(product_s(at), rel=0.12), rows


def test_row_costs_are_medians_by_size():
    rows, weights = np.array([1.0, 2, 1, 2, 1, 2, 1, 4]), np.array([10.0, 10, 20, 20, 30, 30, 900, 900])
    costs = row_costs_of(rows, weights, np.log([0.5, 1.0, 0.7, 1.0, 0.6, 1.2, 0.9, 1.1]))
    assert costs.rows == (1.0, 2.0, 4.0)
    np.testing.assert_allclose(costs.factors[0], [(0.5 * 0.7) ** 0.5, 1.0, 1.0], rtol=1e-6)
    np.testing.assert_allclose(costs.factors[1][::2], [(0.6 * 0.9) ** 0.5, 1.1], rtol=1e-6)
    at, size = np.array([1.0, 1.5, 3.0, 9.0]), np.array([5.0, 60.0, 200.0, 1e5])
    np.testing.assert_allclose(factors(costs, at, size), np.asarray(row_factor(costs, at, size)), rtol=1e-5)


def test_what_the_loop_spends_comes_back_from_cycles_that_hold_it():
    """Of the true device, whose kernels the cycles were priced with."""
    found = fit_cycles(cycle_rows(), true_device(), lambda row: catalog.architecture(row.architecture))
    for name, value in dataclasses.asdict(TERMS).items():
        assert found.estimates.get(name, 0.0) == pytest.approx(value, rel=1e-3, abs=1e-9)
    assert found.errors.largest < 1e-3
    assert fit_cycles(cycle_rows()[:4], true_device(), lambda row: catalog.architecture(row.architecture)) is None
