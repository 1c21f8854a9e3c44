"""Comparison of searches on made-up ranks, of which the right order is known, and the figures drawn from it."""

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.tree_search import (
    BASELINES,
    LAW_LENGTHS,
    PRIOR,
    Recorded,
    Settings,
    compare,
    law_entry,
    tree_growths,
)
from jaxspec.trees.rank_traces import UNKNOWN, RankTraces, cycles_along_text
from jaxspec.trees.topology import tree_from_parents

pytestmark = pytest.mark.network

SETTINGS = Settings(contexts=(32, 48), prompts=24, output_tokens=40, nodes=20, depth=4)


def traces(seed, *, texts=40, second_at=2):
    """Ranks of a draft whose first guess is right in 60 of 100 cases; at one depth its second guess is."""
    rng = np.random.default_rng(seed)
    starts = SETTINGS.recorded_tokens
    rank = rng.geometric(0.6, size=(texts, starts, SETTINGS.depth)) - 1
    turned = rank[:, :, second_at]
    rank[:, :, second_at] = np.where(turned == 0, 1, np.where(turned == 1, 0, turned))
    left = starts - np.arange(starts)
    rank = np.where(np.arange(SETTINGS.depth)[None, None, :] < left[None, :, None], rank, UNKNOWN)
    return RankTraces(jnp.asarray(rank, jnp.int32), jnp.full(texts, starts, jnp.int32))


@pytest.fixture(scope="module")
def recorded():
    return [Recorded(32, traces(0), traces(1)), Recorded(48, traces(2), traces(3))]


@pytest.fixture(scope="module")
def entries(recorded):
    return [compare(part, tree_growths(part, SETTINGS), SETTINGS) for part in recorded]


def test_the_prior_score_finds_the_turned_guess(recorded, entries):
    growth = tree_growths(recorded[0], SETTINGS)[PRIOR]
    nodes = list(zip(growth.parent.tolist(), growth.rank.tolist()))
    depth = np.asarray(tree_from_parents(growth.parent, rank=growth.rank).depth)
    # The first node of depth 3 that it takes is a second guess; depth-first growth takes the first guess.
    assert nodes[int(np.flatnonzero(depth == 3)[0])][1] == 1
    for entry in entries:
        for name in BASELINES:
            lead = entry["prior_score_leads"][name]
            assert lead["mean_gain"] > 0
            assert lead["p_value"] < 0.01
            assert lead["lowest_in_standard_errors"] > -2


def test_a_size_of_a_curve_is_what_decoding_counts(recorded, entries):
    growth = tree_growths(recorded[0], SETTINGS)[PRIOR]
    tree = tree_from_parents(growth.parent[:7], rank=growth.rank[:7])
    cycles = cycles_along_text(tree, recorded[0].held_out, num_tokens=SETTINGS.output_tokens)
    place = entries[0]["verification_length"].index(8)
    counted = float(np.sum(cycles.generated) / np.sum(cycles.cycles))
    assert entries[0]["tokens_per_cycle"][PRIOR][place] == pytest.approx(counted, rel=1e-6)


def test_law_is_found_again_and_checked_where_it_was_not_fitted():
    lengths = np.arange(2, 65)
    law = law_entry(lengths, 1.1 + 0.7 * np.log(lengths - 0.4))
    assert law["fitted_at"] == list(LAW_LENGTHS)
    assert [law[name] for name in "ABC"] == pytest.approx([1.1, 0.7, 0.4], rel=1e-4)
    assert law["r_squared"] == pytest.approx(1)
    # A straight line is no logarithm, and elsewhere than at the fitted lengths it shows.
    kinked = np.where(lengths < 30, 2 + 0.1 * lengths, 5.0)
    assert law_entry(lengths, kinked)["r_squared_elsewhere"] < 0.97
