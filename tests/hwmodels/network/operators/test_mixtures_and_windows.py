"""Operators beyond the dense decoder: experts, latent attention, windows, trees; each against counting."""

import dataclasses
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import OPERATORS, UNIFORM, parameters, step_operators, touched_experts, uniform_weight_bits
from hwmodels.network import cached_tokens
from hwmodels.network.operators import StepShape
from hwmodels.network.operators.step import visible_in_window

BITS = uniform_weight_bits(16.0)


def by_name(array):
    return dict(zip(OPERATORS, np.asarray(array, float), strict=True))


def step(architecture, routing=UNIFORM, **changes):
    arguments = {"tokens": 2, "batch": 5, "context_tokens": 11, "weight_bits": BITS, "kv_bits": 16} | changes
    return step_operators(architecture, StepShape(**arguments), routing)


@pytest.fixture
def mixture(small):
    """One dense layer, two of six experts with two for each token, and a shared one."""
    return dataclasses.replace(
        small,
        num_moe_layers=2.0,
        num_experts=6.0,
        experts_per_token=2.0,
        expert_intermediate_size=9.0,
        shared_intermediate_size=13.0,
    )


@pytest.fixture
def latent(small):
    """Query heads of 7 + 3, values of 5, latents of 12, queries through a rank of 8."""
    return dataclasses.replace(small, kv_lora_rank=12.0, q_lora_rank=8.0, rope_head_dim=3.0, v_head_dim=5.0)


@pytest.mark.parametrize(("experts", "chosen", "tokens"), [(4, 2, 3), (5, 1, 4), (3, 3, 2), (6, 2, 1)])
def test_touched_experts_by_enumeration(experts, chosen, tokens):
    # Every way in which the tokens can choose, all equally likely.
    choices = list(itertools.combinations(range(experts), chosen))
    counts = [len(set().union(*one)) for one in itertools.product(choices, repeat=tokens)]
    assert float(touched_experts(experts, chosen, tokens)) == pytest.approx(np.mean(counts), rel=1e-5)


def test_experts_by_hand(mixture):
    # 10 rows choose 20 expert inputs per layer; of 6 experts 6 (1 - (2/3)^10) are touched.
    work = step(mixture)
    touched = 6 * (1 - (2 / 3) ** 10)
    flops, weights = by_name(work.flops), by_name(work.weight_bytes)
    assert flops["expert_gate_up"] == pytest.approx(2 * 20 * (10 * 9 * 2) * 2, rel=1e-6)  # both layers
    assert flops["expert_down"] == pytest.approx(2 * 20 * (10 * 9) * 2, rel=1e-6)
    assert weights["expert_gate_up"] == pytest.approx(touched * 90 * 2 * 2 * 2, rel=1e-6)
    assert weights["router"] == 60 * 2 * 2
    assert flops["shared_gate_up"] == pytest.approx(2 * 10 * (10 * 13 * 2) * 2, rel=1e-6)
    assert flops["shared_down"] == pytest.approx(2 * 10 * 130 * 2, rel=1e-6)
    assert flops["gate_up"] == 2 * 10 * 2 * 210  # the one dense layer
    launches = by_name(work.launches)
    assert launches["gate_up"] == 1
    assert launches["expert_down"] == launches["shared_down"] == launches["router"] == 2
    shapes = work.shapes
    i = OPERATORS.index("expert_down")
    assert float(shapes.products[i]) == pytest.approx(touched, rel=1e-6)
    assert float(shapes.m[i] * shapes.products[i]) == pytest.approx(20, rel=1e-6)
    assert (float(shapes.k[i]), float(shapes.n[i])) == (9.0, pytest.approx(10.0))


def test_flops_of_matrices_are_two_per_active_weight(mixture, latent):
    for architecture in (mixture, latent, dataclasses.replace(mixture, gated_ffn=0.0)):
        stored = parameters(architecture)
        active = {kind: float(count) for kind, count in stored.items() if kind not in ("embed", "norm")}
        for kind in ("expert_gate", "expert_up", "expert_down"):
            active[kind] *= 2 / 6
        work = step(architecture)
        flops = by_name(work.flops)
        del flops["attention"], flops["norm"], flops["embed"]
        assert sum(flops.values()) == pytest.approx(2 * 10 * sum(active.values()), rel=1e-6)


