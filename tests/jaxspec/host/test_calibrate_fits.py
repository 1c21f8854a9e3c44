"""Fits of a machine whose numbers are known: they are found again, with honest errors, and priced as they were measured."""

import numpy as np
import pytest
from known_machine import (
    CACHE_BYTES,
    FAR,
    FLOPS_PER_S,
    LAUNCH_S,
    RATES,
    SLOT_S,
    known_rows,
    noisy,
    step_of,
    step_rows,
    work_of,
)

from hwmodels import catalog, step_cost
from jaxspec.host.fits import fit_machine
from jaxspec.host.run import device_text

pytestmark = pytest.mark.study


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
