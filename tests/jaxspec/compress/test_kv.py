import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from jaxspec.compress.knobs import Knobs
from jaxspec.compress.kv import compress_cache, prepare_kv, round_kv
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1, CASSANDRA1_CODED
from jaxspec.models.kv_cache import KVCache
from jaxspec.testing.schemes import hard_kv, soft_kv

LAYERS, BATCH, HEADS, DIM, SLOTS = 2, 3, 2, 5, 7
COLUMNS = HEADS * DIM


def kv_knobs(prune, cut_bits, dtype=jnp.float32, scheme=CASSANDRA1):
    values = {
        "weight_prune": jnp.zeros((LAYERS, 7), dtype),
        "weight_cut_bits": jnp.zeros((LAYERS, 7), dtype),
        "kv_prune": jnp.asarray(prune, dtype),
        "kv_cut_bits": jnp.asarray(cut_bits, dtype),
    }
    return Knobs(values=values, draft_length_logits=jnp.zeros(3, dtype), scheme=scheme)


def random_cache(seed, draw=None):
    """Keys and values that bfloat16 holds."""
    rng = np.random.default_rng(seed)
    draw = draw or rng.standard_normal
    stored = lambda shape: jnp.asarray(np.asarray(draw(size=shape)).astype(ml_dtypes.bfloat16).astype(np.float32))
    return KVCache(
        key=jnp.stack([stored((BATCH, HEADS, DIM, SLOTS)) for _ in range(LAYERS)]),
        value=jnp.stack([stored((BATCH, HEADS, SLOTS, DIM)) for _ in range(LAYERS)]),
    )


def token_rows(cache):
    """Keys and values of each token as rows, by loops: "layer part batch slot column"."""
    rows = np.zeros((LAYERS, 2, BATCH, SLOTS, COLUMNS), np.float32)
    for layer, part, batch, slot, head in np.ndindex(LAYERS, 2, BATCH, SLOTS, HEADS):
        source = cache.value[layer][batch, head, slot] if part else cache.key[layer][batch, head, :, slot]
        rows[layer, part, batch, slot, head * DIM : (head + 1) * DIM] = source
    return rows


def assert_same(left, right):
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b), left, right)


@pytest.fixture(scope="module")
def prepare():
    return jax.jit(lambda cache, knobs: hard_kv(prepare_kv(CASSANDRA1, cache), knobs).cache)


@pytest.fixture(scope="module")
def compress():
    return jax.jit(compress_cache)


KNOBS = [
    kv_knobs([0.0, 0.0], [0.0, 7.0]),
    kv_knobs([0.3, 0.72], [4.0, 1.0]),
    kv_knobs([0.93, 0.11], [2.0, 5.0]),
    kv_knobs([0.5, 0.0], [0.0, 3.0]),
]


@pytest.mark.scheme_matrix(3)
@pytest.mark.parametrize("knobs", KNOBS)
def test_hard_kv_by_loops(prepare, knobs):
    cache = random_cache(1)
    result = token_rows(prepare(cache, knobs))
    rows = token_rows(cache)
    for index in np.ndindex(rows.shape[:-1]):
        layer, row = index[0], rows[index]
        cut, pruned = int(knobs.values["kv_cut_bits"][layer]), round(float(knobs.values["kv_prune"][layer]) * COLUMNS)
        kept = np.argsort(np.argsort(np.abs(row), kind="stable")) >= pruned
        bits = row.astype(ml_dtypes.bfloat16).view(np.uint16) >> cut << cut
        np.testing.assert_array_equal(
            result[index], np.where(kept, bits.view(ml_dtypes.bfloat16), 0).astype(np.float32)
        )


@pytest.mark.parametrize("knobs", KNOBS)
@pytest.mark.parametrize("kind", ["normal", "few values", "zeros"])
def test_compression_in_the_loop_is_the_prepared_one(prepare, compress, knobs, kind):
    rng = np.random.default_rng(2)
    draws = {
        "normal": rng.standard_normal,
        # Ties within a token, of either sign, and zeros of either sign.
        "few values": lambda size: rng.choice([-2.0, -1.0, -0.0, 0.0, 1.0, 1.0078125, 2.0], size=size),
        "zeros": np.zeros,
    }
    draw = draws[kind] if kind != "zeros" else lambda size: np.zeros(size)
    cache = random_cache(3, draw)
    assert_same(compress(cache, knobs), prepare(cache, knobs))


