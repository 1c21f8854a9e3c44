"""AAT curves of a network that runs: forms that are fitted, lengths that are chosen, and the committed result."""

import numpy as np
import pytest

from experiments.papers.fpga_tree_sd.curves import Counts, forms, lost, summary
from experiments.papers.fpga_tree_sd.details import measured_curves
from experiments.papers.fpga_tree_sd.model import LENGTHS, ORIGINAL_LENGTH


def counts(tokens, questions=6):
    """Every question has these tokens in each of 100 cycles."""
    generated = np.rint(np.tile(100 * tokens[:, None], questions)).astype(int)
    passes = np.minimum(LENGTHS - 1, 5)
    return Counts(generated, np.full_like(generated, 100), passes)


def test_forms_find_what_a_curve_was_made_with():
    law = 1.2 + 0.7 * np.log(LENGTHS - 0.3)
    made, numbers = forms(law)
    assert [numbers[name] for name in "ABC"] == pytest.approx([1.2, 0.7, 0.3], rel=1e-3)
    np.testing.assert_allclose(made["law"], law, rtol=1e-6)
    # 1 + 0.6 + ... + 0.6^(x - 1), by the closed form.
    chain = (1 - 0.6**LENGTHS) / 0.4
    made, numbers = forms(chain)
    assert numbers["alpha"] == pytest.approx(0.6, abs=1e-4)
    np.testing.assert_allclose(made["chain"], chain, rtol=1e-4)


def test_what_a_length_loses():
    speed = np.ones((2, len(LENGTHS)))
    speed[0, 7 - LENGTHS[0]], speed[1, 69 - LENGTHS[0]] = 4.0, 2.0
    np.testing.assert_allclose(lost(speed, np.array([7, 69])), 0.0)
    np.testing.assert_allclose(lost(speed, np.array([69, 7])), [0.75, 0.5])


def test_a_curve_is_judged_by_the_other_half():
    ours, others = 1.0 + 0.8 * np.log(LENGTHS), 1.1 * (1.0 + 0.8 * np.log(LENGTHS))
    judged = summary(counts(ours), counts(others))
    # A law without error on its own half is 1 / 1.1 of the other one.
    assert judged["error"]["law"]["value"] == pytest.approx(1 - 1 / 1.1, abs=1e-3)
    assert judged["error"]["no form"]["value"] == pytest.approx(1 - 1 / 1.1, abs=1e-3)
    assert judged["error"]["constant"]["value"] > judged["error"]["chain"]["value"] > judged["error"]["law"]["value"]
    assert judged["tokens_per_cycle"][0] == pytest.approx(others[0], abs=0.01)
    # A factor moves no best length.
    assert all(max(board["lost_at_own_law"]) < 0.005 for board in judged["boards"])


def test_the_committed_curves_are_of_trees():
    stored = measured_curves()
    assert {(row["draft"], row["levels"]) for row in stored} == {
        (draft, levels) for draft in ("q4", "cassandra1", "ngram", "trained-head") for levels in (5, 8)
    }
    for row in stored:
        tokens, length = np.array(row["tokens_per_cycle"]), np.array(row["length"])
        assert length[-1] == ORIGINAL_LENGTH
        assert (np.diff(tokens) >= 0).all()
        assert (tokens <= np.minimum(length, row["levels"] + 1)).all()
        assert row["error"]["law"]["low"] <= row["error"]["law"]["value"] <= row["error"]["law"]["high"]
