"""The choice on the host is the one of compiled programs, ties included."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.compress.schemes import SCHEMES
from jaxspec.compress.selection import hard_mask, keep_largest, keep_largest_of_rows, log_of, wanda_score
from jaxspec.studies.pack.draft_split import wanda_ranking

pytestmark = pytest.mark.scheme_matrix


@pytest.mark.parametrize("distinct", [1, 2, 9, 1 << 32])
def test_partition_keeps_what_bisection_keeps(distinct):
    magnitude = np.random.default_rng(distinct % 97).integers(distinct, size=(30, 13)).astype(np.uint32)
    for keep in (0, 1, 6, 12, 13):
        expected = keep_largest(jnp.asarray(magnitude), jnp.asarray(keep))
        np.testing.assert_array_equal(keep_largest_of_rows(magnitude, keep), expected)


@pytest.mark.parametrize("scheme_name", ["cassandra1", "cassandra2"])
def test_ranking_is_that_of_drafts_that_are_tuned(scheme_name):
    """Of values with many ties, zeros and a channel that is never active."""
    rng, scheme = np.random.default_rng(3), SCHEMES[scheme_name]
    values = jnp.asarray(rng.integers(-5, 6, size=(20, 64)) * 0.01, jnp.bfloat16)
    norms = jnp.asarray(rng.integers(0, 4, size=64), jnp.float32)
    mask = keep_largest_of_rows(np.asarray(wanda_ranking(values, norms, scheme=scheme)), 24)
    scores = log_of(wanda_score(scheme.matrix.target(values), norms))
    np.testing.assert_array_equal(mask, hard_mask(scores, jnp.asarray(40 / 64)))
