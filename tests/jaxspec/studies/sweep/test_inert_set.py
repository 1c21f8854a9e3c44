"""Numbers of [set] that change nothing in a sweep are told, as axes are."""

import dataclasses

import pytest

from jaxspec.studies.sweep.config import SweepConfig
from jaxspec.studies.sweep.grid import plan_sweep
from jaxspec.studies.sweep.run import _spread, inert_settings, sweep

BATCHES = {"workload.batch": [1.0, 4.0]}

#: A draft that is never accepted is never used: what its steps read changes nothing.
NEVER = {"acceptance.alpha_token": 0.0}


def told(numbers, axes=BATCHES, **settings):
    config = SweepConfig(axes=axes, device=("rtx-4090",), architecture=("llama-3.2-1b",), set=numbers, **settings)
    return inert_settings(config, plan_sweep(config))


@pytest.mark.parametrize(
    ("numbers", "inert", "told_with"),
    [
        ({"engine.draft_pass_s": 1e-3}, "engine.draft_pass_s", "without it"),
        ({"engine.draft_pass_s": 0.0}, "engine.draft_pass_s", "with 1 in its place"),  # as it is anyway
        ({"footprint.draft_weight_bits": 4.0}, "footprint.draft_weight_bits", "without it"),
        ({"workload.context_tokens": 512.0}, None, ""),
        ({"device.memory.capacity_bytes": 1e9}, None, ""),  # a column of its own
    ],
)
def test_numbers_without_effect_are_told(numbers, inert, told_with):
    found = told(NEVER | numbers)
    expected = [] if inert is None else [f"no result depends on set.{inert} here: 2 points are the same {told_with}"]
    assert [note for note in found if "alpha_token" not in note] == expected


def test_a_number_that_is_as_it_would_be_without_is_not_told_where_others_change_results():
    assert told({"workload.context_tokens": 2048.0, "workload.output_tokens": 512.0}) == []


def test_a_knob_whose_widths_are_set_is_told():
    widths = {"footprint.draft_weight_bits": 5.0, "footprint.target_weight_bits": 12.0}
    (said,) = told({"draft.weight_prune": 0.5, **widths}, scheme="cassandra1")
    assert said == "no result depends on set.draft.weight_prune here: 2 points are the same without it"
    assert told({"draft.weight_prune": 0.5}, scheme="cassandra1") == []


def test_one_device_of_several_may_depend_on_it():
    """The first one has this rate anyway; of the second one it is less than its own, which many rows feel."""
    devices, rate = ("cassandra-npu-roofline", "rtx-4090"), {"device.peak_flops_per_s": 64e12}
    config = SweepConfig(axes={"workload.batch": [256.0]}, device=devices, architecture=("llama-3.2-1b",), set=rate)
    assert inert_settings(config, plan_sweep(config)) == []
    few = dataclasses.replace(config, axes={"workload.batch": [1.0]})
    (said,) = inert_settings(few, plan_sweep(few))
    assert said.endswith("set.device.peak_flops_per_s here: 2 points are the same without it")


def test_a_result_has_the_note(tmp_path):
    config = SweepConfig(axes=BATCHES, device=("rtx-4090",), set=NEVER | {"engine.draft_pass_s": 1e-3})
    notes = sweep(config, out=tmp_path / "run").notes
    assert [note for note in notes if note.startswith("no result depends on set.engine.draft_pass_s")]


@pytest.mark.parametrize(("chunks", "places"), [(range(3, 5), [3, 4]), (range(0, 71), [0, 10, 20, 30, 40, 50, 60, 70])])
def test_chunks_are_looked_at_from_the_first_to_the_last(chunks, places):
    assert _spread(chunks) == places
