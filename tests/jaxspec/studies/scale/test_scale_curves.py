"""Accuracy against budget from scripted samples: estimates, intervals, and passes of a batch."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from jaxspec.scaling import best_of_n_rate, longest_of_batch, longest_of_n, pass_at_n
from jaxspec.studies.scale.planning import curve_point, measured_method

PROBLEMS, SAMPLES = 30, 8


@pytest.fixture(scope="module")
def stages():
    rng = np.random.default_rng(1)
    right = rng.random((PROBLEMS, SAMPLES)) < rng.random((PROBLEMS, 1))
    samples = {
        "right": right,
        "score": np.where(rng.random(right.shape) < 0.2, np.nan, rng.normal(size=right.shape) + right),
        "spent": rng.integers(3, 40, right.shape),
        "ended": np.ones_like(right),
        "answer": np.where(right, 7, rng.integers(-1, 4, right.shape)),
    }
    beams = {name: rng.integers(1, 30, PROBLEMS) for name in ("passes", "tokens", "rounds")}
    beams["right"] = rng.random(PROBLEMS) < 0.9
    return SimpleNamespace(
        samples=lambda model: samples,
        beams=lambda model, count: beams,
        problems=SimpleNamespace(right_answer=lambda problem: 7),
        config=SimpleNamespace(seed=3),
        found=samples,
        found_beams=beams,
    )


def test_methods_are_their_estimators(stages):
    found = stages.found
    for method, wanted in (
        ("pass-at-n", pass_at_n(found["right"], 4)),
        ("best-of-n", best_of_n_rate(found["score"], found["right"], 4)),
    ):
        reached = measured_method(stages, "m", method, 4)
        np.testing.assert_array_equal(reached.rate, wanted)
        np.testing.assert_allclose(reached.tokens, 4 * found["spent"].mean(axis=1))
        np.testing.assert_array_equal(reached.passes, longest_of_n(found["spent"], 4))
        assert reached.batch_passes(1) == pytest.approx(reached.passes.mean())
        assert reached.batch_passes(5) == longest_of_batch(found["spent"], 4, 5) > reached.passes.mean()
    voted = measured_method(stages, "m", "majority", SAMPLES)
    assert 0.3 < voted.rate.mean() < pass_at_n(found["right"], SAMPLES).mean()
    searched = measured_method(stages, "m", "beam", 4)
    assert searched.rate.tolist() == stages.found_beams["right"].tolist()
    assert searched.passes.tolist() == stages.found_beams["passes"].tolist()
    assert searched.batch_passes(1) == pytest.approx(searched.passes.mean())
    assert searched.batch_passes(1000) == pytest.approx(searched.passes.max(), rel=1e-3)


def test_a_point_has_intervals(stages):
    one, many = (measured_method(stages, "m", "pass-at-n", n) for n in (1, 4))
    point = curve_point(one, many, 4)
    assert point.accuracy.value == pytest.approx(many.rate.mean())
    assert point.accuracy.standard_error == pytest.approx(stats.sem(many.rate))
    assert 0 < point.low.known < point.accuracy.known < point.high.known < 1
    assert point.gain.standard_error == pytest.approx(stats.sem(many.rate - one.rate))
    assert point.gain_low.known > 0
    same = curve_point(one, one, 1)
    assert (same.gain.value, same.gain_low.value, same.gain_high.value) == (0, 0, 0)


@pytest.mark.parametrize("right", [0, 7, PROBLEMS])
def test_of_zeros_and_ones_the_interval_is_wilsons(stages, right):
    one = measured_method(stages, "m", "pass-at-n", 1)
    rate = (np.arange(PROBLEMS) < right).astype(float)
    point = curve_point(one, one._replace(rate=rate), 1)
    wanted = stats.binomtest(right, PROBLEMS).proportion_ci(method="wilson")
    # The standard error is that of a sample, with one problem less.
    tolerance = 0.01 if 0 < right < PROBLEMS else 1e-6
    assert (point.low.known, point.high.known) == pytest.approx((wanted.low, wanted.high), abs=tolerance)
