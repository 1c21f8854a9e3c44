"""Draft trees: shape by hand, expected tokens against enumeration, time against chains and against counting."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import (
    Acceptance,
    chain_plan,
    cycle_time,
    speculation_speedup,
    tokens_per_cycle,
    tree_plan,
    work_time,
)
from hwmodels.network.operators import draft_operators, verify_operators
from hwmodels.speculation.trees import (
    ROOT,
    expected_tree_tokens,
    plan_cycle_time,
    plan_speedup,
    plan_tokens,
    tree_cycle_time,
    tree_shape,
)

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


def test_a_chain_is_a_tree(small, toy_device, workload, footprint):
    conditional = jnp.array([0.9, 0.8, 0.5, 0.7, 0.2])
    assert float(expected_tree_tokens(CHAIN, conditional)) == pytest.approx(float(tokens_per_cycle(conditional)[-1]))
    arguments = {"workload": workload, "footprint": footprint}
    tree = tree_cycle_time(toy_device, small, parent=CHAIN, **arguments)
    chain = cycle_time(toy_device, small, draft_length=5, **arguments)
    assert float(tree.total_s) == pytest.approx(float(chain.total_s), rel=1e-5)
    assert float(tree.draft_step_s) == pytest.approx(float(chain.draft_step_s), rel=1e-5)


def test_a_ragged_tree_step_by_step(small, toy_device, workload, footprint):
    found = tree_cycle_time(toy_device, small, workload=workload, footprint=footprint, parent=RAGGED)
    draft_s = 0.0
    for tokens in (1, 2, 1, 1):
        work = draft_operators(small, workload, footprint=footprint, tokens=tokens, visible_new_tokens=1.0)
        draft_s += float(work_time(toy_device, work).total_s)
    work = verify_operators(small, workload, footprint=footprint, verify_tokens=8, visible_new_tokens=23 / 8)
    verify_s = float(work_time(toy_device, work).total_s)
    assert float(found.verify_s) == pytest.approx(verify_s, rel=1e-5)
    assert float(found.total_s) == pytest.approx(draft_s + verify_s, rel=1e-5)


def test_wider_is_cheaper_to_draft_than_deeper(small, toy_device, workload, footprint):
    star, chain = (
        tree_cycle_time(toy_device, small, workload=workload, footprint=footprint, parent=parent)
        for parent in (STAR, CHAIN)
    )
    assert float(star.total_s) < 0.6 * float(chain.total_s)


def test_gradient_and_nodes(check_gradient):
    check_gradient(lambda p: expected_tree_tokens(RAGGED, p), jnp.linspace(0.1, 0.45, 7))
    with pytest.raises(ValueError, match="must be the 7 nodes"):
        expected_tree_tokens(RAGGED, jnp.ones(6))
    batched = jax.vmap(lambda p: expected_tree_tokens(RAGGED, p))(jnp.ones((3, 7)) * 0.3)
    assert batched.shape == (3,)
    assert all(a == b for a, b in itertools.pairwise(batched.tolist()))


def test_a_draft_of_its_own_is_priced_on_its_own_shapes(small, toy_device, workload, footprint):
    lesser = small.replace(num_layers=1.0)
    common = {"workload": workload, "footprint": footprint}
    found = tree_cycle_time(toy_device, small, parent=RAGGED, draft_architecture=lesser, **common)
    own = tree_cycle_time(toy_device, small, parent=RAGGED, **common)
    alone = tree_cycle_time(toy_device, lesser, parent=RAGGED, **common)
    assert float(found.verify_s) == pytest.approx(float(own.verify_s), rel=1e-6)
    assert float(found.draft_step_s) == pytest.approx(float(alone.draft_step_s), rel=1e-6)
    assert float(found.draft_step_s) < float(own.draft_step_s)


def test_plans_of_both_kinds_agree_on_chains(small, toy_device, workload, footprint):
    conditional = jnp.array([0.9, 0.8, 0.5, 0.7, 0.2])
    acceptance = Acceptance(conditional=conditional, node=conditional)
    common = {"workload": workload, "footprint": footprint, "acceptance": acceptance}
    chain = plan_speedup(toy_device, small, plan=chain_plan(5), **common)
    tree = plan_speedup(toy_device, small, plan=tree_plan(CHAIN), **common)
    every = speculation_speedup(toy_device, small, **common)
    for ours in (chain, tree):
        for name in ("tokens_per_cycle", "speedup_vs_bf16_ar", "speedup_vs_stored_ar"):
            assert float(getattr(ours, name)) == pytest.approx(float(getattr(every, name)[5]), rel=1e-5)
        assert float(ours.cycle.total_s) == pytest.approx(float(every.cycle_s[5]), rel=1e-5)
    assert float(plan_tokens(acceptance, chain_plan(0))) == 1.0


def test_plans_lacking_something(small, toy_device, workload, footprint):
    with pytest.raises(ValueError, match=r"acceptance\.node is None; a tree needs it"):
        plan_tokens(Acceptance(conditional=jnp.ones(3)), tree_plan(STAR))
    with pytest.raises(ValueError, match=r"acceptance\.conditional is None; a chain needs it"):
        plan_tokens(Acceptance(node=jnp.ones(5)), chain_plan(2))
    with pytest.raises(NotImplementedError, match="use tree_plan"):
        plan_cycle_time(
            toy_device,
            small,
            workload=workload,
            footprint=footprint,
            plan=chain_plan(2),
            draft_architecture=small,
        )


def test_gradient_of_a_trees_speedup_reaches_acceptance_and_bandwidth(small, toy_device, workload, footprint):
    chances = jnp.array([0.5, 0.3, 0.25, 0.6, 0.7, 0.9, 0.4])

    @jax.jit
    def speedup(chances, bandwidth):
        device = toy_device.replace(memory=toy_device.memory.replace(bandwidth_bytes_per_s=bandwidth))
        return plan_speedup(
            device,
            small,
            workload=workload,
            footprint=footprint,
            plan=tree_plan(RAGGED),
            acceptance=Acceptance(node=chances),
        ).speedup_vs_stored_ar

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
