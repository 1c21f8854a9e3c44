"""Rank traces that several tests count along."""

import numpy as np
import pytest
from rank_trace_samples import toy_traces


@pytest.fixture(scope="module")
def toy():
    return toy_traces(np.random.default_rng(4), texts=5, tokens=34, depth=5)
