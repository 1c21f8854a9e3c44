import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodels.compute.gpu_experts import ExpertCoefficients, GpuExperts, expert_layer_time

pytestmark = pytest.mark.device_matrix

COEFFICIENTS = ExpertCoefficients(
    launch_s=21e-6,
    pass_cost=3.0,
    memory_efficiency=0.8,
    operand_cost=90.0,
    compute_cost=0.0,
    prologue_elements=300.0,
    wave_rounding=0.6,
)
PACKED = COEFFICIENTS.replace(compute_cost=2.5, prologue_elements=0.0, operand_cost=150.0)
SHAPE = {"tokens": 37.0, "touched": 41.0, "experts_per_token": 6.0, "hidden_size": 1900.0, "inner_size": 900.0}


def unit_of(coefficients=COEFFICIENTS, **sheet):
    given_sheet = {"peak_flops_per_s": 3e14, "bandwidth_bytes_per_s": 2e12, "multiprocessors": 101.0} | sheet
    return GpuExperts(**given_sheet, coefficients=coefficients)


def layer(unit=None, **changes):
    return float(expert_layer_time(unit or unit_of(), **(SHAPE | changes)))


def test_few_tokens_stream_the_touched_experts_by_hand():
    # Nothing but streaming and launching: 2 tokens, 3 experts each, 5 touched, 1000 x 700 gate, up and down of 2 bytes.
    unit = unit_of(COEFFICIENTS.replace(pass_cost=0.0, operand_cost=1e-3))
    shape = {"tokens": 2.0, "touched": 5.0, "experts_per_token": 3.0, "hidden_size": 1000.0, "inner_size": 700.0}
    weights = 5 * 3 * 1000 * 700 * 2
    moved = 2 * (6 * 1700 + 6 * 2700 + 2 * 2 * 1000)
    found = float(expert_layer_time(unit, **shape))
    assert found == pytest.approx(21e-6 + (weights + moved) / 1.6e12, rel=1e-4)
    # Without a gate there are two matrices.
    bare = float(expert_layer_time(unit, gated=0.0, **shape))
    assert found - bare == pytest.approx(5 * 1000 * 700 * 2 / 1.6e12, rel=1e-3)


def test_tiles_of_all_experts_share_the_waves_by_hand():
    # A tile of 16 x 64 is the cheapest for one row each; operands alone cost: 90 (2 · 16 + 2 · 64) FLOP per element of k.
    unit = unit_of(COEFFICIENTS.replace(wave_rounding=1.0))
    share = 1 / 16
    rows = 1 + share - share / (2 * (share + 3))
    tile = 90 * (2 * 16 + 2 * 64) * (2000 + 300) / 3e14
    for products in (10, 20, 200):
        waves = math.ceil(products * rows * math.ceil(640 / 64) / 101)
        found = float(unit.product_time(1.0, 2000.0, 640.0, products=float(products)))
        # Twelve tilings, of which some are as good: the soft minimum is below the best one by at most 12^(1/16).
        assert waves * 101 * tile / 12 ** (1 / 16) <= found <= waves * 101 * tile * (1 + 1e-5)
    assert float(unit.product_time(1.0, 2000.0, 640.0, products=0.0)) == 0.0


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([COEFFICIENTS, PACKED]),
    st.integers(1, 3000),
    st.floats(0.0, 1.0),
    st.sampled_from([4.0, 8.0, 16.0]),
    st.floats(1.0, 3.0),
)
def test_limits_and_monotonicity(coefficients, tokens, spread, bits, more):
    most = min(60.0, 6.0 * tokens)
    touched = 6.0 + spread * (most - 6.0)
    unit, shape = unit_of(coefficients), {"tokens": float(tokens), "touched": touched, "weight_bits": bits}
    once = layer(unit, **shape)
    matrices = 3 * 1900 * 900
    assert once >= touched * matrices * bits / 8 / 2e12
    assert once >= 2 * 6 * tokens * matrices / 3e14
    for name in ("tokens", "touched", "weight_bits"):
        assert layer(unit, **(shape | {name: shape[name] * more})) >= once * (1 - 1e-5)
    for field in ("peak_flops_per_s", "bandwidth_bytes_per_s"):
        faster = dataclasses.replace(unit, **{field: getattr(unit, field) * more})
        assert layer(faster, **shape) <= once * (1 + 1e-5)


def test_gradient(check_gradient):
    both = (unit_of(PACKED), SHAPE | {"tokens": 2100.0, "weight_bits": 4.5})
    check_gradient(lambda tree: expert_layer_time(tree[0], temperature=0.2, **tree[1]), both, step=1e-6)
