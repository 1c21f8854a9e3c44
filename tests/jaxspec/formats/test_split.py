import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.formats.bfloat16 import to_bits
from jaxspec.formats.split import draft_values, join_tensor, split_tensor

PATTERNS = np.arange(1 << 16, dtype=np.uint16)


def check_parts(bits, kept, cut_bits):
    """Everything that must hold of the two parts of a tensor."""
    parts = split_tensor(jnp.asarray(bits.view(ml_dtypes.bfloat16)), jnp.asarray(kept), cut_bits)
    cut = np.asarray(cut_bits)
    np.testing.assert_array_equal(to_bits(join_tensor(parts)), bits)
    np.testing.assert_array_equal(np.asarray(parts.speculation) & np.asarray(parts.verification), 0)
    np.testing.assert_array_equal(parts.speculation, np.where(kept, bits // 2**cut * 2**cut, 0))
    np.testing.assert_array_equal(to_bits(draft_values(parts)), parts.speculation)


@pytest.mark.parametrize("cut_bits", range(8))
def test_all_patterns_kept_and_pruned(cut_bits):
    bits = np.stack([PATTERNS, PATTERNS])
    kept = np.broadcast_to([[True], [False]], bits.shape)
    check_parts(bits, kept, cut_bits)


def test_all_patterns_at_mixed_places_and_widths_under_jit():
    rng = np.random.default_rng(3)
    bits = rng.permutation(PATTERNS).reshape(16, -1)
    kept = rng.random(bits.shape) < 0.6
    cut = rng.integers(8, size=(16, 1))
    parts = jax.jit(split_tensor)(jnp.asarray(bits.view(ml_dtypes.bfloat16)), jnp.asarray(kept), jnp.asarray(cut))
    np.testing.assert_array_equal(to_bits(jax.jit(join_tensor)(parts)), bits)
    check_parts(bits, kept, jnp.asarray(cut))


def test_by_hand():
    # 1.1015625 = 0x3F8D, three bits cut: 0x3F88 and 0x5. A signalling NaN (0xFF81) is pruned whole; -0 (0x8000) has no
    # low bits.
    bits = np.array([0x3F8D, 0xFF81, 0x8000], np.uint16)
    parts = split_tensor(jnp.asarray(bits.view(ml_dtypes.bfloat16)), jnp.asarray([True, False, True]), 3)
    assert np.asarray(parts.speculation).tolist() == [0x3F88, 0, 0x8000]
    assert np.asarray(parts.verification).tolist() == [0x5, 0xFF81, 0]
    assert to_bits(join_tensor(parts)).tolist() == bits.tolist()


@settings(max_examples=12)
@given(
    shape=st.sampled_from([(), (0,), (1,), (7,), (0, 3), (1, 1), (3, 5), (2, 1, 9)]),
    cut_bits=st.integers(0, 7),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_shape(shape, cut_bits, seed):
    rng = np.random.default_rng(seed)
    bits = rng.integers(1 << 16, size=shape, dtype=np.uint16)
    check_parts(np.asarray(bits), rng.random(shape) < 0.5, cut_bits)
