"""Acceptance by knobs: a law that is found again, monotone in every direction, with its slope."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.tuning.acceptance_law import fit_law

pytestmark = pytest.mark.network

GRID = list(itertools.product((0.2, 0.3, 0.42, 0.55, 0.7), (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)))
KNOBS = {"prune": [p for p, _ in GRID], "bits": [b for _, b in GRID]}


def hazard(prune, bits):
    # More pruning is worse, more bits are better; both from the end that reads most.
    return 0.02 + 0.3 * ((prune - 0.2) / 0.5) ** 2 + 0.8 * ((6.0 - bits) / 5.0) ** 4


ALPHA = [float(np.exp(-hazard(p, b))) for p, b in GRID]


def test_a_law_of_its_own_form_is_found_again():
    fit = fit_law(KNOBS, ALPHA, profile=(1.0, 2.0))
    assert fit.law.names == ("prune", "bits")
    assert fit.largest_error < 1e-5
    assert fit.left_out_error < 0.1 * fit.mean_error
    found = fit.law.conditional({"prune": 0.45, "bits": 2.0}, 3)
    expected = hazard(0.45, 2.0)
    # Positions beyond the profile are as its last one.
    np.testing.assert_allclose(found, np.exp([-expected, -2 * expected, -2 * expected]), rtol=2e-2)


def test_any_points_give_a_monotone_law_within_0_and_1():
    rng = np.random.default_rng(3)
    fit = fit_law(KNOBS, rng.uniform(0.1, 1.0, len(GRID)))
    law = fit.law
    for name, way in zip(law.names, np.asarray(law.way), strict=True):
        base = {"prune": jnp.full(9, 0.3), "bits": jnp.full(9, 2.0)}
        low, high = min(KNOBS[name]), max(KNOBS[name])
        base[name] = jnp.linspace(low, high, 9)
        alpha = np.exp(-np.asarray(jax.vmap(law.hazard)(base)))
        assert np.all(np.diff(alpha) * np.sign(way) <= 1e-6)
        assert np.all((alpha > 0) & (alpha <= 1))
