import jax
import jax.numpy as jnp
import pytest

from hwmodels import KINDS, LAYER_MATRICES, Acceptance, DraftPlan, chain_plan, uniform_footprint, uniform_weight_bits


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


def test_other_kinds_of_plan_are_not_modelled():
    with pytest.raises(NotImplementedError, match=r"'tree'.*chain_plan"):
        DraftPlan(draft_length=3, verify_tokens=8, kind="tree")


def test_trees_map_over_placeholders():
    # vmap axes and shardings travel in the same classes, so construction must not look at its leaves.
    assert jax.tree.map(lambda _: None, Acceptance(jnp.ones(3))).conditional is None
