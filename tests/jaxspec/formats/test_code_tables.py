import statistics
from fractions import Fraction

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.formats import code_tables
from jaxspec.formats.code_tables import FP4, INT4, IQ4_NL, NF4, CodeTable

# Falling, with equal levels (codes 2 and 3, 10 and 12), unequal gaps, and no zero.
ODD = CodeTable("odd", (9.5, 7, 3, 3, 2.25, 1.5, 1.25, 1, 0.75, -0.5, -2, -2.5, -2, -6, -11, -31))
TABLES = [INT4, FP4, NF4, IQ4_NL, ODD]

encode = jax.jit(code_tables.encode, static_argnums=1)

by_table = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)


def nearest_code(x, table):
    """By exact arithmetic: the smallest distance, then the larger level, then the lower code."""
    distance = [abs(Fraction(float(x)) - Fraction(level)) for level in table.levels]
    return min(range(16), key=lambda code: (distance[code], -table.levels[code], code))


def probes(table):
    """Levels, middles between them and the float32 neighbours of both, values between and far outside."""
    ascending = np.unique(table.levels)
    middles = ((ascending[1:] + ascending[:-1]) / 2).astype(np.float32)
    near = np.concatenate([ascending.astype(np.float32), middles])
    around = [np.nextafter(near, np.float32(side)) for side in (-np.inf, np.inf)]
    between = np.random.default_rng(4).uniform(1.3 * ascending[0], 1.3 * ascending[-1], 300)
    return np.concatenate([near, *around, between, [-0.0, 1e30, -1e30]]).astype(np.float32)


@by_table
def test_codes_are_those_of_exact_arithmetic(table):
    x = probes(table)
    expected = [nearest_code(value, table) for value in x]
    np.testing.assert_array_equal(encode(jnp.asarray(x), table), expected)


def test_by_hand():
    # IQ4_NL: 7 is as far from 1 (code 8) as from 13 (code 9), so the larger wins; 6.9 is nearer to 1. -4.5 ties between -10
    # (code 7) and 1 (code 8). Beyond the ends: codes 0 and 15.
    codes = encode(jnp.array([7.0, 6.9, -4.5, -900.0, 101.5]), IQ4_NL)
    assert np.asarray(codes).tolist() == [9, 8, 8, 0, 15]
    np.testing.assert_array_equal(code_tables.decode(codes, IQ4_NL), [13, 1, 1, -127, 113])


@pytest.mark.scheme_matrix(3)
@by_table
def test_levels_encode_to_themselves_and_never_decrease(table):
    levels = np.asarray(code_tables.levels(table))
    assert levels.dtype == np.float32
    assert levels.tolist() == list(table.levels)
    np.testing.assert_array_equal(
        code_tables.decode(encode(jnp.asarray(levels), table), table), np.float32(table.levels)
    )
    decoded = code_tables.decode(encode(jnp.asarray(np.sort(probes(table))), table), table)
    assert np.all(np.diff(decoded) >= 0)


def test_fp4_is_ml_dtypes_e2m1():
    codes = np.arange(16, dtype=np.uint8)
    peer = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    np.testing.assert_array_equal(code_tables.levels(FP4), peer)
    np.testing.assert_array_equal(np.signbit(code_tables.levels(FP4)), np.signbit(peer))
    # Away from ties and from what rounds to a zero (of which only +0 is given) the codes agree too.
    x = np.random.default_rng(2).uniform(-7.3, 7.3, 1000).astype(np.float32)
    x = x[(np.abs(x) > 0.25) & (np.mod(x, 0.25) != 0)]
    ours = encode(jnp.asarray(x), FP4)
    np.testing.assert_array_equal(ours, x.astype(ml_dtypes.float4_e2m1fn).view(np.uint8))


