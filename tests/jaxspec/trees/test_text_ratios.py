import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxspec.trees import paired_difference, ratio_of_totals

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


def test_paired_differences_against_scipy(jit):
    rng = np.random.default_rng(3)
    cycles = np.full((4, 9), 10)
    common = rng.integers(5, 30, 9)
    a = common + rng.integers(2, 9, (4, 9))
    b = common + rng.integers(0, 6, (4, 9))
    a[3], b[3] = b[3], a[3].copy()  # and one that loses
    first, second = (ratio_of_totals(jnp.asarray(tokens), jnp.asarray(cycles)) for tokens in (a, b))
    found = jit(paired_difference)(first, second)
    expected = stats.ttest_rel(a / 10, b / 10, axis=1, alternative="greater")
    np.testing.assert_allclose(found.gain, np.mean(a - b, axis=1) / 10, rtol=1e-4)
    np.testing.assert_allclose(found.gain / found.standard_error, expected.statistic, rtol=1e-4)
    np.testing.assert_allclose(found.p_value, expected.pvalue, rtol=1e-3)
    whole = paired_difference(first, second, over_sizes=True)
    together = stats.ttest_rel(np.mean(a, 0) / 10, np.mean(b, 0) / 10, alternative="greater")
    np.testing.assert_allclose(whole.p_value, together.pvalue, rtol=1e-3)
    # Texts that differ in the same way: certain; the same ratio: no difference.
    assert paired_difference(first, first).p_value.tolist() == [0.5] * 4
    # Pairing removes what the texts have in common.
    assert np.all(found.standard_error < 0.5 * np.hypot(first.standard_error, second.standard_error))


@pytest.mark.wrong_arrays
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ratio_of_totals(jnp.zeros(3), jnp.zeros(2)), "per text"),
        (
            lambda: paired_difference(
                ratio_of_totals(jnp.ones(3), jnp.ones(3)), ratio_of_totals(jnp.ones(2), jnp.ones(2))
            ),
            "same texts",
        ),
    ],
)
def test_what_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
