import jax
import numpy as np
import pytest

from experiments.benchmarks import hardware, model_peers

pytestmark = pytest.mark.device_matrix


@pytest.fixture(scope="module")
def points():
    return hardware.draw_points(37, device=hardware.decode_device(), seed=5)


def one_of(points, index):
    return jax.tree.map(lambda leaf: leaf[index], points)


def test_a_point_among_many_costs_what_it_costs_alone(points):
    seconds, joules = jax.jit(jax.vmap(hardware.decode_cost))(points)
    alone = jax.jit(hardware.decode_cost)(one_of(points, 11))
    np.testing.assert_allclose((seconds[11], joules[11]), alone, rtol=1e-5)
    assert len(np.unique(seconds)) == len(np.unique(joules)) == 37
    found = jax.jit(hardware.log_energy_delay)(one_of(points, 11))
    np.testing.assert_allclose(found, np.log(float(alone[0]) * float(alone[1])), rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in hardware.UNIT_DEVICES if not name.startswith("GPU")])
def test_products_in_a_step_take_what_the_unit_says(name):
    device = hardware.UNIT_DEVICES[name]()
    hardware.check_unit(device, hardware.PRODUCT_TIMES[name](device) if name in hardware.PRODUCT_TIMES else None)


@pytest.mark.parametrize(("compare", "peer"), [("beside_genz", "GenZ"), ("beside_scale_sim", "scalesim")])
@pytest.mark.filterwarnings("ignore")
def test_ours_agrees_with_a_peer_that_is_installed(compare, peer):
    pytest.importorskip(peer)
    for row in getattr(model_peers, compare)(chunk=2, repeats=1):
        assert row["ratio"] == pytest.approx(row["ours"] / row["peer"])
