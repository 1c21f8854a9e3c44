import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.compute.gpu_attention import GpuAttention, decode_attention_time

UNIT = GpuAttention(
    bandwidth_bytes_per_s=2e12, launch_s=9e-6, depth_s=0.7e-6, memory_efficiency=0.8, ramp=0.9, ramp_s=2e-5
)
SHAPE = {"batch": 3.0, "context_tokens": 1000.0, "num_kv_heads": 8.0, "head_dim": 120.0}


def test_by_hand():
    # 2 · 3 · 1000 · 8 · 120 elements of 2 bytes = 11.52 MB, at 1.6e12 bytes/s 7.2 µs; 1 + 0.9 / (1 + 7.2 / 20) of that.
    expected = 9e-6 + 0.7e-6 * math.log2(1 + 1000 / 64) + 7.2e-6 * (1 + 0.9 / 1.36)
    assert float(decode_attention_time(UNIT, **SHAPE)) == pytest.approx(expected, rel=1e-6)
    # Half the bits are half the bytes.
    half = decode_attention_time(UNIT, **(SHAPE | {"batch": 1.5}))
    assert float(decode_attention_time(UNIT, kv_bits=8.0, **SHAPE)) == pytest.approx(float(half))


@given(st.sampled_from(list(SHAPE)), st.floats(1.0, 3.0), st.floats(1.0, 200.0))
def test_more_to_read_takes_longer_and_never_less_than_the_bandwidth(name, more, batch):
    shape = SHAPE | {"batch": batch}
    once, grown = (float(decode_attention_time(UNIT, **s)) for s in (shape, shape | {name: shape[name] * more}))
    assert grown >= once * (1 - 1e-6)
    assert once >= 4 * batch * 1000 * 8 * 120 / 2e12


def test_gradient(check_gradient):
    check_gradient(lambda tree: decode_attention_time(tree[0], **tree[1]), (UNIT, SHAPE))
