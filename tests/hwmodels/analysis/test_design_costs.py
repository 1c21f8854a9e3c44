"""What a device costs: worked by hand, larger arrays never free, slopes against differences."""

import jax
import numpy as np
import pytest

from hwmodels import Technology, catalog, chip_bill, design_costs
from hwmodels.analysis import CostTerm

NPU = catalog.device("cassandra-npu-roofline")
FPGA = catalog.device("alveo-u280")


def test_the_devices_own_costs_by_hand():
    # Chip 91.54 mm2 and 40 decoders of 0.044 mm2; 2.796 W static, 0.264 W decoders, 64e12 * 194.5 fJ, 273e9 * 8 * 3.88 pJ.
    found = design_costs(NPU)
    np.testing.assert_allclose(found.area_m2, 9.154e-5 + 40 * 4.4e-8, rtol=1e-6)
    np.testing.assert_allclose(found.power_w, 2.796 + 0.264 + 12.448 + 273e9 * 8 * 3.88e-12, rtol=1e-6)
    np.testing.assert_allclose(found.bandwidth_bytes_per_s, 273e9, rtol=1e-6)
    assert float(found.price) == 0.0


def test_terms_multiply_powers_and_may_use_the_die():
    terms = (
        CostTerm((("elements", 1.0), ("matrix_unit.frequency_hz", 2.0)), power_w=1e-21),
        CostTerm((("elements", 1.0),), area_m2=3e-8),
        CostTerm((("die_area_m2", 1.5),), price=7.0),
    )
    found = design_costs(FPGA, terms)
    elements = 64 * 48
    np.testing.assert_allclose(found.area_m2, 3e-8 * elements, rtol=1e-6)
    np.testing.assert_allclose(found.power_w, 1e-21 * elements * 225e6**2, rtol=1e-6)
    np.testing.assert_allclose(found.price, 7.0 * (3e-8 * elements) ** 1.5, rtol=1e-5)


def test_a_larger_array_costs_area_and_power_by_its_slope():
    terms = (CostTerm((("elements", 1.0),), area_m2=3e-8, power_w=1e-3),)

    def costs(rows):
        found = design_costs(FPGA.replace(matrix_unit=FPGA.matrix_unit.replace(rows=rows)), terms)
        return found.area_m2, found.power_w

    slopes = jax.jit(jax.jacrev(costs))(64.0)
    np.testing.assert_allclose(slopes, (48 * 3e-8, 48 * 1e-3), rtol=1e-5)


@pytest.mark.device_matrix
def test_a_technology_has_its_bill():
    device = FPGA.replace(technology=Technology(node_m=16e-9))
    found, bill = design_costs(device), chip_bill(device)
    np.testing.assert_allclose(
        (found.area_m2, found.power_w, found.price), (bill.area_m2, bill.power_w, bill.price_usd), rtol=1e-6
    )
    # What terms add to the die leaks, 84.6 mW per mm2, and makes the whole die dearer than its share of the area.
    term = CostTerm((("elements", 1.0),), area_m2=3e-8, power_w=1e-3)
    more, elements = design_costs(device, (term,)), 64 * 48
    np.testing.assert_allclose(more.area_m2, bill.area_m2 + 3e-8 * elements, rtol=1e-6)
    np.testing.assert_allclose(more.power_w, bill.power_w + 1e-3 * elements + 84.6e3 * 3e-8 * elements, rtol=1e-5)
    assert float(more.price) > float(bill.price_usd)


@pytest.mark.parametrize("name", ["rows", "columns"])
def test_a_larger_array_is_never_free_by_technology(name):
    device = FPGA.replace(technology=Technology(node_m=16e-9))

    def costs(size):
        found = design_costs(device.replace(matrix_unit=device.matrix_unit.replace(**{name: size})))
        return found.area_m2, found.power_w, found.price

    assert all(slope > 0 for slope in jax.jit(jax.jacrev(costs))(64.0))
