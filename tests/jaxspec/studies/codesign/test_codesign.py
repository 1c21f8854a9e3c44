"""`jaxspec codesign`: a small problem from its file to its page, and problems in which something is free."""

import dataclasses
import tomllib

import numpy as np
import pytest

from jaxspec.errors import InputError
from jaxspec.settings.base import Layer, build_config
from jaxspec.studies.codesign.config import CodesignConfig
from jaxspec.studies.codesign.examples import EXAMPLES
from jaxspec.studies.codesign.problem import make_problem
from jaxspec.studies.codesign.run import checked_problem, codesign

PROBLEM = """
architecture = "qwen3-0.6b"
device = "cassandra-npu"
scheme = "bit-slices"
max_draft_length = 2
starts = 3
iterations = 15
[set]
"device.chip.area_m2" = 2.7e-5
"workload.batch" = 64
[variables]
"draft.slice_bits" = { from = 2, to = 6 }
"device.peak_flops_per_s" = { from = 1e12, to = 128e12 }
"device.memory.bandwidth_bytes_per_s" = { from = 30e9, to = 900e9 }
"device.decoder.count" = { from = 1, to = 300, step = 3 }
[budgets]
area_mm2 = 80
power_w = 20
[costs.multiply-adds]
of = { peak_flops_per_s = 1 }
area_mm2 = 1e-12
source = "made up"
[costs.interface]
of = { "memory.bandwidth_bytes_per_s" = 1 }
area_mm2 = 6e-11
source = "made up"
[acceptance.points]
slice_bits = [2, 4, 6]
alpha_token = [0.3, 0.85, 0.97]
"""


def config_of(text=PROBLEM, **changes):
    return dataclasses.replace(build_config(CodesignConfig, Layer(tomllib.loads(text))), **changes)


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("codesign")
    return codesign(config_of(), out=folder / "run"), folder / "run"


def test_the_proposal_keeps_its_limits_and_beats_the_design_before(solved):
    result, folder = solved
    assert result.after.feasible
    assert result.gain.known > 1.0
    for row in result.budgets:
        assert row.after.known <= row.limit.known * (1 + 1e-5)
    for row in result.variables:
        assert row.low <= row.after.known <= row.high
        if row.step is not None:
            assert row.after.known % row.step == pytest.approx(0.0, abs=1e-9)
    assert {row.name: row.step for row in result.variables}["draft.slice_bits"] == 1.0
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "device.decoder.count" in page
    assert page.count("<svg") == 2


def test_no_step_to_a_neighbour_helps(solved):
    result, _ = solved
    problem = make_problem(config_of())
    best = np.array([row.after.known for row in result.variables])
    rng = np.random.default_rng(5)
    around = np.clip(best * rng.uniform(0.97, 1.03, (64, len(best))), problem.variables.low, problem.variables.high)
    for i, step in enumerate(problem.variables.steps):
        if step is not None:
            around[:, i] = np.clip(
                best[i] + step * rng.integers(-1, 2, 64), problem.variables.low[i], problem.variables.high[i]
            )
    values = problem.values(around)
    kept = values[:, 1:].max(axis=1) <= 0
    assert np.all(-values[kept, 0] <= np.log(result.after.tokens_per_s.known) + 2e-3)


def test_budgets_that_hold_have_a_price_which_their_variables_share(solved):
    result, _ = solved
    reached = [row for row in result.budgets if row.active]
    assert reached
    assert max(row.multiplier.known for row in reached) > 0.01


def test_a_finished_run_is_reprinted(solved):
    result, folder = solved
    assert codesign(config_of(), out=folder).plain() == result.plain()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"device.decoder.count" = { from = 1, to = 300, step = 3 }',
         '"device.memory.capacity_bytes" = { from = 1e10, to = 1e12 }',
         "variables.device.memory.capacity_bytes is a free lunch"),
        ('slice_bits = [2, 4, 6]', 'slice_bits = [3, 4, 6]', "acceptance is known from 3 to 6"),
        ('[acceptance.points]\nslice_bits = [2, 4, 6]\nalpha_token = [0.3, 0.85, 0.97]', '[acceptance]\nalpha_token = 0.8',
         "variables.draft.slice_bits is a free lunch"),
        ('area_mm2 = 80', 'price = 80', "budgets.price came, and nothing of this device takes from it"),
        ('"draft.slice_bits" = { from = 2, to = 6 }', '"workload.context_tokens" = { from = 2, to = 6 }',
         "no part of a design"),
        ('of = { peak_flops_per_s = 1 }', 'of = { elements = 1 }', "costs.multiply-adds is of 'elements'"),
        ('step = 3', 'step = 400', "no two multiples of 400"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_a_line(old, new, words):
    assert old in PROBLEM
    with pytest.raises(InputError, match=words):
        checked_problem(config_of(PROBLEM.replace(old, new)))


def test_a_larger_array_must_cost_area_and_power():
    text = EXAMPLES["fpga"].replace(
        "[costs.elements]\nof = { elements = 1 }", "[costs.elements]\nof = { kv_traffic_factor = 1 }"
    )
    with pytest.raises(InputError, match=r"matrix_unit\.rows is a free lunch: a larger array costs no area_mm2"):
        checked_problem(config_of(text, max_draft_length=2))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_solved(name, tmp_path):
    result = codesign(config_of(EXAMPLES[name]), out=tmp_path / "run")
    assert result.after.feasible
    assert result.gain.known > 1.05
