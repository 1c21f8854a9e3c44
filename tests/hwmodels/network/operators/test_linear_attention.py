"""Networks in which some layers have linear attention: what a step multiplies, reads, writes and holds."""

import dataclasses

import numpy as np
import pytest

import hwmodels
from hwmodels import OPERATORS, Architecture, catalog, step_operators, uniform_weight_bits
from hwmodels.catalog.groups import Parallelism, check_parallelism
from hwmodels.network.architecture import linear_shape, state_bytes
from hwmodels.network.operators import StepShape
from hwmodels.parallel.group import DeviceGroup, held_share, share_of_architecture

HYBRID = Architecture(
    num_layers=8.0,
    hidden_size=24.0,
    intermediate_size=52.0,
    num_heads=6.0,
    num_kv_heads=3.0,
    head_dim=10.0,
    vocab_size=97.0,
    qk_norm=1.0,
    num_linear_layers=6.0,
    linear_key_heads=2.0,
    linear_value_heads=4.0,
    linear_key_dim=5.0,
    linear_value_dim=7.0,
    linear_conv_tokens=3.0,
    attention_gate=1.0,
)
AT, STATE = OPERATORS.index("attention"), OPERATORS.index("linear_attention")
#: Of a layer: 4 matrices of 5 x 7 in 4 bytes; queries, keys and values of the last two tokens in 2.
LAYER_BYTES = 4 * 4 * 5 * 7 + 2 * 2 * (2 * 2 * 5 + 4 * 7)


def work(architecture=HYBRID, *, tokens=1.0, batch=3.0, context_tokens=40.0, **more):
    widths = {"weight_bits": uniform_weight_bits(16.0), "kv_bits": 16.0}
    return step_operators(
        architecture, StepShape(tokens=tokens, batch=batch, context_tokens=context_tokens, **widths, **more)
    )


def test_a_state_has_one_size_whatever_the_context():
    assert float(state_bytes(HYBRID)) == 6 * LAYER_BYTES
    long, short = (work(context_tokens=context) for context in (4000.0, 0.0))
    assert float(long.kv_bytes[STATE]) == float(short.kv_bytes[STATE]) == 2 * 3 * 6 * LAYER_BYTES
    assert float(long.launches[STATE]) == 6
    assert float(long.launches[AT]) == 2


@pytest.mark.parametrize(
    ("step", "written"),
    [({}, 1), ({"speculating": 1.0}, 5), ({"speculating": 1.0, "drafting": 1.0}, 1)],
    ids=["prefill", "verification", "drafting"],
)
def test_verified_tokens_each_leave_a_state(step, written):
    assert float(work(tokens=5.0, **step).kv_bytes[STATE]) == (1 + written) * 3 * 6 * LAYER_BYTES


def test_arithmetic_by_hand():
    found = work(tokens=5.0)
    convolved = 2 * 2 * 5 + 4 * 7
    assert float(found.flops[STATE]) == 5 * 3 * 6 * (7 * 4 * 5 * 7 + 2 * 3 * convolved)
    attends = dataclasses.replace(HYBRID, num_layers=2.0, num_linear_layers=0.0)
    np.testing.assert_allclose(found.flops[AT], work(attends, tokens=5.0).flops[AT])
    np.testing.assert_allclose(found.kv_bytes[AT], work(attends, tokens=5.0).kv_bytes[AT])


@pytest.mark.parametrize(
    ("changes", "normed"),
    [({}, 4 * 7), ({"linear_key_heads": 0.0, "linear_key_dim": 0.0, "linear_rates": 1.0}, 0)],
    ids=["linear attention", "convolutions alone"],
)
def test_norms_by_hand(changes, normed):
    found = work(dataclasses.replace(HYBRID, **changes))
    streams, heads = (8 * 2 + 1) * 24, 2 * (6 + 3) * 10
    assert float(found.flops[OPERATORS.index("norm")]) == 4 * 3 * (streams + heads + 6 * normed)


def test_products_read_what_is_stored_and_multiply_by_it():
    found, stored = work(), hwmodels.parameters(HYBRID)
    for name, kinds in (("qkv", ("q", "k", "v")), ("o", ("o",))):
        place = OPERATORS.index(name)
        elements = sum(float(stored[kind]) for kind in kinds)
        assert float(found.weight_bytes[place]) == pytest.approx(2 * elements)
        assert float(found.flops[place]) == pytest.approx(2 * 3 * elements)
    # Queries with gates, keys and values of 2 layers; queries, keys, values, gates and two numbers per head of 6.
    assert sum(float(stored[kind]) for kind in ("q", "k", "v")) == 2 * 24 * (2 * 60 + 2 * 30) + 6 * 24 * (20 + 56 + 8)
    assert float(stored["o"]) == 24 * (2 * 60 + 6 * 28)


def test_what_is_held_and_how_long_contexts_fit():
    widths = {"weight_bits": uniform_weight_bits(16.0), "kv_bits": 16.0}
    held = hwmodels.held_bytes(HYBRID, batch=3.0, context_tokens=50.0, **widths)
    cached = 2 * 2 * 2 * 3 * 10 * 50
    assert float(held.kv) == 3 * (cached + 6 * LAYER_BYTES)
    assert float(work(context_tokens=49.0).stored.kv) == float(held.kv)
    budget = float(held.weights + held.kv)
    found = hwmodels.longest_context(HYBRID, budget_bytes=budget, batch=3.0, **widths)
    assert float(found) == pytest.approx(50.0)


def test_devices_share_heads_and_stages_share_layers():
    group = DeviceGroup(link=catalog.link("nvlink4"), tensor_parallel=2.0)
    assert float(linear_shape(share_of_architecture(group, HYBRID)).state) == 4 * 5 * 7 / 2
    halves, _ = held_share(dataclasses.replace(group, tensor_parallel=1.0, pipeline=2.0), HYBRID, hwmodels.Workload())
    assert float(halves.num_linear_layers) == 3
    with pytest.raises(catalog.EntryError, match=r"key heads of linear attention"):
        check_parallelism(Parallelism(tensor=3), dataclasses.replace(HYBRID, linear_key_heads=4.0), name="x")


def test_a_hybrid_reads_less_of_long_contexts_and_pays_for_verification():
    device = catalog.device("rtx-4090")

    def seconds(architecture, context, **more):
        return float(hwmodels.step_cost(device, work(architecture, context_tokens=context, **more)).total_s)

    hybrid = catalog.architecture("qwen3.5-27b")
    names = {name: 0.0 for name in vars(hybrid) if "linear" in name}
    attends = dataclasses.replace(hybrid, **names)
    growth = [seconds(a, 60_000.0) - seconds(a, 1000.0) for a in (hybrid, attends)]
    assert growth[0] == pytest.approx(growth[1] / 4, rel=0.02)
    verified = {"tokens": 4.0, "speculating": 1.0}
    states = (
        3
        * 3
        * float(state_bytes(hybrid))
        / (float(device.memory.bandwidth_bytes_per_s) * float(device.memory.efficiency))
    )
    plain = seconds(hybrid, 1000.0, tokens=4.0)
    assert seconds(hybrid, 1000.0, **verified) - plain == pytest.approx(states, rel=0.02)
