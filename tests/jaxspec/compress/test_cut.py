import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.compress.blending import blend_cuts as blend


@pytest.mark.scheme_matrix(3)
@pytest.mark.parametrize("temperature", [1.0, 0.3, 0.05, 1e-3])
def test_weight_runs_from_0_to_1_and_whole_numbers_are_exact(temperature):
    mix = jax.vmap(lambda b: blend(b, temperature))(jnp.linspace(0, 7, 701))
    assert np.all((np.asarray(mix.weight) >= 0) & (np.asarray(mix.weight) <= 1))
    assert np.all((np.asarray(mix.low) >= 0) & (np.asarray(mix.low) <= 6))
    whole = blend(jnp.arange(8.0), temperature)
    np.testing.assert_array_equal(whole.mean, np.arange(8))
    np.testing.assert_array_equal(np.diff(mix.mean) >= 0, True)


def test_tends_to_rounding_off_half_integers():
    widths = jnp.array([0.0, 0.4, 0.7, 2.49, 2.51, 3.0, 4.3, 5.9, 6.45, 6.6, 7.0])
    distance = [np.max(np.abs(blend(widths, t).mean - np.rint(widths))) for t in (0.3, 0.05, 0.01, 1e-3)]
    assert distance == sorted(distance, reverse=True)
    assert distance[-1] < 1e-4


@pytest.mark.scheme_matrix
@pytest.mark.parametrize("temperature", [0.3, 0.05])
def test_gradient(check_gradient, temperature):
    scalar = lambda cut_bits: jnp.sum(jnp.sin(blend(cut_bits, temperature).mean))

    # Between whole numbers; then at both ends, and at whole numbers, where the right-hand gradient is given.
    check_gradient(scalar, jnp.array([0.31, 1.5, 2.77, 3.08, 4.5, 5.93, 6.2, 6.66]))
    check_gradient(
        scalar, jnp.array([0.0, 7.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), side=jnp.array([1, -1, 1, 1, 1, 1, 1, 1])
    )
