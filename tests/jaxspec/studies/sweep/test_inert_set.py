"""Numbers of [set] that change nothing in a sweep are named in notes, as axes are."""

import pytest

from jaxspec.studies.sweep.config import SweepConfig
from jaxspec.studies.sweep.grid import plan_sweep
from jaxspec.studies.sweep.run import inert_settings

BATCHES = {"workload.batch": [1.0, 4.0]}

#: A draft that is never accepted is never used: what its steps read changes nothing.
NEVER = {"acceptance.alpha_token": 0.0}


def notes_of(numbers, axes=BATCHES, **settings):
    config = SweepConfig(axes=axes, device=("rtx-4090",), architecture=("llama-3.2-1b",), set=numbers, **settings)
    return inert_settings(config, plan_sweep(config))


@pytest.mark.parametrize(
    ("numbers", "inert", "unchanged"),
    [
        ({"engine.draft_pass_s": 1e-3}, "engine.draft_pass_s", "without it"),
        ({"engine.draft_pass_s": 0.0}, "engine.draft_pass_s", "with 1 in its place"),  # as it is anyway
        ({"footprint.draft_weight_bits": 4.0}, "footprint.draft_weight_bits", "without it"),
        ({"workload.context_tokens": 512.0}, None, ""),
        ({"device.memory.capacity_bytes": 1e9}, None, ""),  # a column of its own
    ],
)
def test_numbers_without_effect_are_named(numbers, inert, unchanged):
    found = notes_of(NEVER | numbers)
    expected = [] if inert is None else [f"no result depends on set.{inert} here: 2 points are the same {unchanged}"]
    assert [note for note in found if "alpha_token" not in note] == expected
