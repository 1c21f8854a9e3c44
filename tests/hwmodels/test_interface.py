import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import (
    KINDS,
    LAYER_MATRICES,
    Acceptance,
    DraftPlan,
    chain_plan,
    tree_plan,
    uniform_footprint,
    uniform_weight_bits,
)


def test_uniform_footprint_reads_everything_alike():
    footprint = uniform_footprint(11)
    assert footprint.draft_weight_bits == footprint.target_weight_bits == dict.fromkeys(KINDS, 11.0)
    assert footprint.draft_kv_bits == footprint.target_kv_bits == 11.0


def test_kinds_that_are_not_named_stay_at_16_bits():
    bits = uniform_weight_bits(5.5, LAYER_MATRICES)
    assert {kind for kind in KINDS if bits[kind] == 5.5} == set(LAYER_MATRICES)
    assert {bits[kind] for kind in set(KINDS) - set(LAYER_MATRICES)} == {16.0}


def test_unknown_kind_is_refused():
    with pytest.raises(ValueError, match=r"unknown kinds \['gates'\].*gate"):
        uniform_weight_bits(5, ("gates",))


def test_chain_verifies_its_drafts_and_the_token_before_them():
    plan = chain_plan(4)
    assert (plan.kind, plan.draft_length, plan.verify_tokens) == ("chain", 4.0, 5.0)


def test_kind_of_plan_is_static_and_lengths_are_leaves():
    plans = jax.vmap(chain_plan)(jnp.arange(3))
    assert plans.kind == "chain"
    assert plans.verify_tokens.tolist() == [1.0, 2.0, 3.0]


def test_a_tree_steps_once_per_depth_and_verifies_all_nodes():
    plan = tree_plan(np.array([-1, -1, 0, 2, 1]))
    assert (plan.kind, plan.draft_length, plan.verify_tokens) == ("tree", 3.0, 6.0)
    assert plan.parent == (-1, -1, 0, 2, 1)
    assert jax.tree.structure(plan) != jax.tree.structure(tree_plan([-1, -1, 0, 2, 2]))


@pytest.mark.parametrize("parent", [[], [0], [-1, 1], [-1, -2], [-1, 0.5], [[-1]]])
def test_what_is_no_tree_is_refused(parent):
    with pytest.raises(ValueError, match="parent"):
        tree_plan(parent)


def test_other_kinds_of_plan_are_not_modelled():
    with pytest.raises(NotImplementedError, match=r"'moe'.*chain_plan"):
        DraftPlan(draft_length=3, verify_tokens=8, kind="moe")
    with pytest.raises(ValueError, match="only trees have parents"):
        DraftPlan(draft_length=3, verify_tokens=8, kind="tree")
    with pytest.raises(ValueError, match="only trees have parents"):
        DraftPlan(draft_length=3, verify_tokens=4, parent=(-1, 0, 1))


def test_trees_map_over_placeholders():
    # vmap axes and shardings travel in the same classes, so construction must not look at its leaves.
    assert jax.tree.map(lambda _: None, Acceptance(jnp.ones(3))).conditional is None
