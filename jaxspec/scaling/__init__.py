"""Test-time scaling: several continuations of one prompt, and ways to make one answer of them."""

from jaxspec.scaling.branches import (
    Beams,
    BeamSearch,
    Branches,
    Samples,
    beam_search,
    grow,
    kept_branches,
    sample_continuations,
    started,
)
from jaxspec.scaling.estimators import (
    best_of_n,
    best_of_n_rate,
    longest_of_batch,
    longest_of_n,
    majority_answer,
    majority_rate,
    pass_at_n,
)

__all__ = [
    "BeamSearch",
    "Beams",
    "Branches",
    "Samples",
    "beam_search",
    "best_of_n",
    "best_of_n_rate",
    "grow",
    "kept_branches",
    "longest_of_batch",
    "longest_of_n",
    "majority_answer",
    "majority_rate",
    "pass_at_n",
    "sample_continuations",
    "started",
]
