"""Test-time scaling: several continuations of one prompt, and ways to make one answer of them."""

from jaxspec.scaling.beam import Beams, BeamSearch, beam_search
from jaxspec.scaling.branches import Branches, grow, kept_branches, started
from jaxspec.scaling.estimators import (
    best_of_n,
    best_of_n_rate,
    longest_of_batch,
    longest_of_n,
    majority_answer,
    majority_rate,
    pass_at_n,
)
from jaxspec.scaling.sampling import Samples, sample_continuations

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
