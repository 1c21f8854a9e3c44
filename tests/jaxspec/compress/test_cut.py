import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from jaxspec.compress.blending import Blend, soft_truncate
from jaxspec.compress.blending import blend_cuts as blend
from jaxspec.formats.truncation import truncate

VALUES = np.random.default_rng(0).standard_normal((5, 17)).astype(ml_dtypes.bfloat16)
BITS = jnp.asarray(VALUES.view(np.uint16))


def soft(cut_bits, temperature):
    """Every value at one fractional width."""
    return soft_truncate(BITS, blend(cut_bits, temperature), jnp.result_type(float))


def test_blend_by_hand():
    # 2.25 at temperature 1/4: raw weight sigmoid(-1) = 0.268941 between sigmoid(-2) = 0.119203 and sigmoid(2) = 0.880797:
    # (0.268941 - 0.119203) / 0.761594 = 0.196611.
    mix = blend(jnp.asarray(2.25), 0.25)
    assert mix.low == 2
    np.testing.assert_allclose(mix.weight, 0.196611, rtol=1e-5)
    np.testing.assert_allclose(mix.mean, 2.196611, rtol=1e-6)


@pytest.mark.scheme_matrix(3)
@pytest.mark.parametrize("temperature", [1.0, 0.3, 0.05, 1e-3])
def test_weight_runs_from_0_to_1_and_whole_numbers_are_exact(temperature):
    mix = jax.vmap(lambda b: blend(b, temperature))(jnp.linspace(0, 7, 701))
    assert np.all((np.asarray(mix.weight) >= 0) & (np.asarray(mix.weight) <= 1))
    assert np.all((np.asarray(mix.low) >= 0) & (np.asarray(mix.low) <= 6))
    whole = blend(jnp.arange(8.0), temperature)
    np.testing.assert_array_equal(whole.mean, np.arange(8))
    np.testing.assert_array_equal(np.diff(mix.mean) >= 0, True)


@pytest.mark.scheme_matrix(1)
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("temperature", [0.3, 0.05])
def test_nothing_jumps_at_whole_numbers(temperature):
    for whole in range(1, 7):
        below, above = soft(whole - 1e-9, temperature), soft(whole + 1e-9, temperature)
        np.testing.assert_allclose(below, above, atol=1e-6)
        np.testing.assert_allclose(below, truncate(jnp.asarray(VALUES), whole).astype(jnp.float64), atol=1e-6)


def test_tends_to_rounding_off_half_integers():
    widths = jnp.array([0.0, 0.4, 0.7, 2.49, 2.51, 3.0, 4.3, 5.9, 6.45, 6.6, 7.0])
    distance = [np.max(np.abs(blend(widths, t).mean - np.rint(widths))) for t in (0.3, 0.05, 0.01, 1e-3)]
    assert distance == sorted(distance, reverse=True)
    assert distance[-1] < 1e-4


@pytest.mark.parametrize("cut_bits", [0.0, 0.3, 1.8, 4.0, 6.4, 6.7, 7.0])
def test_soft_truncation_tends_to_truncation(cut_bits):
    hard = truncate(jnp.asarray(VALUES), round(cut_bits)).astype(jnp.float32)
    np.testing.assert_allclose(soft(cut_bits, 1e-3), hard, rtol=1e-6)


def test_soft_truncation_by_hand():
    # 1.1015625 = 1 + 13/128: two bits cut leave 12/128, three 8/128; three quarters of the way down is 9/128.
    bits = jnp.asarray(np.array([1.1015625], ml_dtypes.bfloat16).view(np.uint16))
    assert float(soft_truncate(bits, Blend(jnp.asarray(2), jnp.asarray(0.75)))[0]) == 1 + 9 / 128


@pytest.mark.scheme_matrix
@pytest.mark.parametrize("temperature", [0.3, 0.05])
def test_gradient(check_gradient, temperature):
    weight = jnp.asarray(np.random.default_rng(1).standard_normal((8, *BITS.shape)))

    def scalar(cut_bits):
        mix = blend(cut_bits, temperature)
        spread = jax.tree.map(lambda x: x[:, None, None], mix)
        return jnp.sum(weight * soft_truncate(BITS, spread, jnp.float64)) + jnp.sum(jnp.sin(mix.mean))

    # Between whole numbers; then at both ends, and at whole numbers, where the right-hand gradient is given.
    check_gradient(scalar, jnp.array([0.31, 1.5, 2.77, 3.08, 4.5, 5.93, 6.2, 6.66]))
    check_gradient(
        scalar, jnp.array([0.0, 7.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), side=jnp.array([1, -1, 1, 1, 1, 1, 1, 1])
    )
