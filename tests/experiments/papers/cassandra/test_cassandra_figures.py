"""Fig. 12, 7 and 14: numbers by hand, choices that were fixed, and what was measured."""

import pytest

from experiments.papers.cassandra import speedups

pytestmark = pytest.mark.paper


def test_bits_of_the_evaluated_configuration_by_hand():
    # 40 % pruned, 4 of 7 mantissa bits cut, exponents of 2.85 bits: 1 + 0.6 (1 + 2.85 + 3), then 0.6 x 4 and 0.4 x 16.
    first = speedups.footprint("Cassandra-1", speedups.FROZEN)
    assert float(first.draft_weight_bits["down"]) == pytest.approx(5.11)
    assert float(first.target_weight_bits["down"]) == pytest.approx(13.91)
    assert (first.draft_kv_bits, first.target_kv_bits) == (pytest.approx(6.85), pytest.approx(10.85))
    assert first.draft_weight_bits["lm_head"] == first.target_weight_bits["embed"] == 16
    # 0.4 (1 + 2.85 + 7) instead of 0.4 x 16.
    coded = speedups.footprint("Cassandra-1", speedups.PRUNED_CODED)
    assert float(coded.target_weight_bits["q"]) == pytest.approx(11.85)
    # A sign and 4 of 8 mantissa bits, an exponent for 32 kept values.
    second = speedups.footprint("Cassandra-2", speedups.FROZEN)
    assert float(second.draft_weight_bits["q"]) == pytest.approx(1 + 0.6 * 5.25)
    assert float(second.target_weight_bits["q"]) == pytest.approx(1 + 0.6 * 9.25 + 6.4)
