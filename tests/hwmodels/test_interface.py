import numpy as np
import pytest

from hwmodels import KINDS, LAYER_MATRICES, chain_plan, tree_plan, uniform_footprint, uniform_weight_bits


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
    assert (plan.draft_repeats.tolist(), float(plan.verify_tokens)) == ([4.0], 5.0)
    # Seen by new tokens: 1, 2, ... 5 of them.
    assert float(plan.verify_visible) == 3.0


def test_a_tree_steps_once_per_depth_and_verifies_all_nodes():
    plan = tree_plan(np.array([-1, -1, 0, 2, 1]))
    # One token, nodes 0 and 1, node 2.
    assert (plan.draft_tokens.tolist(), plan.draft_repeats.tolist(), float(plan.verify_tokens)) == ([1, 2], [2, 1], 6)
    assert float(plan.verify_visible) == pytest.approx((1 + 2 + 2 + 3 + 4 + 3) / 6)


@pytest.mark.parametrize("parent", [[], [0], [-1, 1], [-1, -2], [-1, 0.5], [[-1]]])
def test_what_is_no_tree_is_refused(parent):
    with pytest.raises(ValueError, match="parent"):
        tree_plan(parent)
