import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.formats import exp_table

TABLE = exp_table.build_table()
# All float16 with the sign bit, from -0 over the subnormals to -inf.
NEGATIVE = np.arange(0x8000, 0xFC01, dtype=np.uint16).view(np.float16)

look_up = jax.jit(exp_table.exp_nonpositive)
softmax = jax.jit(exp_table.safe_softmax_fp16)


def patterns(x):
    return np.asarray(x).view(np.uint16)


def half(*values):
    return jnp.asarray(np.array(values, np.float16))


def plain_softmax(scores):
    """Every intermediate in its own NumPy type; exp in float64."""
    row_max = scores.max(-1)
    numerators = np.exp((scores - row_max[..., None]).astype(np.float64)).astype(np.float16)
    row_sum = numerators.astype(np.float64).sum(-1).astype(np.float32).astype(np.float16)
    quotient = numerators.astype(np.float32) / row_sum.astype(np.float32)[..., None]
    return quotient.astype(np.float16), numerators, row_max, row_sum


def test_every_entry_is_correctly_rounded():
    expected = np.exp(NEGATIVE.astype(np.float64)).astype(np.float16)
    np.testing.assert_array_equal(patterns(look_up(jnp.asarray(NEGATIVE), TABLE)), patterns(expected))
    assert TABLE.shape == (32768,)
    assert TABLE.dtype == jnp.float16


def test_rounding_is_nowhere_in_doubt():
    # exp in float64 is off by less than 2^-52; the distance to the middle of two float16 is far more, so rounding twice is
    # rounding once. Exactly 1 and exactly 0 apart.
    exact = np.exp(NEGATIVE.astype(np.float64))
    spacing = np.maximum(2.0 ** (np.floor(np.log2(np.maximum(exact, 2.0**-60))) - 10), 2.0**-24)
    from_middle = np.abs(np.mod(exact / spacing, 1) - 0.5) * spacing / np.maximum(exact, 2.0**-60)
    assert np.min(from_middle[exact > 2.0**-30]) > 2.0**-30


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


def test_offsets_are_even_and_fit_16_bits():
    every = np.arange(1 << 16, dtype=np.uint16)
    offset = np.asarray(exp_table.byte_offset(jnp.asarray(every.view(np.float16))))
    assert offset.dtype == np.uint16
    np.testing.assert_array_equal(offset.astype(int), every.astype(int) % 32768 * 2)
    # The byte at the offset begins the entry.
    raw = np.asarray(TABLE).tobytes()
    for at in (0, 0x1234, 0x7BFF):
        assert raw[2 * at : 2 * at + 2] == np.asarray(TABLE)[at].tobytes()


def test_entries_above_infinity_are_quiet_nans():
    assert patterns(TABLE)[0x7C00] == 0
    assert set(patterns(TABLE)[0x7C01:]) == {0x7E00}


def test_larger_inputs_never_give_less():
    result = np.asarray(look_up(jnp.asarray(NEGATIVE), TABLE), np.float64)
    assert np.all(np.diff(result) <= 0)
    assert (result.max(), result.min()) == (1, 0)


def test_a_positive_input_is_not_noticed():
    np.testing.assert_array_equal(look_up(half(0.75, 3, np.inf), TABLE), look_up(half(-0.75, -3, -np.inf), TABLE))


def test_size_is_64_kib():
    assert exp_table.num_bits() == 8 * 64 * 1024 == 8 * TABLE.size * TABLE.dtype.itemsize


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


def test_derivative_by_the_table_counts_uses():
    x = half(-1, -2, -1, 0, -1)
    counts = jax.grad(lambda table: jnp.sum(exp_table.exp_nonpositive(x, table).astype(jnp.float32)))(TABLE)
    expected = np.zeros(32768)
    np.add.at(expected, np.asarray(exp_table.index(x)), 1)
    np.testing.assert_array_equal(counts, expected)