@pytest.mark.scheme_matrix
@pytest.mark.parametrize("scheme", [CASSANDRA1, CASSANDRA1_CODED], ids=lambda scheme: scheme.name)
def test_soft_kv_tends_to_the_hard_one(scheme):
    # Some magnitudes several times within a token, as among values of 8 significant bits.
    rng = np.random.default_rng(5)
    magnitudes = np.array([1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0])

    def draw(size):
        rows = np.stack([rng.choice(magnitudes, COLUMNS) for _ in range(int(np.prod(size)) // COLUMNS)])
        rows = (rows * rng.choice([-1, 1], rows.shape)).reshape(BATCH, SLOTS, HEADS, DIM)
        return rows.transpose(0, 2, 3, 1) if size[-1] == SLOTS else rows.transpose(0, 2, 1, 3)

    cache = random_cache(6, draw)
    kv = prepare_kv(CASSANDRA1, cache)
    hardly, softly = jax.jit(hard_kv), jax.jit(soft_kv)
    for prune, cut_bits in (([0.28, 0.71], [3.8, 1.2]), ([0.0, 0.92], [0.0, 6.7])):
        knobs = kv_knobs(prune, cut_bits, scheme=scheme)
        hard, hard_bits = hardly(kv, knobs)
        gaps = []
        for temperature in (0.3, 1e-4):
            soft, soft_bits = softly(kv, knobs, temperature)
            gap = lambda a, b: max(jax.tree.leaves(jax.tree.map(lambda x, y: float(np.max(np.abs(x - y))), a, b)))
            gaps.append((gap(soft, hard), gap(soft_bits, hard_bits)))
        assert gaps[-1][0] < 1e-5 < 0.1 < gaps[0][0]
        assert gaps[-1][1] < 1e-4 < 0.1 < gaps[0][1]


@pytest.mark.scheme_matrix(1)
@pytest.mark.parametrize("temperature", [None, 0.3])
def test_bits_are_about_the_sequences_that_count(temperature):
    rows = prepare_kv(CASSANDRA1, random_cache(9)).rows[0]
    knobs = {"kv_prune": jnp.asarray(0.31), "kv_cut_bits": jnp.asarray(2.4)}
    way = CASSANDRA1.kv.hard if temperature is None else lambda rows, knobs, c: CASSANDRA1.kv.soft(rows, knobs, 0.3, c)
    compress = jax.jit(way)
    found, alone = compress(rows, knobs, jnp.array([1.0, 1.0, 0.0])), compress(rows[:, :2], knobs, None)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6), found.bits, alone.bits)
    assert_same(found.rows[:, :2], alone.rows)


@pytest.mark.scheme_matrix
def test_bits_per_element_by_hand():
    # All magnitudes in [1, 2): one exponent, whose codes take 1 bit and whose codebook 8 bits of all kept elements of a layer.
    rng = np.random.default_rng(7)
    cache = random_cache(8, lambda size: rng.uniform(1.0, 1.99, size))
    elements = 2 * BATCH * SLOTS * COLUMNS
    bits = hard_kv(prepare_kv(CASSANDRA1, cache), kv_knobs([0.3, 0.0], [4.0, 1.0])).footprint
    # Layer 0: bitmap 1, 7 of 10 kept at 1 + 1 + 3 bits; layer 1: no bitmap, all kept at 1 + 1 + 6.
    np.testing.assert_allclose(bits.draft_kv_bits, [1 + 0.7 * 5 + 8 / elements, 8 + 8 / elements], rtol=1e-5)
    np.testing.assert_allclose(
        bits.target_kv_bits, [1 + 0.7 * 9 + 0.3 * 16 + 8 / elements, 9 + 8 / elements], rtol=1e-5
    )


def test_the_targets_own_codec_rounds_to_nearest_bfloat16_and_keeps_the_type():
    x = jnp.array([1.0, 1.00390625, 1.0117188, -3.1415927])
    np.testing.assert_array_equal(round_kv(x), np.asarray(x).astype(ml_dtypes.bfloat16).astype(np.float32))
    assert round_kv(x).dtype == x.dtype


@pytest.mark.scheme_matrix
def test_gradient(check_gradient):
    cache = random_cache(9)
    kv = prepare_kv(CASSANDRA1, cache)
    rng = np.random.default_rng(10)
    weight = jax.tree.map(lambda x: jnp.asarray(rng.standard_normal(x.shape)), cache)

    def scalar(x):
        compressed, bits = soft_kv(kv, kv_knobs(x["prune"], x["cut"], jnp.float64), 0.2)
        total = jax.tree.map(lambda a, w: jnp.sum(a * w), compressed, weight)
        return (
            jnp.sum(jnp.stack(jax.tree.leaves(total))) + jnp.sum(bits.draft_kv_bits) - 2 * jnp.sum(bits.target_kv_bits)
        )

    check_gradient(scalar, {"prune": jnp.array([0.33, 0.81]), "cut": jnp.array([2.3, 5.6])})
    side = {"prune": jnp.array([1, -1]), "cut": jnp.array([1, -1])}
    check_gradient(scalar, {"prune": jnp.array([0.0, 0.9]), "cut": jnp.array([0.0, 7.0])}, side=side)
