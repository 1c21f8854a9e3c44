from fractions import Fraction

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

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


def test_nf4_is_the_published_table_bit_for_bit():
    # Dettmers et al. 2023, appendix E.
    published = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453]
    published += [-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0]
    published += [0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224]
    published += [0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
    assert list(NF4.levels) == published


def test_expected_size_is_the_size_and_its_gradient_is_right(check_gradient):
    assert code_tables.expected_bits(jnp.float32(77)) == code_tables.num_bits(jnp.zeros((7, 11), jnp.uint8))
    gradient = check_gradient(lambda n: jnp.sum(code_tables.expected_bits(n)), jnp.array([0.0, 3.7]))
    np.testing.assert_allclose(gradient, 4)
