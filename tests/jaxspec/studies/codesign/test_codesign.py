"""`jaxspec codesign`: a small problem from its file to its page, and problems in which something is free."""

import dataclasses
import re
import tomllib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import Acceptance, Case, Workload, catalog, priced_chains
from jaxspec.compress.footprint import uniform
from jaxspec.compress.footprint_table import WIDTHS, expected_widths
from jaxspec.compress.schemes import find_scheme
from jaxspec.errors import InputError
from jaxspec.settings import CommonConfig
from jaxspec.settings.base import Layer, build_config
from jaxspec.studies.codesign.config import EXAMPLES, CodesignConfig
from jaxspec.studies.codesign.problem import make_problem
from jaxspec.studies.codesign.run import checked_problem, codesign

pytestmark = pytest.mark.study

PROBLEM = """
architecture = "qwen3-0.6b"
device = "cassandra-npu-roofline"
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
        assert row.after.known <= row.limit.known * (1 + 2.0**-23)
    for row in result.variables:
        assert row.low <= row.after.known <= row.high
        if row.step is not None:
            assert row.after.known % row.step == pytest.approx(0.0, abs=1e-9)
    assert {row.name: row.step for row in result.variables}["draft.slice_bits"] == 1.0
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "@media print" in page  # nothing scrolls on paper
    assert "device.decoder.count" in page
    assert page.count("<figure>") == page.count("<svg") == 2
    assert "figure svg { min-width" in page  # on a narrow screen it scrolls, with text that can be read


def test_the_proposal_is_what_the_models_say(solved):
    result, folder = solved
    chosen = {row.name: row.after.known for row in result.variables}
    device = catalog.device_entry(str(folder / "proposal.toml")).device
    assert float(device.decoder.count) == chosen["device.decoder.count"]
    read = expected_widths(find_scheme("bit-slices"), {"slice_bits": chosen["draft.slice_bits"]})
    config = config_of()
    workload = Workload(batch=64, context_tokens=build_config(CommonConfig, {}).context)
    network, footprint = catalog.architecture(config.architecture), uniform(*(read[name] for name in WIDTHS))
    acceptance = Acceptance(jnp.full(2, result.after.acceptance.known))
    priced = jax.jit(priced_chains)(Case(device, network, workload, footprint), acceptance).result
    rates = 64 * np.asarray(priced.tokens_per_cycle) / np.asarray(priced.cycle_s)
    assert rates.max() == pytest.approx(result.after.tokens_per_s.known, rel=1e-5)
    assert rates.argmax() == result.after.draft_tokens.known
    peak, bandwidth = chosen["device.peak_flops_per_s"], chosen["device.memory.bandwidth_bytes_per_s"]
    area_mm2 = 27 + 0.044 * chosen["device.decoder.count"] + 1e-12 * peak + 6e-11 * bandwidth
    assert result.after.area_mm2.known == pytest.approx(area_mm2, rel=1e-5)
    assert (result.before.price.value, result.after.price.value) == (None, None)  # nothing says what it costs


def test_slopes_are_those_of_small_changes(solved):
    result, _ = solved
    problem = make_problem(config_of())
    best = np.array([row.after.known for row in result.variables])
    between = [i for i, row in enumerate(result.variables) if not row.at]
    assert len(between) >= 2
    for i in between:
        ends = np.stack([best, best])
        ends[:, i] *= [0.99, 1.01]
        places = problem.variables.places(np.concatenate([ends, best[None]]))
        gained = -float(np.diff(problem.smooth(places)[0][:2, 0])[0])
        row, found = result.variables[i], problem.numbers(ends)
        assert row.elasticity.known == pytest.approx(gained / np.log(1.01 / 0.99), rel=0.02, abs=2e-3)
        for more, per in ((np.diff(found.area_mm2)[0], row.per_mm2), (np.diff(found.power_w)[0], row.per_w)):
            if per.value is None:
                assert abs(more) < 1e-4
            else:
                assert per.known == pytest.approx(100 * gained / more, rel=0.03, abs=5e-3)


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


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"device.decoder.count" = { from = 1, to = 300, step = 3 }',
         '"device.memory.capacity_bytes" = { from = 1e10, to = 1e12 }',
         "variables.device.memory.capacity_bytes is a free lunch"),
        ('slice_bits = [2, 4, 6]', 'slice_bits = [3, 4, 6]', "acceptance is known from 3 to 6"),
        ('[acceptance.points]\nslice_bits = [2, 4, 6]\nalpha_token = [0.3, 0.85, 0.97]', '[acceptance]\nalpha_token = 0.8',
         "variables.draft.slice_bits is a free lunch"),
        ('area_mm2 = 80', 'area_mm2 = 8', r"area_mm2 is 8, and the cheapest of all designs takes \d+.*raise it, or widen"),
        ('alpha_token = [0.3, 0.85, 0.97]', 'alpha_token = [0.9, 0.9, 0.9]', "is the same along it"),
        ('of = { peak_flops_per_s = 1 }', 'of = { kv_traffic_factor = 1 }',
         "a larger array costs no area_mm2; .*of = { peak_flops"),
        ('"draft.slice_bits" = { from = 2, to = 6 }', '"device.technology.node_m" = { from = 2e-9, to = 6e-9 }',
         "is not a number of a design point"),
        ('area_mm2 = 80', 'area_m2 = 80e-6', "budgets has 'area_m2', which is not known; did you mean 'area_mm2'"),
        ('"draft.slice_bits"', '"draft.slicebits"', r"on cassandra-npu-roofline; did you mean 'draft\.slice_bits'\?$"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_a_line(old, new, words):
    assert old in PROBLEM
    with pytest.raises(InputError, match=words):
        checked_problem(config_of(PROBLEM.replace(old, new)))


#: An array whose area and power a file says by itself.
ARRAY = """
[costs.elements]
of = { elements = 1 }
area_mm2 = 0.02
source = "made up"
[costs.switching]
of = { elements = 1, "matrix_unit.frequency_hz" = 1 }
power_w = 6e-12
source = "made up"
[costs.interface]
of = { "memory.bandwidth_bytes_per_s" = 1 }
area_mm2 = 3e-10
source = "made up"
"""


@pytest.mark.parametrize(("cost", "words"), [("elements", "area_mm2"), ("switching", "power_w")])
def test_a_larger_array_must_cost_area_and_power(cost, words):
    """An array whose elements are left out of one cost is refused, whatever else costs."""
    text = re.sub(r"\[technology\].*?\n\n", ARRAY, EXAMPLES["fpga"], flags=re.DOTALL)
    text = re.sub(r".*frequency_hz. = \{ from.*\n", "", text)  # free without switching
    text = re.sub(rf"\[costs\.{cost}\].*?\n(?=\[|\n)", "", text, flags=re.DOTALL)
    assert f"[costs.{cost}]" not in text
    with pytest.raises(InputError, match=rf"matrix_unit\.rows is a free lunch: a larger array costs no {words}"):
        checked_problem(config_of(text, max_draft_length=2))


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_solved(name, tmp_path):
    result = codesign(config_of(EXAMPLES[name]), out=tmp_path / "run")
    assert result.after.feasible
    assert result.gain.known > 1.05
