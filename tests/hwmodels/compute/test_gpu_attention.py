import math

import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels.compute.gpu_attention import (
    GpuAttention,
    attention_parts,
    block_time,
    decode_attention_time,
)

UNIT = GpuAttention(
    bandwidth_bytes_per_s=2e12,
    launch_s=9e-6,
    depth_s=0.7e-6,
    memory_efficiency=0.8,
    ramp=0.9,
    ramp_s=2e-5,
    pair_s=3e-8,
    cache_bytes=4e7,
    cache_speed=1.0,
    cache_sharpness=6.0,
)
CACHED = UNIT.replace(cache_speed=3.0)
BLOCKS = CACHED.replace(block_byte_s=7.5e-11, split_pairs=45.0, multiprocessors=100.0)
SHAPE = {"batch": 3.0, "context_tokens": 1000.0, "num_kv_heads": 8.0, "head_dim": 120.0}


def test_by_hand():
    # 2 · 3 · 1000 · 8 · 120 elements of 2 bytes = 11.52 MB, at 1.6e12 bytes/s 7.2 µs; 1 + 0.9 / (1 + 7.2 / 20) of that.
    expected = 9e-6 + 0.7e-6 * math.log2(1 + 1000 / 64) + 24 * 3e-8 + 7.2e-6 * (1 + 0.9 / 1.36)
    assert float(decode_attention_time(UNIT, **SHAPE)) == pytest.approx(expected, rel=1e-6)
    # Half the bits are half the bytes.
    half = decode_attention_time(UNIT, **(SHAPE | {"head_dim": 60.0}))
    assert float(decode_attention_time(UNIT, kv_bits=8.0, **SHAPE)) == pytest.approx(float(half))


@pytest.mark.device_matrix
def test_gradient(check_gradient):
    for unit in (CACHED, BLOCKS):
        check_gradient(lambda tree: decode_attention_time(tree[0], **tree[1]), (unit, SHAPE))


def test_pairs_fill_multiprocessors_in_rounds():
    seconds = lambda pairs, **more: float(block_time(BLOCKS.replace(**more), 1e9, pairs))
    # 100 multiprocessors, each a byte in 75 ps, take 0.75 ms for 1 GB where none idles: cut contexts, or whole rounds.
    assert seconds(200.0, split_pairs=0.0) == pytest.approx(7.5e-4, rel=1e-5)
    assert seconds(30.0, split_pairs=1e6) == pytest.approx(7.5e-4, rel=1e-5)
    assert seconds(2.0, split_pairs=1e20) == pytest.approx(7.5e-4, rel=1e-5)  # its eighth power was infinite
    # One and a half rounds are 1.9275: 2 but for u = w = 1/2 of the smooth count at temperature 0.05.
    one_round = 7.5e-11 * 1e9 / 150
    rise, bend = 0.25 / 0.2525, 0.5 / 0.55
    whole = 2.0 - 0.5 * (1.0 - 0.95 * rise * bend)
    assert seconds(150.0, split_pairs=0.0) == pytest.approx(whole * one_round, rel=1e-5)
    # As many pairs as `split_pairs`: half of the contexts are cut.
    assert seconds(150.0, split_pairs=150.0) == pytest.approx(0.5 * (whole + 1.5) * one_round, rel=1e-5)
    # Twice the pairs with half the context each, as 16 x 32768 and 32 x 16384 tokens: fewer idle in the last round.
    assert seconds(128.0, split_pairs=0.0) > 1.25 * seconds(256.0, split_pairs=0.0)
    assert float(block_time(BLOCKS, 0.0, 0.0)) == 0.0


@pytest.mark.device_matrix
def test_a_step_reads_its_cache_from_memory():
    moved, context, bits = jnp.array([1e6, 2e7, 1e9]), jnp.full(3, 500.0), jnp.full(3, 16.0)
    _, stream = attention_parts(
        [CACHED.replace(cache_speed=8.0, ramp=0.0)], (16.0,), moved, moved / 2, context, jnp.full(3, 8.0), bits
    )
    assert np.all(np.asarray(stream) >= np.asarray(moved) / 2e12 * (1 - 1e-6))


@pytest.mark.device_matrix
def test_kernels_of_eight_bits_count_where_they_are_faster():
    slow = UNIT.replace(launch_s=8e-5)
    moved, context = jnp.full(4, 1e8), jnp.full(4, 900.0)
    bits = jnp.array([16.0, 12.0, 8.0, 4.0])
    sums = lambda units: sum(
        attention_parts(units, (8.0, 16.0), moved * bits / 16.0, moved / 2, context, jnp.full(4, 8.0), bits)
    )
    faster, slower = np.asarray(sums([UNIT, UNIT])), np.asarray(sums([slow, UNIT]))
    assert np.all(np.diff(faster) < 0)
    # The slow kernel is never taken: keys and values stay at 16 bits until its bytes are so few that it pays.
    assert np.all(np.diff(slower) <= 0)
    assert slower[0] == pytest.approx(faster[0])
    assert slower[2] == pytest.approx(slower[0])
