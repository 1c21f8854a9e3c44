"""Draft trees: shape by hand, expected tokens against enumeration, time against chains and against counting."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import (
    Acceptance,
    Case,
    Chip,
    DraftCost,
    baselines,
    chain_plan,
    price,
    priced_chains,
    step_cost,
    tokens_per_cycle,
    tree_plan,
)
from hwmodels.network.operators import draft_step, step_operators, verify_step
from hwmodels.speculation.plan import ROOT, expected_tree_tokens, tree_shape

pytestmark = pytest.mark.device_matrix

#     root -> 0, 1;  0 -> 2, 3;  1 -> 4;  3 -> 5;  5 -> 6
RAGGED = [ROOT, ROOT, 0, 0, 1, 3, 5]
CHAIN = [ROOT, 0, 1, 2, 3]
STAR = [ROOT] * 5


def test_shape_by_hand():
    shape = tree_shape(RAGGED)
    assert shape.depth.tolist() == [1, 1, 2, 2, 2, 3, 4]
    # The root; 0 and 1; 3 of depth 2; 5 of depth 3.
    assert shape.expanded.tolist() == [1, 2, 1, 1]
    # Each sees itself, the nodes above it and the root; the root sees itself.
    assert float(shape.visible_tokens) == pytest.approx((1 + 2 + 2 + 3 + 3 + 3 + 4 + 5) / 8)
    assert tree_shape(STAR).expanded.tolist() == [1]
    assert tree_shape(CHAIN).expanded.tolist() == [1] * 5


@pytest.mark.parametrize("parent", [[], [0], [ROOT, 1], [ROOT, -2], [ROOT, 0.5], [[ROOT]]])
def test_what_is_no_tree_is_refused(parent):
    with pytest.raises(ValueError, match="parent"):
        tree_shape(parent)


def test_expected_tokens_by_enumeration():
    chances = np.array([0.5, 0.3, 0.25, 0.6, 0.7, 0.9, 0.4])
    children = {node: [i for i, above in enumerate(RAGGED) if above == node] for node in (ROOT, *range(7))}

    def outcomes(node):
        """Accepted path below a node, with its probability: one child, or none."""
        stop = 1.0 - sum(chances[child] for child in children[node])
        yield 0, stop
        for child in children[node]:
            for length, chance in outcomes(child):
                yield 1 + length, chances[child] * chance

    total = sum(chance for _, chance in outcomes(ROOT))
    mean = sum((1 + length) * chance for length, chance in outcomes(ROOT))
    assert total == pytest.approx(1)
    assert float(expected_tree_tokens(RAGGED, chances)) == pytest.approx(mean, rel=1e-6)


COPY = DraftCost()

#: Compiled once: eagerly, each of some hundred small operations is compiled for itself.
all_lengths, decoding_alone = jax.jit(priced_chains), jax.jit(baselines)


@jax.jit
def cost_of(device, architecture, workload, footprint, plan, draft_cost=COPY):
    return price(Case(device, architecture, workload=workload, footprint=footprint, draft=draft_cost), plan)


def test_a_chain_is_a_tree(small, toy_device, workload, footprint):
    conditional = jnp.array([0.9, 0.8, 0.5, 0.7, 0.2])
    assert float(expected_tree_tokens(CHAIN, conditional)) == pytest.approx(float(tokens_per_cycle(conditional)[-1]))
    tree, chain = (cost_of(toy_device, small, workload, footprint, plan) for plan in (tree_plan(CHAIN), chain_plan(5)))
    assert float(tree.total_s) == pytest.approx(float(chain.total_s), rel=1e-5)
    assert float(tree.draft_s) == pytest.approx(float(chain.draft_s), rel=1e-5)


def test_a_ragged_tree_step_by_step(small, toy_device, workload, footprint):
    found = cost_of(toy_device, small, workload, footprint, tree_plan(RAGGED))
    draft_s = 0.0
    for tokens in (1, 2, 1, 1):
        step = draft_step(workload, footprint=footprint, tokens=tokens, visible_new_tokens=1.0)
        draft_s += float(step_cost(toy_device, step_operators(small, step)).total_s)
    step = verify_step(workload, footprint=footprint, verify_tokens=8, visible_new_tokens=23 / 8)
    verify_s = float(step_cost(toy_device, step_operators(small, step)).total_s)
    assert float(found.verify_s) == pytest.approx(verify_s, rel=1e-5)
    assert float(found.total_s) == pytest.approx(draft_s + verify_s, rel=1e-5)


def test_a_cycles_baselines_cost_what_they_cost_alone(small, toy_device, workload, footprint):
    cycle = cost_of(toy_device, small, workload, footprint, tree_plan(RAGGED))
    plain = decoding_alone(Case(toy_device, small, workload, footprint))
    for ours, theirs in zip(jax.tree.leaves(cycle.baselines), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_passes_of_the_draft_multiply_its_time(small, toy_device, workload, footprint):
    once, twice, never = (
        cost_of(toy_device, small, workload, footprint, tree_plan(RAGGED), DraftCost(passes=passes))
        for passes in (1.0, 2.0, 0.0)
    )
    assert float(twice.draft_s) == pytest.approx(2 * float(once.draft_s))
    assert float(never.draft_s) == 0
    assert float(never.total_s) == float(once.verify_s)


@pytest.mark.parametrize("passes", [0.0, 1.0, 2.5])
def test_energy_of_a_cycle_is_that_of_its_steps(small, toy_device, workload, footprint, passes):
    chip = Chip(energy_j_per_flop=0.7e-12, static_power_w=3.0, area_m2=9e-5)
    memory = toy_device.memory.replace(energy_j_per_bit=5e-12)
    cost = DraftCost(passes=passes)
    found = cost_of(toy_device.replace(chip=chip, memory=memory), small, workload, footprint, tree_plan(RAGGED), cost)
    # Three steps of one token and one of two.
    one, two = np.asarray(found.draft.cost.energy.total_j)
    expected = passes * (3 * one + two) + float(found.verify.cost.energy.total_j)
    assert 1.05 * one < two < float(found.verify.cost.energy.total_j)
    assert float(found.energy_j) == pytest.approx(expected, rel=1e-5)
    assert cost_of(toy_device, small, workload, footprint, tree_plan(RAGGED), cost).energy_j is None


def test_a_draft_of_its_own_is_priced_on_its_own_shapes(small, toy_device, workload, footprint):
    lesser, plan = small.replace(num_layers=1.0), tree_plan(RAGGED)
    found = cost_of(toy_device, small, workload, footprint, plan, DraftCost(architecture=lesser))
    own = cost_of(toy_device, small, workload, footprint, plan)
    alone = cost_of(toy_device, lesser, workload, footprint, plan)
    assert float(found.verify_s) == pytest.approx(float(own.verify_s), rel=1e-6)
    assert float(found.draft_s) == pytest.approx(float(alone.draft_s), rel=1e-6)
    assert float(found.draft_s) < float(own.draft_s)


def test_plans_of_both_kinds_agree_on_chains(small, toy_device, workload, footprint):
    conditional = jnp.array([0.9, 0.8, 0.5, 0.7, 0.2])
    case = Case(toy_device, small, workload, footprint)
    every = all_lengths(case, Acceptance(conditional=conditional)).result
    plain = decoding_alone(Case(toy_device, small, workload, footprint))
    for plan in (chain_plan(5), tree_plan(CHAIN)):
        cycle_s = float(cost_of(toy_device, small, workload, footprint, plan).total_s)
        assert cycle_s == pytest.approx(float(every.cycle_s[5]), rel=1e-5)
        for step, name in ((plain.bf16, "speedup_vs_bf16_ar"), (plain.stored, "speedup_vs_stored_ar")):
            speedup = float(step.cost.total_s * tokens_per_cycle(conditional)[-1]) / cycle_s
            assert speedup == pytest.approx(float(getattr(every, name)[5]), rel=1e-5)


def test_gradient_of_tree_speedup_by_acceptance_and_bandwidth(small, toy_device, workload, footprint):
    chances = jnp.array([0.5, 0.3, 0.25, 0.6, 0.7, 0.9, 0.4])

    @jax.jit
    def speedup(chances, bandwidth):
        device = toy_device.replace(memory=toy_device.memory.replace(bandwidth_bytes_per_s=bandwidth))
        cycle = price(Case(device, small, workload=workload, footprint=footprint, draft=DraftCost()), tree_plan(RAGGED))
        stored_s = cycle.baselines.stored.cost.total_s
        return stored_s * expected_tree_tokens(RAGGED, chances) / cycle.total_s

    bandwidth = jnp.asarray(toy_device.memory.bandwidth_bytes_per_s, jnp.float32)
    by_chance, by_bandwidth = jax.grad(speedup, argnums=(0, 1))(chances, bandwidth)
    step = 1e-2
    for node in range(len(RAGGED)):
        moved = [speedup(chances.at[node].add(sign * step), bandwidth) for sign in (1, -1)]
        assert float(by_chance[node]) == pytest.approx(float(moved[0] - moved[1]) / (2 * step), rel=2e-3)
    moved = [speedup(chances, bandwidth * (1 + sign * step)) for sign in (1, -1)]
    slope = float(moved[0] - moved[1]) / (2 * step * float(bandwidth))
    assert float(by_bandwidth) == pytest.approx(
        slope, rel=2e-2, abs=1e-6 * float(speedup(chances, bandwidth) / bandwidth)
    )
