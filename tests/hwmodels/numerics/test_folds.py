import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.numerics.folds import ceil_div, smooth_ceil_div, smooth_folds

SIZES = st.integers(1, 10**15)
TEMPERATURES = st.sampled_from([1e-30, 1e-12, 1e-7, 1e-3, 0.03, 0.2, 0.7, 1.0])
smooth, folds = jax.jit(smooth_ceil_div), jax.jit(smooth_folds)
#: The smooth counts of tiles.
FORMS = [smooth_ceil_div, smooth_folds]


@given(SIZES, SIZES)
def test_the_least_number_of_tiles_that_covers(extent, tile):
    tiles = ceil_div(extent, tile)
    assert type(tiles) is int
    assert (tiles - 1) * tile < extent <= tiles * tile


def test_smooth_by_hand():
    # 5 / 4: x = 1.25, u = 0.25, w = 0.75; u^2 / (u^2 + 0.25) = 0.2, w / (w + 0.5) = 0.6: 2 - 0.75 (1 - 0.5 * 0.12) = 1.295.
    assert float(smooth(5, 4, 0.5)) == pytest.approx(1.295)
    # 1 / 4: w = 0.75: 1 - 0.75 * 0.5 / 1.25 = 0.7.
    assert float(smooth(1, 4, 0.5)) == pytest.approx(0.7)
    # Temperature 1 past the first tile: the quotient.
    assert float(smooth(17, 4, 1.0)) == pytest.approx(4.25)


def test_temperature_zero_is_exact():
    extents, tiles = np.meshgrid(np.arange(1, 300), np.arange(1, 130))
    np.testing.assert_array_equal(smooth(extents, tiles), ceil_div(extents, tiles))


@pytest.mark.parametrize("tile", [7, 15, 41, 49])
def test_exact_also_where_the_tile_is_a_constant(tile):
    # A compiler multiplies by the inverse: in single precision 21 * (1 / 7) is above 3, and the next number after 41,
    # times 1 / 41, is not above 1.
    tiles = np.arange(1, 40)
    count = jax.jit(lambda extents: smooth_ceil_div(extents, tile))
    np.testing.assert_array_equal(count(tiles * tile), tiles)
    np.testing.assert_array_equal(count(np.nextafter((tiles * tile).astype(np.float32), np.float32(1e9))), tiles + 1)


@given(st.floats(0.05, 50.0), st.floats(0.3, 30.0), TEMPERATURES)
def test_between_the_quotient_and_the_exact_number(tiles, tile, temperature):
    extent = np.float32(tiles * tile)
    quotient = extent / np.float32(tile)
    exact, value = (float(smooth(float(extent), tile, t)) for t in (0.0, temperature))
    assert quotient * (1 - 1e-6) <= value <= exact
    used = quotient - (exact - 1)
    if used > 1e-3:
        assert exact - value <= (2 * temperature + (temperature / used) ** 2) * (1 + 1e-4) + 1e-5
    if quotient < 1:
        assert value >= 1 / (1 + temperature) - 1e-6


@pytest.mark.parametrize("smooth", FORMS)
def test_monotone_and_continuous(x64, smooth):
    quotients = jnp.linspace(0.01, 4.3, 4003)[:, None]
    temperatures = jnp.array([1.0, 0.5, 0.1, 0.03, 0.01])
    values = np.asarray(smooth(quotients * 7.3, 7.3, temperatures))
    steps = np.diff(values, axis=0)
    assert np.all(steps > 0)
    # The steepest slope is about 1 / temperature: no jump is left.
    assert np.all(steps.max(axis=0) < (4.3 / 4002) * (1 + 1 / np.asarray(temperatures)))
    assert np.all(np.diff(values, axis=1) > -1e-12)


@pytest.mark.parametrize("count", FORMS)
def test_gradient(check_gradient, count):
    # On multiples too: the slope has no step there. Below one tile, just above one, in the middle, on 2, below 4.
    extents = jnp.array([3.0, 7.3, 11.0, 14.0, 27.1])
    temperatures = jnp.array([0.04, 0.3, 0.9])[:, None]
    check_gradient(lambda x: jnp.sum(count(*x)), (extents, jnp.float64(7.0), temperatures), step=1e-6)
