import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.formats.patterns import BFLOAT16, FLOAT16, FLOAT32, to_bits
from jaxspec.formats.split import SplitTensor, draft_values, join_tensor, split_tensor

PATTERNS = np.arange(1 << 16, dtype=np.uint16)
FORMATS = [BFLOAT16, FLOAT16, FLOAT32]
CUTS = (
    [(BFLOAT16, cut) for cut in range(8)]
    + [(FLOAT16, cut) for cut in range(11)]
    + [(FLOAT32, c) for c in (0, 3, 16, 23)]
)
by_name = lambda x: x.name if hasattr(x, "name") else None

# Compiling is what these tests spend their time on.
QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
quick_split, quick_join, quick_draft = (
    jax.jit(function, compiler_options=QUICKLY) for function in (split_tensor, join_tensor, draft_values)
)


def some_patterns(number_format):
    """All patterns of 16 bits; of 32 bits, 65,536 at random and all kinds of special values."""
    if number_format.total_bits == 16:
        return PATTERNS
    special = np.array([0, 1, 0x007FFFFF, 0x7F800000, 0x7F800001, 0x7FBFFFFF, 0x7FC00000], np.uint32)
    drawn = np.random.default_rng(0).integers(1 << 32, size=1 << 16, dtype=np.uint32)
    return np.concatenate([drawn, special, special | np.uint32(1 << 31)])


def check_parts(bits, kept, cut_bits, number_format=BFLOAT16):
    """Everything that must hold of the two parts of a tensor."""
    parts = quick_split(jnp.asarray(bits.view(number_format.value_dtype)), jnp.asarray(kept), cut_bits)
    assert parts.number_format == number_format
    cut = np.asarray(cut_bits)
    joined, draft = np.asarray(quick_join(parts)), np.asarray(quick_draft(parts))
    np.testing.assert_array_equal(joined.view(number_format.bits_dtype), bits)
    np.testing.assert_array_equal(np.asarray(parts.speculation) & np.asarray(parts.verification), 0)
    np.testing.assert_array_equal(parts.speculation, np.where(kept, bits // 2**cut * 2**cut, 0))
    np.testing.assert_array_equal(draft.view(number_format.bits_dtype), parts.speculation)
    assert draft.dtype == joined.dtype == number_format.value_dtype


@pytest.mark.parametrize(("number_format", "cut_bits"), CUTS, ids=by_name)
def test_all_patterns_kept_and_pruned(number_format, cut_bits):
    bits = np.stack([some_patterns(number_format)] * 2)
    kept = np.broadcast_to([[True], [False]], bits.shape)
    check_parts(bits, kept, cut_bits, number_format)


@pytest.mark.scheme_matrix(1)
@pytest.mark.parametrize("number_format", [BFLOAT16, FLOAT16], ids=by_name)
def test_all_patterns_at_mixed_places_and_widths_under_jit(number_format):
    rng = np.random.default_rng(3)
    bits = rng.permutation(PATTERNS).reshape(16, -1)
    kept = rng.random(bits.shape) < 0.6
    cut = rng.integers(number_format.mantissa_bits + 1, size=(16, 1))
    values = jnp.asarray(bits.view(number_format.value_dtype))
    parts = jax.jit(split_tensor)(values, jnp.asarray(kept), jnp.asarray(cut))
    np.testing.assert_array_equal(to_bits(jax.jit(join_tensor)(parts)), bits)
    check_parts(bits, kept, jnp.asarray(cut), number_format)
    by_row = jax.vmap(split_tensor)(values, jnp.asarray(kept), jnp.asarray(cut[:, 0]))
    assert jax.tree.structure(by_row) == jax.tree.structure(parts)
    jax.tree.map(np.testing.assert_array_equal, by_row, parts)


def test_by_hand():
    # 1.1015625 = 0x3F8D, three bits cut: 0x3F88 and 0x5. A signalling NaN (0xFF81) is pruned whole; -0 (0x8000) has no
    # low bits.
    bits = np.array([0x3F8D, 0xFF81, 0x8000], np.uint16)
    parts = split_tensor(jnp.asarray(bits.view(ml_dtypes.bfloat16)), jnp.asarray([True, False, True]), 3)
    assert np.asarray(parts.speculation).tolist() == [0x3F88, 0, 0x8000]
    assert np.asarray(parts.verification).tolist() == [0x5, 0xFF81, 0]
    assert to_bits(join_tensor(parts)).tolist() == bits.tolist()


def test_the_same_patterns_in_another_format_are_another_tensor():
    # 0x3F8D is 1.1015625 in bfloat16, and in float16 2^0 (1 + 909/1024).
    bits = jnp.array([0x3F8D], jnp.uint16)
    read = lambda number_format: SplitTensor(jnp.array([True]), bits & 0xFFF8, bits & 7, number_format=number_format)
    assert float(join_tensor(read(BFLOAT16))[0]) == 1.1015625
    assert float(join_tensor(read(FLOAT16))[0]) == 1 + 909 / 1024
    assert jax.tree.structure(read(BFLOAT16)) != jax.tree.structure(read(FLOAT16))


@pytest.mark.parametrize("number_format", FORMATS, ids=by_name)
def test_known_cuts_out_of_range_are_refused(number_format):
    with pytest.raises(ValueError, match="mantissa bits"):
        split_tensor(jnp.ones(3, number_format.value_dtype), jnp.ones(3, bool), number_format.mantissa_bits + 1)


@pytest.mark.wrong_arrays
def test_integers_are_refused():
    with pytest.raises(ValueError, match="int8 has none"):
        split_tensor(jnp.ones(3, jnp.int8), jnp.ones(3, bool), 2)


@pytest.mark.scheme_matrix
@settings(max_examples=8)
@given(
    shape=st.sampled_from([(), (0,), (1,), (7,), (0, 3), (1, 1), (3, 5), (2, 1, 9)]),
    number_format=st.sampled_from(FORMATS),
    cut_bits=st.integers(0, 7),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_shape(shape, number_format, cut_bits, seed):
    rng = np.random.default_rng(seed)
    bits = rng.integers(1 << number_format.total_bits, size=shape, dtype=number_format.bits_dtype)
    check_parts(np.asarray(bits), rng.random(shape) < 0.5, cut_bits, number_format)


def test_no_gradient_passes_the_patterns(jit):
    gradient = jit(jax.grad(lambda x: jnp.sum(draft_values(split_tensor(x, x > 0, 3)))))
    np.testing.assert_array_equal(gradient(jnp.array([1.3, -0.7, 1e-40])), np.zeros(3))
