"""Rules of draft lengths on a small trace, with cycles of made-up times."""

import numpy as np
import pytest

from experiments.draft_lengths import LONGEST, judged, rules
from hwmodels import AcceptanceTrace, chain_cycles


@pytest.fixture(scope="module")
def trace():
    rng = np.random.default_rng(8)
    tokens = rng.integers(20, 60, 12)
    gained = np.stack([rng.geometric(0.4, tokens.sum()), rng.geometric(0.7, tokens.sum())]).clip(1, 17)
    names = tuple(map(str, range(12)))
    return AcceptanceTrace(gained.astype(np.int16), tokens, np.zeros(12, int), ("",) * 12, names, ("head", "lookup"))


def test_rules_are_chosen_on_even_requests_and_none_beats_the_best_way(trace):
    lengths = np.arange(LONGEST + 1)
    seconds = np.stack([[1 + 0.2 * lengths, 1 + 0.01 * lengths], [1 + 0.4 * lengths, 1 + 0.3 * lengths]])
    found = judged(trace, seconds, np.array([0.0, 1.0]))
    for place in range(2):
        every = chain_cycles(trace, lengths) * seconds[place, 0]
        best = every[::2].sum(axis=0).argmin()
        np.testing.assert_allclose(found["fixed, head"][:, place], every[:, best], rtol=1e-5)
    for who in ("head", "lookup", "any drafter"):
        best = found[f"best way, {who}"]
        for name, each in found.items():
            if name.endswith(who):
                assert np.all(best <= each * (1 + 1e-5)), name
    assert {name.split(",")[0] for name in found} == {"no draft", "best way", *rules(np.zeros(2))}
