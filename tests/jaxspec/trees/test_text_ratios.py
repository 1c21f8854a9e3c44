import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.trees import ratio_of_totals

pytestmark = pytest.mark.network


def test_errors_of_ratios_against_many_samples():
    """Of 4000 samples of 40 texts: the scatter of the ratios is what each sample says of itself."""
    rng = np.random.default_rng(12)
    m = rng.integers(5, 40, (4000, 40))
    y = rng.binomial(m, rng.beta(4, 2, m.shape)) + m
    ratio = jax.jit(ratio_of_totals)(jnp.asarray(y), jnp.asarray(m))
    np.testing.assert_allclose(ratio.mean, y.sum(1) / m.sum(1), rtol=1e-6)
    np.testing.assert_allclose(np.mean(ratio.per_text, axis=1), ratio.mean, rtol=1e-5)
    np.testing.assert_allclose(np.std(ratio.mean), np.mean(ratio.standard_error), rtol=0.05)
    equal = ratio_of_totals(jnp.asarray([3, 8, 4]), jnp.asarray([2, 2, 2]))
    np.testing.assert_allclose(equal.per_text, [1.5, 4, 2], rtol=1e-6)
    np.testing.assert_allclose(equal.standard_error, np.std([1.5, 4, 2], ddof=1) / 3**0.5, rtol=1e-6)
    one = ratio_of_totals(jnp.asarray([3]), jnp.asarray([2]))
    assert float(one.mean) == 1.5
    assert np.isnan(one.standard_error)
