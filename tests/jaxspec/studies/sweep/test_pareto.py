"""The Pareto front of a sweep: by comparing all pairs, and as it is shown."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.studies.sweep.pareto import is_pareto

pytestmark = pytest.mark.study


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6) | st.just(None)), max_size=25))
def test_pareto_by_comparing_all_pairs(points):
    x = np.array([p[0] for p in points], float)
    y = np.array([np.nan if p[1] is None else p[1] for p in points], float)
    keep = is_pareto(x, y)
    for i in range(len(points)):
        better = (x <= x[i]) & (y <= y[i]) & ((x < x[i]) | (y < y[i]))
        twin_before = np.any((x[:i] == x[i]) & (y[:i] == y[i]))
        assert keep[i] == (not np.isnan(y[i]) and not np.any(better) and not twin_before)
