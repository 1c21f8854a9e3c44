import math

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.compute.gpu_attention import GpuAttention, attention_parts, decode_attention_time, streaming_time

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
SHAPE = {"batch": 3.0, "context_tokens": 1000.0, "num_kv_heads": 8.0, "head_dim": 120.0}


def test_by_hand():
    # 2 · 3 · 1000 · 8 · 120 elements of 2 bytes = 11.52 MB, at 1.6e12 bytes/s 7.2 µs; 1 + 0.9 / (1 + 7.2 / 20) of that.
    expected = 9e-6 + 0.7e-6 * math.log2(1 + 1000 / 64) + 24 * 3e-8 + 7.2e-6 * (1 + 0.9 / 1.36)
    assert float(decode_attention_time(UNIT, **SHAPE)) == pytest.approx(expected, rel=1e-6)
    # Half the bits are half the bytes.
    half = decode_attention_time(UNIT, **(SHAPE | {"head_dim": 60.0}))
    assert float(decode_attention_time(UNIT, kv_bits=8.0, **SHAPE)) == pytest.approx(float(half))


@given(st.sampled_from(list(SHAPE)), st.floats(1.0, 3.0), st.floats(1.0, 200.0))
def test_more_to_read_takes_longer_and_never_less_than_the_bandwidth(name, more, batch):
    shape = SHAPE | {"batch": batch}
    once, grown = (float(decode_attention_time(UNIT, **s)) for s in (shape, shape | {name: shape[name] * more}))
    assert grown >= once * (1 - 1e-6)
    assert once >= 4 * batch * 1000 * 8 * 120 / 2e12


def test_gradient(check_gradient):
    check_gradient(lambda tree: decode_attention_time(tree[0], **tree[1]), (CACHED, SHAPE))


def test_a_cache_serves_what_fits_into_it_when_one_layer_is_timed_again_and_again():
    half = float(streaming_time(CACHED.replace(ramp=0.0), 4e7))
    # Half of 40 MB comes three times as fast.
    assert half == pytest.approx(4e7 / 1.6e12 * (1 - 0.5 * 2 / 3), rel=1e-6)
    sizes = np.geomspace(1e4, 1e10, 200)
    assert np.all(np.diff(np.asarray(streaming_time(CACHED, sizes))) > 0)


def test_a_step_reads_its_cache_from_memory():
    moved, context, bits = jnp.array([1e6, 2e7, 1e9]), jnp.full(3, 500.0), jnp.full(3, 16.0)
    _, stream = attention_parts(
        [CACHED.replace(cache_speed=8.0, ramp=0.0)], (16.0,), moved, moved / 2, context, jnp.full(3, 8.0), bits
    )
    assert np.all(np.asarray(stream) >= np.asarray(moved) / 2e12 * (1 - 1e-6))


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
