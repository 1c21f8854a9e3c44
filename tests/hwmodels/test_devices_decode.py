"""Every device of the catalog with networks of every kind: what holds whatever computes and remembers."""

import jax
import pytest
from narrow_devices import one_of_each_unit

from hwmodels import OPERATORS, catalog, step_cost
from jaxspec.testing import units
from jaxspec.testing.units import work


@pytest.mark.device_matrix(2)
@pytest.mark.parametrize("name", one_of_each_unit())
def test_twice_the_clock_and_bandwidth_is_half_the_time(name):
    units.halves_at_twice_the_rates(catalog.device(name))


@pytest.mark.device_matrix
@pytest.mark.parametrize("name", ["alveo-v80", "elmoe3d-hb4", "hexagon-v75"])
def test_gradient_through_each_kind_of_unit(name, check_gradient):
    device, moved = catalog.device(name), work("llama-3.2-1b")
    moved = jax.tree.map(lambda leaf: leaf.astype(float), moved)
    # Tile counts relaxed, so that no leaf is piecewise constant; sides that divide nothing, so that none stands on a step.
    leaves, treedef = jax.tree.flatten(device)
    device = treedef.unflatten([leaf * (1.03 + 0.007 * i) for i, leaf in enumerate(leaves)])
    # Counts of thousands of tiles bend within a thousandth of a tile: a change of 1e-4 would jump over a tenth of one.
    check_gradient(lambda d: step_cost(d, moved, temperature=0.2).total_s, device, step=1e-8)


def test_a_matrix_unit_prices_products_and_the_roof_the_rest():
    device, moved = catalog.device("alveo-v80"), work("llama-3.2-1b", tokens=7.0)
    busy = step_cost(device, moved).compute_s
    i, j = OPERATORS.index("down"), OPERATORS.index("norm")
    # 7 tokens one after the other, 16 layers, 8192 x 2048 weights over 128 x 128 elements.
    assert float(busy[i]) == pytest.approx(7 * 16 * 8192 * 2048 / 128**2 / 225e6, rel=1e-5)
    assert float(busy[j]) == pytest.approx(float(moved.flops[j]) / device.peak_flops_per_s, rel=1e-5)
