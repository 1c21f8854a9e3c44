import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.formats import bit_slices

VALUES = np.arange(-128, 128, dtype=np.int8)
weights = VALUES.astype(int)
READINGS = ("truncation", "rounding", "augmentation")

by_width = pytest.mark.parametrize("draft_bits", [2, 3, 4, 5, 6])

encode = jax.jit(bit_slices.encode, static_argnames="group_size")
decode = jax.jit(bit_slices.decode)
split = jax.jit(bit_slices.split, static_argnames="draft_bits")
join = jax.jit(bit_slices.join)
read_draft = jax.jit(bit_slices.read_draft, static_argnames=("reading", "draft_bits"))
mean_squared_error = jax.jit(bit_slices.mean_squared_error, static_argnames="reading")


def draft_errors(reading, draft_bits):
    """Weight minus what the draft takes it for, of all 256 weights."""
    result = read_draft(jnp.asarray(VALUES), reading, draft_bits=draft_bits)
    assert result.dtype == jnp.int16
    return weights - np.asarray(result, int)


def test_by_hand():
    # -83 = 16 · (-6) + 13.
    slices = split(jnp.asarray([-83], jnp.int8))
    assert (slices.msb.tolist(), slices.lsb.tolist()) == ([-6], [13])


@pytest.mark.scheme_matrix(3)
@by_width
def test_slices_are_the_quotient_and_the_remainder_and_join_again(draft_bits):
    slices = split(jnp.asarray(VALUES), draft_bits=draft_bits)
    size = 2 ** (8 - draft_bits)
    assert (slices.msb.dtype, slices.lsb.dtype) == (jnp.int8, jnp.uint8)
    np.testing.assert_array_equal(slices.msb, weights // size)
    np.testing.assert_array_equal(slices.lsb, weights % size)
    # All patterns of either slice occur: no bit is stored in vain.
    assert (slices.msb.min(), slices.msb.max()) == (-(2 ** (draft_bits - 1)), 2 ** (draft_bits - 1) - 1)
    assert (slices.lsb.min(), slices.lsb.max()) == (0, size - 1)
    joined = join(slices)
    assert joined.dtype == jnp.int8
    np.testing.assert_array_equal(joined, VALUES)


@by_width
def test_error_ranges_of_all_weights(draft_bits):
    size = 2 ** (8 - draft_bits)
    cut, rounded, augmented = (draft_errors(reading, draft_bits) for reading in READINGS)
    assert (cut.min(), cut.max()) == (0, size - 1)
    assert (augmented.min(), augmented.max()) == (-size // 2, size // 2 - 1)
    # Rounding has the augmented range where the slice is wide enough, and the cut one above.
    held = weights >= 128 - size // 2
    assert (rounded[~held].min(), rounded[~held].max()) == (-size // 2, size // 2 - 1)
    assert (rounded[held].min(), rounded[held].max()) == (size // 2, size - 1)


@pytest.mark.scheme_matrix
def test_augmentation_errs_a_quarter_of_truncation():
    # By hand at 4 bits: 15 · 31 / 6 = 77.5 against (256 + 2) / 12 = 21.5.
    assert float(mean_squared_error(jnp.float32(4), "truncation")) == 77.5
    assert float(mean_squared_error(jnp.float32(4))) == 21.5
    widths = jnp.linspace(2, 6, 9)
    ratio = mean_squared_error(widths, "truncation") / mean_squared_error(widths)
    assert np.all((ratio > 7 / 3 - 0.01) & (ratio < 4))
    # More bits, less error.
    for reading in READINGS:
        assert np.all(np.diff(mean_squared_error(widths, reading)) < 0)


def test_encoding_by_hand():
    # Largest magnitude 2.54: scale 0.02, in float16 0x251F = 0.0200043. 1.0 / 0.02 = 50; 0.009 / 0.02 = 0.45 -> 0;
    # 0.011 / 0.02 = 0.55 -> 1. Decoding multiplies with the stored scale.
    x = np.zeros((1, 32), np.float32)
    x[0, :4] = [1.0, -2.54, 0.009, 0.011]
    groups = encode(jnp.asarray(x))
    assert np.asarray(groups.values)[0, :5].tolist() == [50, -127, 0, 1, 0]
    assert np.asarray(groups.scales).view(np.uint16).tolist() == [[0x251F]]
    np.testing.assert_allclose(decode(groups)[0, :2], [50 * 0.0200043, -127 * 0.0200043], rtol=1e-5)


def test_gradients(check_gradient):
    tree = {"n": jnp.array([41.0, 3.5, 8.0]), "b": jnp.array([2.0, 4.0, 5.7])}

    def total(t):
        sizes = bit_slices.expected_bits(t["n"], t["b"])
        errors = [bit_slices.mean_squared_error(t["b"], reading) for reading in READINGS]
        return jnp.sum(sizes.draft - 0.3 * sizes.target) + sum(jnp.sum(e) * k for e, k in zip(errors, (0.1, 1.0, -2.0)))

    check_gradient(total, tree)
