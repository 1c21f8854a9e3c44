"""Attention to selected tokens, layers with a window of another shape, and layers of one block each: by hand."""

import dataclasses

import pytest

from hwmodels import OPERATORS, kv_elements_per_token, parameters, step_operators, uniform_weight_bits
from hwmodels.network import cached_tokens
from hwmodels.network.operators import StepShape
from hwmodels.step.capacity import longest_context

BITS = uniform_weight_bits(16.0)


def attention_bytes(architecture, **changes):
    shape = {"tokens": 2, "batch": 5, "context_tokens": 40, "weight_bits": BITS, "kv_bits": 16} | changes
    work = step_operators(architecture, StepShape(**shape))
    return float(work.kv_bytes[OPERATORS.index("attention")]), float(work.flops[OPERATORS.index("attention")])


@pytest.fixture
def selecting(small):
    """Of the 3 layers 2 attend to 6 tokens, which one of them chooses by 2 heads of 5."""
    return dataclasses.replace(
        small,
        selected_tokens=6.0,
        num_selecting_layers=2.0,
        num_index_layers=1.0,
        index_heads=2.0,
        index_head_dim=5.0,
    )


def test_an_index_adds_its_matrices_and_keys(small, selecting):
    more = {kind: count - parameters(small)[kind] for kind, count in parameters(selecting).items()}
    # From 10 inputs: 2 queries of 5 and 2 weights of heads; one key of 5.
    assert {kind: count for kind, count in more.items() if count} == {"q": 10 * (2 * 5 + 2), "k": 10 * 5}
    assert kv_elements_per_token(selecting) == kv_elements_per_token(small) + 5


def test_only_selected_tokens_are_read(small, selecting):
    # 84 elements of a token: 28 in each layer. Two new tokens read 12 of 40 rows in two layers; index keys of 5 elements of all
    # rows in one; each new token writes 89 elements.
    read = 5 * (28 * 40 + 2 * 28 * 12 + 5 * 40) + 5 * 2 * 89
    moved, flops = attention_bytes(selecting)
    assert moved == pytest.approx(2 * read, rel=1e-6)
    # A new token sees 41.5 tokens, with 4 heads of 7 elements in queries and 7 in values; 6 where it selects.
    seen = 4 * 14 * (41.5 + 2 * 6) + 2 * 5 * 41.5
    assert flops == pytest.approx(2 * seen * 2 * 5, rel=1e-6)
    # A text that is shorter than what is selected is read whole.
    short = {"context_tokens": 3}
    assert attention_bytes(selecting, **short)[0] == pytest.approx(2 * 5 * (84 + 5) * (3 + 2), rel=1e-6)
    assert attention_bytes(small, **short)[0] == pytest.approx(2 * 5 * 84 * (3 + 2), rel=1e-6)


def test_layers_with_a_window_may_have_another_shape(small):
    # One layer of 3 with a window of 8 tokens, 8 heads of queries and 3 of keys and values; the others have 4 and 2.
    one = dataclasses.replace(
        small, num_window_layers=1.0, window_tokens=8.0, window_query_ratio=2.0, window_kv_ratio=1.5, v_head_dim=5.0
    )
    stored = parameters(one)
    assert stored["q"] == pytest.approx(10 * 7 * (4 + 4 + 8), rel=1e-6)
    assert stored["o"] == pytest.approx(10 * 5 * (4 + 4 + 8), rel=1e-6)
    assert (stored["k"], stored["v"]) == pytest.approx((10 * 7 * (2 + 2 + 3), 10 * 5 * (2 + 2 + 3)), rel=1e-6)
    held = 12 * (2 + 2) * 40 + 12 * 3 * 8
    assert kv_elements_per_token(one) * cached_tokens(one, 40.0) == pytest.approx(held, rel=1e-6)
    weights = 2.0 * sum(stored.values())
    longest = longest_context(one, budget_bytes=weights + 2 * held, batch=1.0, weight_bits=BITS, kv_bits=16.0)
    assert float(longest) == pytest.approx(40.0, rel=1e-3)
    # 41.5 tokens are seen, 8 through the window, by heads of 7 and 5 elements.
    _, flops = attention_bytes(one)
    assert flops == pytest.approx(2 * 12 * (4 * 41.5 * 2 + 8 * 8) * 2 * 5, rel=1e-6)


def test_layers_of_one_block_each(small):
    # 3 layers of attention and 5 of feed-forward networks, 4 of which are mixtures of 6 experts in a width of 4.
    one = dataclasses.replace(
        small,
        num_ffn_layers=5.0,
        num_moe_layers=4.0,
        num_experts=6.0,
        experts_per_token=2.0,
        expert_intermediate_size=9.0,
        expert_hidden_size=4.0,
    )
    stored = parameters(one)
    assert stored["norm"] == 10 * (3 + 5 + 1)
    assert (stored["up"], stored["expert_up"], stored["shared"]) == (10 * 21, 4 * 6 * 4 * 9, 4 * 2 * 10 * 4)
    work = step_operators(one, StepShape(tokens=1, batch=1, context_tokens=3, weight_bits=BITS, kv_bits=16))
    starts = dict(zip(OPERATORS, map(float, work.launches), strict=True))
    assert {name: starts[name] for name in ("qkv", "attention", "gate_up", "router", "norm")} == {
        "qkv": 3,
        "attention": 3,
        "gate_up": 1,
        "router": 4,
        "norm": 9,
    }
    assert work.shapes.k[OPERATORS.index("expert_gate_up")] == 4