@settings(max_examples=12)
@given(
    shape=st.sampled_from([(1,), (2,), (7,), (3, 5), (2, 1, 33), (1, 700), (0, 4)]),
    scale=st.sampled_from([0.0, 0.3, 4.0, 300.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_softmax_is_the_plain_implementation(shape, scale, seed):
    rng = np.random.default_rng(seed)
    scores = rng.normal(3.0, scale, shape).astype(np.float16)
    scores[..., 1:] = np.where(rng.random(scores[..., 1:].shape) < 0.2, -np.inf, scores[..., 1:])
    ours = softmax(jnp.asarray(scores), TABLE)
    expected = plain_softmax(scores)
    for name, mine, theirs in zip(ours._fields, ours, expected):
        np.testing.assert_array_equal(mine, theirs, err_msg=name)
        assert mine.dtype == jnp.float16


def test_softmax_by_hand():
    # Maximum 2.5; differences 0, -1, -inf: 1 + 1507 · 2^-12 = 5603 · 2^-12, of which float16 (steps of 2^-10 above 1) keeps
    # 1401 · 2^-10 (1400.75). Probabilities 1024/1401 = 0.730906 and 376.75/1401 = 0.268915 in steps of 2^-11 and 2^-12.
    result = softmax(half(2.5, 1.5, -np.inf), TABLE)
    assert float(result.row_max) == 2.5
    assert float(result.row_sum) == 1401 * 2.0**-10
    np.testing.assert_array_equal(result.numerators, [1, 1507 * 2.0**-12, 0])
    np.testing.assert_array_equal(result.probabilities, [1497 * 2.0**-11, 1101 * 2.0**-12, 0])


def test_softmax_is_near_the_exact_one():
    scores = np.random.default_rng(6).normal(-1, 3, (50, 300)).astype(np.float16)
    exact = np.exp(scores.astype(np.float64) - scores.max(-1, keepdims=True))
    exact /= exact.sum(-1, keepdims=True)
    ours = np.asarray(softmax(jnp.asarray(scores), TABLE).probabilities, np.float64)
    # Differences between 8 and 16 are off by up to 2^-8, and their exponentials relatively so; steps of 2^-24 near zero.
    assert np.all(np.abs(ours - exact) < 2.0**-7 * exact + 2.0**-24)
    assert np.abs(ours.sum(-1) - 1).max() < 2.0**-8


def test_the_sum_is_not_accumulated_in_float16():
    # In float16 a sum of ones stops at 2048.
    result = softmax(jnp.zeros((3000,), jnp.float16), TABLE)
    assert float(result.row_sum) == 3000
    np.testing.assert_allclose(result.probabilities, 1 / 3000, rtol=2e-3)
    # Beyond the largest float16 the sum is infinite, as a stored float16 sum is.
    assert np.isinf(softmax(jnp.zeros((65520,), jnp.float16), TABLE).row_sum)


def test_rows_without_a_finite_maximum():
    for scores in (half(-np.inf, -np.inf), half(np.inf, 0), half(np.nan, 0, 1)):
        assert np.all(np.isnan(softmax(scores, TABLE).probabilities[:1]))


def test_gradient_of_the_softmax(jit):
    rng = np.random.default_rng(9)
    scores, weight = rng.normal(2, 1.5, (3, 11)).astype(np.float16), rng.normal(size=(3, 11))
    total = lambda s: jnp.sum(
        jnp.asarray(weight, jnp.float32) * exp_table.safe_softmax_fp16(s, TABLE).probabilities.astype(jnp.float32)
    )
    gradient = jax.jit(jax.grad(total))(jnp.asarray(scores))
    per_row = jit(
        jax.vmap(
            jax.grad(lambda s, w: jnp.sum(w * exp_table.safe_softmax_fp16(s, TABLE).probabilities.astype(jnp.float32)))
        )
    )(jnp.asarray(scores), jnp.asarray(weight, jnp.float32))
    np.testing.assert_allclose(per_row, gradient, rtol=1e-2, atol=1e-3)

    def exact(s):
        p = np.exp(s - s.max(-1, keepdims=True))
        return np.sum(weight * p / p.sum(-1, keepdims=True))

    differences = np.zeros(scores.shape)
    for place in np.ndindex(scores.shape):
        step = np.zeros(scores.shape)
        step[place] = 1e-4
        differences[place] = (exact(scores.astype(np.float64) + step) - exact(scores.astype(np.float64) - step)) / 2e-4
    # Float16 cotangents: three digits of the largest entry.
    np.testing.assert_allclose(gradient, differences, atol=5e-3 * np.abs(differences).max())


def test_gradient_of_the_numerators_holds_the_maximum_fixed(jit):
    scores = half(2.5, -0.5, 1.5, 2)
    total = lambda s: jnp.sum(exp_table.safe_softmax_fp16(s, TABLE).numerators.astype(jnp.float32))
    np.testing.assert_array_equal(jit(jax.grad(total))(scores), softmax(scores, TABLE).numerators)


@pytest.mark.wrong_arrays
def test_what_is_refused():
    with pytest.raises(ValueError, match=r"float32.*float16 patterns"):
        exp_table.index(jnp.zeros(3))
    with pytest.raises(ValueError, match="float32"):
        exp_table.safe_softmax_fp16(jnp.zeros(3), TABLE)
    with pytest.raises(ValueError, match="at least one score"):
        exp_table.safe_softmax_fp16(jnp.zeros((4, 0), jnp.float16), TABLE)
