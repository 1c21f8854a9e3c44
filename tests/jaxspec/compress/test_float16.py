"""Networks stored in float16: their KV cache, the bits it takes, and how much can be cut."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.compress.kv import round_kv_to_float16, rounded_kv
from jaxspec.compress.schemes import SCHEMES
from jaxspec.compress.schemes.huffman import gaussian_patterns
from jaxspec.formats.patterns import BFLOAT16, FLOAT16
from jaxspec.models import DecoderConfig

LAYERS, BATCH, HEADS, DIM, SLOTS = 2, 3, 2, 5, 7
SCHEME = SCHEMES["cassandra1"].of_dtype("float16")
SHAPE = DecoderConfig(
    vocab_size=31,
    hidden_size=10,
    intermediate_size=12,
    num_layers=LAYERS,
    num_heads=2,
    num_kv_heads=HEADS,
    head_dim=DIM + 1,
)

every_scheme = pytest.mark.parametrize("scheme", SCHEMES.values(), ids=lambda scheme: scheme.name)


def test_the_targets_codec_rounds_to_float16_also_where_a_program_undoes_it():
    # From subnormal numbers of float16, over ties, to what is beyond its largest, of either sign.
    rng = np.random.default_rng(3)
    x = (rng.standard_normal(4000) * 2.0 ** rng.integers(-26, 18, 4000)).astype(np.float32)
    x = np.concatenate([x, np.float32([65519.9, -65520.0, 1 + 2**-11, 1 + 3 * 2**-11, 2**-24, 2**-25, -0.0])])
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16).astype(np.float32)
    found = jax.jit(round_kv_to_float16)(jnp.asarray(x))
    assert found.dtype == jnp.float32
    np.testing.assert_array_equal(np.asarray(found).view(np.uint32), expected.view(np.uint32))
    assert (expected != np.asarray(rounded_kv(SHAPE)(jnp.asarray(x)))).mean() > 0.5


@pytest.mark.scheme_matrix
def test_soft_weights_tend_to_hard_ones_beyond_seven_cut_bits():
    matrix = jax.random.normal(jax.random.key(6), (6, 16)).astype(jnp.float16)
    for cut in (8.3, 9.8, 10.0):
        knobs = {"weight_prune": jnp.asarray(0.0), "weight_cut_bits": jnp.asarray(cut)}
        hard = jax.jit(lambda knobs: SCHEME.matrix.hard(matrix, jnp.ones(16), knobs))(knobs)
        soft = jax.jit(lambda knobs: SCHEME.matrix.soft(matrix, jnp.ones(16), knobs, 1e-4))(knobs)
        stored = np.asarray(matrix).view(np.uint16)
        np.testing.assert_array_equal(np.asarray(hard.values).view(np.uint16), stored >> round(cut) << round(cut))
        np.testing.assert_allclose(soft.values, np.asarray(hard.values, np.float32), rtol=1e-4)
        np.testing.assert_allclose(soft.bits, hard.bits, rtol=1e-4)


@every_scheme
def test_as_many_bits_can_be_cut_as_a_mantissa_has(scheme):
    for own, other in zip(scheme.knob_specs, scheme.of_dtype("float16").knob_specs, strict=True):
        in_blocks = scheme.facts.shared_exponents is not None and own.per != "head"
        if own.cut_of is None or in_blocks:
            assert own == other
            continue
        assert (own.cut_of, own.high) == ("bfloat16", BFLOAT16.mantissa_bits)
        assert (other.cut_of, other.high) == ("float16", FLOAT16.mantissa_bits)
        # The grid's drafts keep as many mantissa bits.
        assert [7 - cut for cut in own.grid] == [10 - cut for cut in other.grid]
        assert (own.low, own.default) == (other.low, other.default)


@pytest.mark.scheme_matrix
def test_expected_bits_are_those_of_float16_values():
    patterns = np.asarray(gaussian_patterns(FLOAT16))
    counts = np.sort(np.unique(patterns >> 10 & 0x1F, return_counts=True)[1])[::-1]
    code = (counts @ np.arange(1, len(counts) + 1) + 8 * len(counts)) / patterns.size
    found = SCHEME.expected_footprint(
        {"weight_prune": 0.0, "weight_cut_bits": 9.0, "kv_prune": 0.0, "kv_cut_bits": 3.0}
    )
    assert float(found.draft_weight_bits["q"]) == pytest.approx(1 + code + 1, rel=1e-5)
    assert float(found.draft_kv_bits) == pytest.approx(1 + code + 7, rel=1e-5)
    assert float(found.target_weight_bits["q"]) == float(found.target_kv_bits) == pytest.approx(1 + code + 10, rel=1e-5)