def test_fp4_has_no_negative_zero_and_ties_go_up():
    codes = encode(jnp.array([-0.0, -0.1, -0.25, 0.25, -2.5, 2.5]), FP4)
    # 0.25 -> 0.5 (1); -2.5 -> -2 (12); 2.5 -> 3 (5), where OCP would take the even 2.
    assert np.asarray(codes).tolist() == [0, 0, 0, 1, 12, 5]


def test_nf4_is_the_published_table_bit_for_bit():
    # Dettmers et al. 2023, appendix E.
    published = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453]
    published += [-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0]
    published += [0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224]
    published += [0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
    assert list(NF4.levels) == published


def test_nf4_is_its_definition():
    # Quantiles of N(0, 1) at even steps from the outermost probability to 1/2, in float64 and without rounding.
    outermost = ((1 - 1 / 30) + (1 - 1 / 32)) / 2
    quantile = statistics.NormalDist().inv_cdf
    positive = [quantile(outermost + (0.5 - outermost) * i / 8) for i in range(8)]
    negative = [-quantile(outermost + (0.5 - outermost) * i / 7) for i in range(7)]
    exact = np.sort([*positive, 0, *negative]) / positive[0]
    np.testing.assert_allclose(NF4.levels, exact, rtol=0, atol=3e-7)


@pytest.mark.parametrize("table", [INT4, FP4, IQ4_NL], ids=lambda table: table.name)
def test_float16_holds_the_levels(table):
    np.testing.assert_array_equal(code_tables.levels(table, dtype=jnp.float16).astype(jnp.float32), table.levels)


def test_nf4_in_float16_is_rounded_to_nearest():
    entries = code_tables.levels(NF4, dtype=jnp.float16)
    assert entries.dtype == jnp.float16
    np.testing.assert_array_equal(entries, np.array(NF4.levels).astype(np.float16))
    assert np.any(np.asarray(entries, np.float32) != np.array(NF4.levels))


def test_lookup_ignores_the_high_half_of_a_byte():
    bytes_ = jnp.asarray([0x05, 0x35, 0xF5, 0xAF], jnp.uint8)
    np.testing.assert_array_equal(code_tables.decode(bytes_, ODD), [1.5, 1.5, 1.5, -31])


@pytest.mark.scheme_matrix
@settings(max_examples=8)
@given(
    shape=st.sampled_from([(), (0,), (1,), (7,), (0, 3), (3, 5), (2, 1, 9)]),
    table=st.sampled_from(TABLES),
    dtype=st.sampled_from([jnp.float32, jnp.bfloat16, jnp.float16]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_shape_and_float(shape, table, dtype, seed):
    x = jnp.asarray(np.random.default_rng(seed).normal(0.3, 2, shape), dtype)
    codes = encode(x, table)
    assert codes.shape == shape
    assert codes.dtype == jnp.uint8
    expected = [nearest_code(value, table) for value in np.asarray(x, np.float64).reshape(-1)]
    np.testing.assert_array_equal(np.asarray(codes).reshape(-1), expected)
    assert code_tables.num_bits(codes) == 4 * len(expected)


@pytest.mark.scheme_matrix
def test_vmap_is_the_whole():
    x = jnp.asarray(np.random.default_rng(8).normal(size=(3, 11)), jnp.float32)
    batched = jax.vmap(lambda row: code_tables.encode(row, NF4))(x)
    np.testing.assert_array_equal(batched, code_tables.encode(x, NF4))


def test_expected_size_is_the_size_and_its_gradient_is_right(check_gradient):
    assert code_tables.expected_bits(jnp.float32(77)) == code_tables.num_bits(jnp.zeros((7, 11), jnp.uint8))
    gradient = check_gradient(lambda n: jnp.sum(code_tables.expected_bits(n)), jnp.array([0.0, 3.7]))
    np.testing.assert_allclose(gradient, 4)


def test_tables_that_are_none():
    with pytest.raises(ValueError, match="15 levels"):
        CodeTable("short", tuple(map(float, range(15))))
    with pytest.raises(ValueError, match="float32 does not hold"):
        CodeTable("wide", (0.1, *map(float, range(15))))