def test_shapes_multiply_to_the_flops(small, mixture, latent):
    for architecture in (small, mixture, latent):
        work = step(architecture)
        s = work.shapes
        products = 2 * s.m * s.k * s.n * s.products * work.launches
        for name in ("embed", "norm"):
            assert by_name(products)[name] == 0
        expected = jnp.where(s.products > 0, work.flops, 0.0)
        np.testing.assert_allclose(products, expected, rtol=1e-5)
        assert np.all(np.asarray([s.m, s.k, s.n]) >= 1)


def test_latent_attention_by_hand(latent):
    # Cached per token and layer: 12 of the latent and 3 rotated ones.
    work = step(latent)
    assert by_name(work.kv_bytes)["attention"] == 3 * 15 * 2 * (5 * 11 + 10)
    stored = parameters(latent)
    assert stored["q"] == 3 * (10 * 8 + 8 * 4 * 10)
    assert stored["k"] == 3 * (10 * 15 + 12 * 4 * 7)
    assert stored["v"] == 3 * (12 * 4 * 5)
    assert stored["o"] == 3 * (4 * 5 * 10)
    assert by_name(work.weight_bytes)["latent"] == 2 * 3 * (8 * 40 + 12 * 28 + 12 * 20)
    # Absorbed: scores on 15 elements, values on 12, 4 heads; expanded: 10 and 5, and 12 * (7 + 5) for each of 11 cached
    # tokens in each of 2 new ones' heads.
    seen = 12.5
    absorbed, expanded = 27, 15 + 12 * 12 * 11 / (2 * seen)
    assert by_name(work.flops)["attention"] == pytest.approx(2 * 3 * 4 * min(absorbed, expanded) * seen * 10, rel=1e-6)
    prefill = step(latent, tokens=900, context_tokens=0)
    assert by_name(prefill.flops)["attention"] == pytest.approx(2 * 3 * 4 * 15 * 450.5 * 4500, rel=1e-6)


@pytest.mark.parametrize(
    ("context", "tokens", "window"), [(0, 7, 3), (5, 4, 9), (5, 4, 6), (11, 3, 5), (2, 1, 9), (0, 1, 1)]
)
def test_visible_tokens_in_a_window_by_counting(context, tokens, window):
    seen = [min(context + i, window) for i in range(1, tokens + 1)]
    assert float(visible_in_window(context, tokens, (tokens + 1) / 2, window)) == pytest.approx(np.mean(seen))


def test_windows_and_sinks_bound_the_cache(small):
    windowed = dataclasses.replace(small, num_window_layers=2.0, window_tokens=6.0, sink_tokens=1.0)
    assert float(cached_tokens(windowed, 4.0)) == pytest.approx(4.0)
    assert float(cached_tokens(windowed, 100.0)) == pytest.approx((100 + 2 * 7) / 3)
    full, cut = step(small, context_tokens=100), step(windowed, context_tokens=100)
    # One layer of three reads all 100 tokens, two read 7.
    assert by_name(cut.kv_bytes)["attention"] == pytest.approx(28 * 2 * (5 * (100 + 14) + 3 * 10))
    assert by_name(cut.flops)["attention"] < by_name(full.flops)["attention"]
    chex.assert_trees_all_close(step(windowed, context_tokens=4), step(small, context_tokens=4))


def test_a_tree_sees_less_of_itself_than_a_chain(small):
    chain = step(small, tokens=7)
    # A full binary tree of three levels: depths 1, 2, 2, 3, 3, 3, 3.
    tree = step(small, tokens=7, visible_new_tokens=17 / 7)
    assert by_name(tree.flops)["attention"] == pytest.approx(4 * 28 * 3 * 35 * (11 + 17 / 7), rel=1e-6)
    assert by_name(tree.flops)["attention"] < by_name(chain.flops)["attention"]
    np.testing.assert_array_equal(tree.memory_bytes, chain.memory_bytes)


@pytest.mark.device_matrix
@pytest.mark.parametrize("which", ["mixture", "latent"])
def test_gradient_beyond_dense(which, request, check_gradient):
    architecture = request.getfixturevalue(which)
    if which == "mixture":
        architecture = dataclasses.replace(
            architecture, num_window_layers=1.3, window_tokens=5.2, sink_tokens=1.1, learned_positions=3.0
        )

    def total(architecture):
        work = step_operators(
            architecture, StepShape(tokens=3.0, batch=2.5, context_tokens=20.0, weight_bits=BITS, kv_bits=11.0)
        )
        return sum(jnp.sum(jnp.log1p(leaf)) for leaf in jax.tree.leaves(work))

    check_gradient(total, architecture)
