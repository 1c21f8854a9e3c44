import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.formats import exp_table

TABLE = exp_table.build_table()
# All float16 with the sign bit, from -0 over the subnormals to -inf.
NEGATIVE = np.arange(0x8000, 0xFC01, dtype=np.uint16).view(np.float16)

look_up = jax.jit(exp_table.exp_nonpositive)


def patterns(x):
    return np.asarray(x).view(np.uint16)


def half(*values):
    return jnp.asarray(np.array(values, np.float16))


def test_every_entry_is_correctly_rounded():
    expected = np.exp(NEGATIVE.astype(np.float64)).astype(np.float16)
    np.testing.assert_array_equal(patterns(look_up(jnp.asarray(NEGATIVE), TABLE)), patterns(expected))
    assert TABLE.shape == (32768,)
    assert TABLE.dtype == jnp.float16


def test_by_hand():
    # exp(-1) = 0.367879 lies in [1/4, 1/2), steps of 2^-12: 1506.8 of them, so 1507 · 2^-12. exp(-17) = 4.14e-8 is 0.69 of
    # the smallest float16, exp(-18) = 1.5e-8 is 0.26 of it.
    result = look_up(half(-1, -17, -18), TABLE)
    np.testing.assert_array_equal(result, [1507 * 2.0**-12, 2.0**-24, 0])


def test_index_of_special_patterns():
    x = np.array([0x0000, 0x8000, 0x8001, 0x83FF, 0x8400, 0xFBFF, 0xFC00, 0xFC01, 0xFFFF, 0x7E00], np.uint16)
    at = exp_table.index(jnp.asarray(x.view(np.float16)))
    assert at.dtype == jnp.uint16
    assert np.asarray(at).tolist() == [0, 0, 1, 0x3FF, 0x400, 0x7BFF, 0x7C00, 0x7C01, 0x7FFF, 0x7E00]
    result = patterns(look_up(jnp.asarray(x.view(np.float16)), TABLE))
    # +0 and -0 give 1, subnormals round to 1, the largest magnitude and -inf give +0, all NaNs the quiet one.
    assert result.tolist() == [0x3C00] * 4 + [0x3C00, 0, 0, 0x7E00, 0x7E00, 0x7E00]


@pytest.mark.scheme_matrix
def test_derivative_is_the_table_value():
    x = half(0, -0.4, -1.3, -5.1, -9.7, -np.inf)
    slope = jax.jit(jax.vmap(jax.grad(exp_table.exp_nonpositive), in_axes=(0, None)))(x, TABLE)
    np.testing.assert_array_equal(slope, look_up(x, TABLE))
    # The table's own difference quotient over a distance that float16 resolves; one-sided at the end of the range. The curve
    # bends by h²/6 and h/2 of its slope, and two entries' rounding errors are 2^-11 of them over 2h.
    value = lambda x: np.asarray(look_up(jnp.asarray(np.float16(x)), TABLE), np.float64)
    inner = np.array([-0.5, -1.25, -4.0])
    quotient = (value(inner + 0.0625) - value(inner - 0.0625)) / 0.125
    np.testing.assert_allclose(np.exp(inner), quotient, rtol=1e-2)
    np.testing.assert_allclose(value(0.0), (value(0.0) - value(-0.03125)) / 0.03125, rtol=2e-2)
    # Again and again: every derivative of exp is exp.
    second = jax.grad(jax.grad(exp_table.exp_nonpositive))(half(-1.3)[0], TABLE)
    np.testing.assert_array_equal(second, look_up(half(-1.3)[0], TABLE))
