import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.formats import bitmap

pytestmark = pytest.mark.scheme_matrix

any_mask = {
    "shape": st.sampled_from([(0,), (1,), (7,), (8,), (13,), (0, 3), (3, 0), (2, 9), (2, 0, 5), (2, 3, 17)]),
    "density": st.sampled_from([0.0, 0.3, 0.6, 1.0]),
    "seed": st.integers(0, 2**32 - 1),
}


def random_mask(shape, density, seed):
    return np.random.default_rng(seed).random(shape) < density


def rows_of(array):
    """All rows, with their leading index."""
    return [(lead, array[lead]) for lead in np.ndindex(array.shape[:-1])]


def test_bitmap_by_hand():
    # 1011 0001 and 1, padded: 0xB1, 0x80.
    mask = jnp.array([1, 0, 1, 1, 0, 0, 0, 1, 1], bool)
    assert np.asarray(bitmap.pack(mask)).tolist() == [0xB1, 0x80]
    np.testing.assert_array_equal(bitmap.unpack(jnp.array([0xB1, 0x80], jnp.uint8), length=9), mask)


@settings(max_examples=12)
@given(**any_mask)
def test_bitmap_of_any_shape(shape, density, seed):
    mask = random_mask(shape, density, seed)
    packed = np.asarray(jax.jit(bitmap.pack)(mask))
    assert packed.shape == (*shape[:-1], math.ceil(shape[-1] / 8))
    assert packed.dtype == jnp.uint8
    for lead, row in rows_of(mask):
        text = "".join("01"[int(kept)] for kept in row)
        assert "".join(f"{byte:08b}" for byte in packed[lead].tolist()) == text.ljust(-(-len(text) // 8) * 8, "0")
    unpack = jax.jit(bitmap.unpack, static_argnames="length")
    np.testing.assert_array_equal(unpack(packed, length=shape[-1]), mask)
    assert 8 * packed.size == bitmap.num_bits(shape)


@settings(max_examples=16)
@given(**any_mask, capacity=st.sampled_from([0, 6, 20]), dtype=st.sampled_from([np.uint16, np.float32]))
def test_sparse_values_of_any_shape(shape, density, seed, capacity, dtype):
    mask = random_mask(shape, density, seed)
    values = np.random.default_rng(seed + 1).integers(1, 120, shape).astype(dtype)
    sparse = jax.device_get(jax.jit(bitmap.sparsify, static_argnames="capacity")(values, mask, capacity=capacity))
    back = np.asarray(jax.jit(bitmap.desparsify)(sparse.values, mask, fill=3))
    assert sparse.values.shape == (*shape[:-1], capacity)
    assert sparse.values.dtype == back.dtype == dtype
    for lead, row in rows_of(mask):
        kept = values[lead][row]
        assert sparse.num_kept[lead] == len(kept)
        stored = [*kept[:capacity].tolist(), *[0] * (capacity - len(kept))]
        assert sparse.values[lead].tolist() == stored
        # Only the first `capacity` kept values come back.
        here = row & (np.cumsum(row) <= capacity)
        np.testing.assert_array_equal(back[lead], np.where(here, values[lead], dtype(3)))


def test_patterns_survive_bit_for_bit():
    # All 16-bit patterns, and float32 NaNs with payloads, one of them signalling.
    mask = jnp.asarray(np.random.default_rng(1).random(1 << 16) < 0.7)
    # The mask is an argument: the compiler would fold the running sum of a constant, which takes it seconds.
    there_and_back = jax.jit(lambda v, m: bitmap.desparsify(bitmap.sparsify(v, m, capacity=50_000).values, m))
    patterns = np.random.default_rng(0).permutation(1 << 16).astype(np.uint16)
    np.testing.assert_array_equal(there_and_back(jnp.asarray(patterns), mask), np.where(mask, patterns, 0))
    floats = (patterns.astype(np.uint32) << 16 | 0x1234).view(np.float32)
    back = np.asarray(there_and_back(jnp.asarray(floats), mask)).view(np.uint32)
    np.testing.assert_array_equal(back, np.where(mask, floats.view(np.uint32), 0))


def test_bits_by_hand():
    # Two rows of 13 values: 2 bytes each. With blocks of 5, three offsets per row, each able to hold 13: 4 bits.
    assert bitmap.num_bits((2, 13)) == 2 * 16
    assert bitmap.num_bits((2, 13), block_size=5) == 2 * (16 + 3 * 4)
    assert bitmap.num_bits((2, 13), block_size=5, offset_bits=10) == 2 * (16 + 3 * 10)
    assert bitmap.num_bits((15,), block_size=15) == 16 + 4
    assert bitmap.num_bits((16,), block_size=15) == 16 + 2 * 5
    assert bitmap.num_bits((0, 13)) == bitmap.num_bits((4, 0)) == 0


def test_expected_bits_are_those_of_a_tensor_that_is_stored():
    # 4096 values per row, of which exactly 0.375 are pruned, 5.25 bits each; offsets of 16 bits every 64 values.
    kept_bits, rows, length = 5.25, 3, 4096
    stored = bitmap.num_bits((rows, length), block_size=64, offset_bits=16) + rows * length * 0.625 * kept_bits
    expected = bitmap.expected_bits(jnp.float32(0.375), kept_bits, block_size=64, offset_bits=16)
    np.testing.assert_allclose(expected, stored / (rows * length), rtol=1e-6)
    # Without offsets: the bitmap alone, the bitmap and all values.
    np.testing.assert_allclose(bitmap.expected_bits(jnp.array([1.0, 0.0]), kept_bits), [1.0, 6.25], rtol=1e-6)


def test_gradient_of_expected_bits(check_gradient):
    at = {"prune": jnp.array([0.0, 0.4, 1.0]), "bits": jnp.array([3.0, 5.1, 16.0])}
    weights = jnp.array([1.0, -0.3, 2.0])
    function = lambda x: jnp.sum(weights * bitmap.expected_bits(x["prune"], x["bits"], block_size=7) ** 2)
    check_gradient(function, at, side={"prune": jnp.array([1, 0, -1]), "bits": jnp.zeros(3)})
