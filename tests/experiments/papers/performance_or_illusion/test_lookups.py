"""The catalog's time of lookups is the one that Fig. 4 gives."""

import pytest

from experiments.papers.performance_or_illusion.tables import sequence_seconds
from hwmodels import catalog


@pytest.mark.slow
def test_the_catalog_has_what_the_figure_says_of_lookups():
    found = sequence_seconds()
    for engine in ("vllm", "vllm-2025"):
        assert catalog.engine(engine).lookup_sequence_s == pytest.approx(found, rel=0.01)
