"""The paper's own search beside the tuned draft: a grid in two stages, by the objective J, on a few samples."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxspec.compress.knobs import Knobs, uniform_knobs
from jaxspec.runs.stages import Arrays
from jaxspec.studies.measured.hard_drafts import HardDrafts
from jaxspec.tuning.compression_objective import compiled_j, num_candidates, two_stages
from jaxspec.tuning.objective import Pricing

__all__ = ["search_by_j"]

_STAGE = "search-by-j"

#: Windows of calibration text that it measures on: Cassandra, VII-B.2, after Draft & Verify.
_SAMPLES = 8


def search_by_j(drafts: HardDrafts, pricing: Pricing) -> Knobs:
    """The draft that the search finds; a stage. J knows no device: each of a run's gives the same.

    Args:
        drafts: of a scheme that prunes and cuts; their first windows are measured on.
    """
    setup, work = drafts.work.setup, drafts.work
    few = drafts.on_windows(setup.calibration_prompts[:_SAMPLES], "few-samples")

    def compute() -> Arrays:
        with work.bar("searching a grid in two stages by J", num_candidates()) as bar:

            def score(knobs: Knobs) -> float:
                found = float(compiled_j(setup.config)(pricing, few.measure(knobs), knobs))
                bar.advance(f"J {found:.3f} of a whole draft's")
                return found

            return dict(two_stages(setup.scheme, setup.config, pricing, score).values)

    if not work.stages.has(_STAGE):
        _ = few.calibration  # stages of its own, whose bars may not begin inside this one
    values = work.stages.run(_STAGE, compute)
    return uniform_knobs(setup.scheme, setup.config).replace_values(**jax.tree.map(jnp.asarray, values))
