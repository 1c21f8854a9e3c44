"""The choice of an elastic draft: its price against trees and chains, its surface, and gradients against trying all."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.elastic_choice.search import GRADIENT_COST, Grid, by_gradient, by_trying_all, climb
from experiments.elastic_choice.speed import Choice, caterpillar, log_speedup
from experiments.elastic_choice.surface import brought_tokens, surface_of
from hwmodels import Acceptance, DraftCost, Workload, catalog, speculation_speedup, tree_plan
from jaxspec.compress.footprint import uniform
from jaxspec.tuning.objective import Pricing

SHARE = (0.0, 0.2, 0.45, 1.0)


def made_up():
    """Acceptance that falls with small pools, few bits and depth, and rises with candidates."""
    sharing, bits, share, depth, width = np.meshgrid(
        [0.0, 1.0], np.arange(2, 7), SHARE, np.arange(1, 6), np.arange(1, 5), indexing="ij"
    )
    one = 0.93 * (1 - np.exp(1.0 - bits)) * (0.7 + 0.3 * share ** (0.7 + 0.3 * sharing))
    return (one ** (depth - 1) * (1 - (1 - one) ** (1 + 0.6 * (width - 1)))).astype(np.float32)


VALUES = made_up()


@pytest.fixture(scope="module")
def surface():
    return surface_of((1, 8), SHARE, VALUES)


@pytest.fixture
def loose():
    # optax's AdaMax raises a float to an integer power, which strict promotion refuses.
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="module")
def pricing():
    workload = Workload(batch=1.0, context_tokens=700.0)
    return Pricing(catalog.device("rtx-4090"), catalog.architecture("qwen3-30b-a3b"), workload)


def test_the_surface_goes_through_what_was_measured_and_keeps_its_order(surface):
    read = jax.jit(lambda batch, share, bits: brought_tokens(surface, batch, share, bits, 1e-3))
    for knot, share in enumerate(SHARE):
        found = read(jnp.float32(8), jnp.float32(share), jnp.float32(5))
        np.testing.assert_allclose(found, VALUES[1, 3, knot], rtol=1e-5)
    between = [float(read(jnp.float32(1), jnp.float32(s), jnp.float32(3))[1, 2]) for s in np.linspace(0, 1, 41)]
    assert np.all(np.diff(between) >= -1e-6)
    # In the middle of the logarithm of the batch, and beyond what was measured.
    middle = read(jnp.float32(8**0.5), jnp.float32(0.2), jnp.float32(2))
    np.testing.assert_allclose(middle, VALUES[:, 0, 1].mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(read(jnp.float32(64), jnp.float32(0.2), jnp.float32(2)), VALUES[1, 0, 1], rtol=1e-5)


@pytest.mark.parametrize(("depth", "width"), [(1, 1), (3, 1), (4, 3)])
def test_a_caterpillar_is_the_plan_of_its_tree(depth, width):
    parent, above = [], -1
    for _ in range(depth):
        first = len(parent)
        parent += [above] * width
        above = first
    ours, theirs = caterpillar(jnp.float32(depth), jnp.float32(width)), tree_plan(parent)
    for field in dataclasses.fields(ours):
        np.testing.assert_allclose(getattr(ours, field.name), getattr(theirs, field.name), rtol=1e-6)


def test_a_chain_is_priced_as_elsewhere(surface, pricing):
    choice = Choice(*map(jnp.float32, (0.45, 4.0, 3.0, 1.0)))
    ours = jax.jit(lambda: log_speedup(choice, jnp.float32(8), surface, pricing))()
    reach = VALUES[1, 2, 2, :, 0]
    found = speculation_speedup(
        pricing.device,
        pricing.architecture,
        workload=dataclasses.replace(pricing.workload, batch=8.0),
        footprint=uniform(4.5, 8.5, 16.0, 16.0),
        acceptance=Acceptance(jnp.asarray(reach / np.concatenate([[1.0], reach[:-1]]))),
        draft_cost=DraftCost(pool_experts=8 + 0.45 * 120),
    )
    assert float(ours) == pytest.approx(float(np.log(found.speedup_vs_stored_ar[3])), abs=1e-4)


def test_gradients_are_those_of_finite_differences(surface, pricing):
    soft = lambda x: log_speedup(Choice(*x), jnp.float32(4), surface, pricing, 0.3, 0.05)
    at, step = jnp.asarray([0.31, 3.7, 2.6, 1.4]), 1e-2
    value, gradient = jax.jit(soft), jax.jit(jax.grad(soft))(at)
    moved = [(float(value(at + step * e)) - float(value(at - step * e))) / (2 * step) for e in jnp.eye(4)]
    np.testing.assert_allclose(gradient, moved, rtol=3e-2, atol=3e-3)


@pytest.mark.usefixtures("loose")
def test_gradients_find_what_trying_all_finds(surface, pricing):
    grid = Grid([i / 28 for i in range(29)], [2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 2.0, 3.0, 4.0])
    for batch in (1.0, 8.0, 64.0):
        tried = by_trying_all(grid, batch, surface, pricing)
        found = by_gradient(grid, batch, surface, pricing)
        assert tried.evaluations == grid.size == 2900
        assert GRADIENT_COST * 5 + 12 < found.evaluations <= grid.size / 50
        assert tried.log_speedup - 0.01 <= found.log_speedup <= tried.log_speedup + 1e-6


def test_a_broad_hill_does_not_hide_a_narrow_one():
    grid = Grid([i / 28 for i in range(29)], [2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 2.0, 3.0, 4.0])

    def height(point):
        """A broad hill around pools of all experts, and a steep one that ends at (0, 2, 1, 1), whose foot is lower."""
        share, bits, depth, width = point
        broad = 1.0 - 0.05 * (1 - share) - 0.002 * (6 - bits) - 0.002 * (depth - 1) - 0.001 * (width - 1)
        steep = 1.1 - 0.2 * (bits - 2) - 0.3 * (depth - 1) - 0.3 * (width - 1) - 3.0 * share
        return max(broad, steep)

    tried = []
    price = lambda points: tried.extend(points) or [height(point) for point in points]
    known = {point: height(point) for point in ((1.0, 3.0, 1.0, 1.0), (0.0, 3.0, 2.0, 1.0), (0.0, 3.0, 1.0, 1.0))}
    climb(grid, known, price, 60)
    assert max(known, key=lambda point: known[point]) == (0.0, 2.0, 1.0, 1.0)
    # Nothing is priced twice, and all that is known was paid for.
    assert len(known) == len(set(tried)) + 3 == len(tried) + 3 <= 60


def test_a_climb_ends_when_all_points_are_known():
    grid = Grid([0.0, 0.3, 1.0], [3.0, 4.0], [1.0, 2.0], [1.0, 3.0])
    height = lambda point: float(np.sin(7 * sum((i + 1) * value for i, value in enumerate(point))))
    known = {(0.3, 3.0, 1.0, 1.0): height((0.3, 3.0, 1.0, 1.0))}
    climb(grid, known, lambda points: [height(point) for point in points], 1000)
    assert known == {point: height(point) for point in grid.points()}


@pytest.mark.usefixtures("loose")
def test_small_grids_take_fewer_slopes(surface, pricing):
    grid = Grid([0.0, 0.5, 1.0], [3.0, 4.0], [1.0, 2.0], [1.0, 2.0])
    found = by_gradient(grid, 8.0, surface, pricing)
    # A point to begin at, a slope from it, and the nearest whole point of its end.
    assert GRADIENT_COST < found.evaluations <= GRADIENT_COST + 2
    assert found.choice in set(grid.points())
