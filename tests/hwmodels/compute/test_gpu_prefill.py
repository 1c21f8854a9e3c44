import pytest

from hwmodels.compute.gpu_attention import GpuAttention, GpuPrefill, launch_time, prefill_attention_time, prefill_parts

DECODING = GpuAttention(
    bandwidth_bytes_per_s=2e12,
    launch_s=9e-6,
    depth_s=0.7e-6,
    memory_efficiency=0.8,
    ramp=0.9,
    ramp_s=2e-5,
    pair_s=3e-8,
    cache_bytes=4e7,
    cache_speed=2.0,
    cache_sharpness=6.0,
)
UNIT = GpuPrefill(
    extra_s=3e-6, compute_efficiency=0.7, exponential_flops=90.0, tile_tokens=65.0, chain_s=2e-8, memory_efficiency=0.6
)
RATES = {"peak_flops_per_s": 3e14, "bandwidth_bytes_per_s": 2e12}
WORK = {"rows": 3.0 * 700 * 30, "depth": 240.0, "tokens": 700.0, "visible_tokens": 350.5, "moved_bytes": 4e7}


def test_by_hand():
    found = prefill_parts(UNIT, **WORK, **RATES)
    many = 699**2 / (699**2 + 64**2)
    # 63000 rows see 350.5 tokens and, of 65-row tiles, 32 more that are masked.
    pairs = 63000 * (350.5 + 32 * 699 / 700)
    arithmetic, chain = pairs * (480 / 0.7 + 90) / 3e14, many * 2e-8 * 700
    assert float(found.compute_s) == pytest.approx((arithmetic**4 + chain**4) ** 0.25, rel=1e-5)
    assert float(found.launch_s) == pytest.approx(many * (3e-6 + 4e7 / 1.2e12), rel=1e-5)


def test_one_token_is_decoding():
    one = WORK | {"tokens": 1.0, "rows": 30.0, "visible_tokens": 5000.0}
    found = prefill_parts(UNIT, **one, **RATES)
    assert float(found.launch_s) == 0
    assert float(found.compute_s) == pytest.approx(30 * 5000 * (480 / 0.7 + 90) / 3e14, rel=1e-5)
    shape = {"batch": 2.0, "tokens": 1.0, "num_heads": 24.0, "num_kv_heads": 6.0, "head_dim": 120.0}
    whole = float(prefill_attention_time(UNIT, DECODING, **shape, peak_flops_per_s=3e14))
    assert whole == pytest.approx(float(launch_time(DECODING, 1.0, 12.0)), rel=0.01)


@pytest.mark.device_matrix
def test_gradient(check_gradient):
    def seconds(tree):
        found = prefill_parts(tree[0], **tree[1], **RATES)
        return found.compute_s + found.launch_s

    for tokens in (1.5, 40.0, 700.0):
        check_gradient(seconds, (UNIT, WORK | {"tokens": tokens}))
