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


def test_every_leaf_varies_from_point_to_point_and_from_chunk_to_chunk(points):
    others = hardware.draw_points(37, device=hardware.decode_device(), seed=6)
    for (path, leaf), other in zip(jax.tree_util.tree_leaves_with_path(points), jax.tree.leaves(others)):
        name = jax.tree_util.keystr(path)
        assert np.isfinite(leaf).all(), name
        assert len(np.unique(leaf)) > 1, name
        assert not np.array_equal(leaf, other), name
    for share in (
        points.device.compute_efficiency,
        *(t.efficiency for t in (points.device.memory, *points.device.spill)),
    ):
        assert np.all((share > 0) & (share <= 1))
    layers = points.architecture.num_layers
    assert np.all(points.architecture.num_moe_layers <= layers)
    assert np.all(points.architecture.num_window_layers <= layers)


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


def test_another_unit_would_be_noticed(monkeypatch):
    device = hardware.UNIT_DEVICES["FPGA array, alveo-v80"]()
    slower = lambda *sizes, **widths: 1.1 * device.matrix_unit.product_time(*sizes, **widths)
    with pytest.raises(AssertionError, match="qkv takes"):
        hardware.check_unit(device, slower)


@pytest.mark.parametrize(("compare", "peer"), [("beside_genz", "GenZ"), ("beside_scale_sim", "scalesim")])
@pytest.mark.filterwarnings("ignore")
def test_ours_agrees_with_a_peer_that_is_installed(compare, peer):
    pytest.importorskip(peer)
    for row in getattr(model_peers, compare)(chunk=2, repeats=1):
        assert row["ratio"] == pytest.approx(row["ours"] / row["peer"])
