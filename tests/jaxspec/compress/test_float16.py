"""Networks stored in float16: their KV cache, the bits it takes, and how much can be cut."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.compress.knobs import Knobs, check_knobs, uniform_knobs
from jaxspec.compress.kv import compress_cache, prepare_kv, round_kv_to_float16, rounded_kv, stored_kv
from jaxspec.compress.schemes import SCHEMES
from jaxspec.compress.schemes.huffman import gaussian_patterns
from jaxspec.errors import InputError
from jaxspec.formats.patterns import BFLOAT16, FLOAT16
from jaxspec.models import DecoderConfig
from jaxspec.models.kv_cache import KVCache
from jaxspec.settings.knobs import SharedExponents
from jaxspec.testing.schemes import hard_kv
from jaxspec.tuning.compression_objective import grid_points

LAYERS, BATCH, HEADS, DIM, SLOTS = 2, 3, 2, 5, 7
COLUMNS = HEADS * DIM
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
HALF = dataclasses.replace(SHAPE, stored_dtype="float16")

every_scheme = pytest.mark.parametrize("scheme", SCHEMES.values(), ids=lambda scheme: scheme.name)


def kv_knobs(prune, cut_bits):
    values = {
        "weight_prune": jnp.zeros((LAYERS, 7)),
        "weight_cut_bits": jnp.zeros((LAYERS, 7)),
        "kv_prune": jnp.asarray(prune),
        "kv_cut_bits": jnp.asarray(cut_bits),
    }
    return Knobs(values=values, draft_length_logits=jnp.zeros(3), scheme=SCHEME)


def a_cache(draw):
    stored = lambda shape: jnp.asarray(np.asarray(draw(size=shape)).astype(np.float16).astype(np.float32))
    return KVCache(key=stored((LAYERS, BATCH, HEADS, DIM, SLOTS)), value=stored((LAYERS, BATCH, HEADS, SLOTS, DIM)))


def rows_of(cache):
    """Keys and values of each token: "layer part batch slot column"."""
    key = np.asarray(cache.key).transpose(0, 1, 4, 2, 3).reshape(LAYERS, BATCH, SLOTS, COLUMNS)
    value = np.asarray(cache.value).transpose(0, 1, 3, 2, 4).reshape(LAYERS, BATCH, SLOTS, COLUMNS)
    return np.stack([key, value], axis=1)


def test_the_targets_codec_rounds_to_float16_also_where_a_program_undoes_it(jit):
    # From subnormal numbers of float16, over ties, to what is beyond its largest, of either sign.
    rng = np.random.default_rng(3)
    x = (rng.standard_normal(4000) * 2.0 ** rng.integers(-26, 18, 4000)).astype(np.float32)
    x = np.concatenate([x, np.float32([65519.9, -65520.0, 1 + 2**-11, 1 + 3 * 2**-11, 2**-24, 2**-25, -0.0])])
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16).astype(np.float32)
    found = jit(round_kv_to_float16)(jnp.asarray(x))
    assert found.dtype == jnp.float32
    np.testing.assert_array_equal(np.asarray(found).view(np.uint32), expected.view(np.uint32))
    assert (expected != np.asarray(rounded_kv(SHAPE)(jnp.asarray(x)))).mean() > 0.5


@pytest.mark.scheme_matrix
def test_which_codec_a_target_has():
    assert stored_kv(HALF) is rounded_kv(HALF) is round_kv_to_float16
    # Blocks are made of bfloat16 values, whatever the network is stored in.
    shared = [
        dataclasses.replace(each, shared_kv_exponents=SharedExponents(8, "toward_zero")) for each in (SHAPE, HALF)
    ]
    x = jax.random.normal(jax.random.key(1), (2, 3, HEADS, DIM + 1))
    np.testing.assert_array_equal(*(stored_kv(config)(x) for config in shared))
    with pytest.raises(ValueError, match="stored_dtype is 'float8'; allowed are bfloat16, float16"):
        dataclasses.replace(SHAPE, stored_dtype="float8")


@pytest.mark.scheme_matrix
def test_compressed_kv_by_loops_in_and_out_of_decoding(jit):
    # Small values too: float16 has 5 bits of exponent, so that many of them are subnormal.
    rng = np.random.default_rng(4)
    cache = a_cache(lambda size: rng.standard_normal(size) * 2.0 ** rng.integers(-22, 14, size))
    knobs = kv_knobs([0.3, 0.0], [9.0, 10.0])
    prepared = jit(lambda cache, knobs: hard_kv(prepare_kv(SCHEME, cache), knobs).cache)(cache, knobs)
    in_loop = jit(compress_cache)(cache, knobs)
    rows = rows_of(cache)
    expected = np.zeros_like(rows)
    for index in np.ndindex(rows.shape[:-1]):
        cut, pruned = ((9, 3), (10, 0))[index[0]]
        kept = np.argsort(np.argsort(np.abs(rows[index]), kind="stable")) >= pruned
        bits = rows[index].astype(np.float16).view(np.uint16) >> cut << cut
        expected[index] = np.where(kept, bits.view(np.float16), 0)
    for found in (prepared, in_loop):
        np.testing.assert_array_equal(rows_of(found), expected)


def test_bits_per_kv_element_are_those_that_are_counted():
    rng = np.random.default_rng(5)
    cache = a_cache(lambda size: rng.standard_normal(size))
    found = hard_kv(prepare_kv(SCHEME, cache), kv_knobs([0.3, 0.0], [9.0, 4.0])).footprint
    for layer, (prune, cut) in enumerate([(3, 9), (0, 4)]):
        rows = rows_of(cache)[layer].astype(np.float16).reshape(-1, COLUMNS)
        order = np.argsort(np.argsort(np.abs(rows), kind="stable"), kind="stable")
        kept = rows[order >= prune].view(np.uint16)
        # The best codes: the r-th most frequent exponent takes r bits, and 8 in the codebook.
        counts = np.sort(np.unique(kept >> 10 & 0x1F, return_counts=True)[1])[::-1]
        coded = int(counts @ np.arange(1, len(counts) + 1)) + 8 * len(counts)
        draft = (prune > 0) * rows.size + coded + kept.size * (1 + 10 - cut)
        target = draft + kept.size * cut + 16 * (rows.size - kept.size)
        np.testing.assert_allclose(found.draft_kv_bits[layer], draft / rows.size, rtol=1e-6)
        np.testing.assert_allclose(found.target_kv_bits[layer], target / rows.size, rtol=1e-6)


@pytest.mark.scheme_matrix
def test_soft_weights_tend_to_hard_ones_beyond_seven_cut_bits(jit):
    matrix = jax.random.normal(jax.random.key(6), (6, 16)).astype(jnp.float16)
    for cut in (8.3, 9.8, 10.0):
        knobs = {"weight_prune": jnp.asarray(0.0), "weight_cut_bits": jnp.asarray(cut)}
        hard = jit(lambda knobs: SCHEME.matrix.hard(matrix, jnp.ones(16), knobs))(knobs)
        soft = jit(lambda knobs: SCHEME.matrix.soft(matrix, jnp.ones(16), knobs, 1e-4))(knobs)
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


def test_knobs_range_over_what_the_network_is_stored_in():
    nine = {"weight_cut_bits": 9.0, "kv_cut_bits": 10.0}
    knobs = uniform_knobs(SCHEMES["cassandra1"], HALF, nine)
    assert knobs.scheme == SCHEME
    check_knobs(knobs, HALF)
    with pytest.raises(InputError, match="weight_cut_bits is 9; allowed is 0 to 7, the mantissa bits of bfloat16"):
        uniform_knobs(SCHEMES["cassandra1"], SHAPE, nine)
    with pytest.raises(InputError, match="kv_cut_bits is 11; allowed is 0 to 10, the mantissa bits of float16"):
        uniform_knobs(SCHEMES["cassandra1"], HALF, kv_cut_bits=11.0)
    assert {point["weight_cut_bits"] for point in grid_points(SCHEME)} == {3.0, 4.0, 5.0, 6.0, 7.0, 8.0}


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


def test_expected_bits_of_huffman_codes_are_those_of_float16_fields():
    values = np.asarray(gaussian_patterns(FLOAT16))
    entropy = 0.0
    for shift, width in ((10, 5), (5, 5), (0, 5)):
        share = np.bincount((values >> shift & 31).ravel(), minlength=1 << width) / values.size
        entropy -= float((share[share > 0] * np.log2(share[share > 0])).sum())
    found = float(SCHEMES["huffllm"].of_dtype("float16").expected_footprint({}).draft_weight_bits["q"])
    assert 1 + entropy <= found < 1 + entropy + 0.3
