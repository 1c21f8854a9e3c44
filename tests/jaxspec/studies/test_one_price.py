"""One draft on one device with one engine has one price, and one interval, in every command."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from narrow_devices import kernels_of_16_bits

import jaxspec as js
from hwmodels import (
    Case,
    DraftCost,
    EngineTerms,
    Footprint,
    Routing,
    Workload,
    catalog,
    chain_plan,
    expected_tokens_iid,
    price,
)
from hwmodels.analysis.uncertainty.cycle_errors import COVERAGE, chain_numbers
from hwmodels.serving.step_table import priced_table
from jaxspec.compress.footprint import uniform
from jaxspec.settings import build_config, knob_values
from jaxspec.settings.knobs import EXPERT_POOL
from jaxspec.studies.advise.config import AdviseConfig
from jaxspec.studies.advise.inputs import named_draft
from jaxspec.studies.compare.run import price_chains
from jaxspec.studies.design_tree import case_of, design_tree
from jaxspec.studies.engine_pricing import copy_by_scheme, with_experts
from jaxspec.studies.headline_intervals import headline_intervals
from jaxspec.studies.measured.comparison import priced_cycle
from jaxspec.studies.predict.config import PredictConfig
from jaxspec.studies.predict.run import KnownErrors, _points
from jaxspec.studies.scale.planning import price_speculation
from jaxspec.studies.sweep.config import SweepConfig
from jaxspec.studies.sweep.grid import begin_points
from jaxspec.studies.tree.run import cycle_times_of, price_growths
from jaxspec.trees.topology import NestedTrees
from jaxspec.tuning.objective import DraftMeasurement

pytestmark = pytest.mark.study

LENGTH, BATCH, CONTEXT, ALPHA, SCATTER = 3, 5.0, 700.0, 0.9, 0.05
WIDTHS = (7.0, 16.0, 9.0, 16.0)
TERMS = EngineTerms(cycle_s=4e-4, draft_pass_s=3e-5, drafted_token_s=7e-6)


@pytest.fixture(scope="module")
def pricing():
    device = kernels_of_16_bits(catalog.device("h100-sxm"))
    workload = Workload(batch=BATCH, context_tokens=CONTEXT, prompt_tokens=CONTEXT, output_tokens=64.0)
    return Case(device, catalog.architecture("llama-3.1-8b"), workload, engine=TERMS)


@pytest.fixture(scope="module")
def directly(pricing):
    """Seconds of the cycle and of a step without a draft, the speedup, and the ends of its interval."""

    @jax.jit
    def priced(pricing):
        cycle = price(
            dataclasses.replace(pricing, footprint=uniform(*WIDTHS)), chain_plan(jnp.arange(1.0, LENGTH + 1.0))
        )
        chances = jnp.full(LENGTH, ALPHA)
        return cycle.total_s[-1], chain_numbers(
            pricing.device, cycle, float(LENGTH), chances, batch=BATCH, scatter=SCATTER
        )

    cycle_s, numbers = priced(pricing)
    speedup = numbers["speedup_vs_stored_ar"]
    step_s = float(numbers["ar_stored_s"].value)
    assert float(speedup.value) == pytest.approx(
        step_s * float(expected_tokens_iid(ALPHA, LENGTH)) / float(cycle_s), rel=1e-5
    )
    return float(cycle_s), step_s, float(speedup.value), [float(end) for end in speedup.ends(COVERAGE)]


def of_evaluate(pricing):
    draft, target, draft_kv, target_kv = (jnp.full(2, bits) for bits in WIDTHS)
    kinds = ("q", "k", "v", "o", "gate", "up", "down")
    footprint = Footprint(dict.fromkeys(kinds, draft), dict.fromkeys(kinds, target), draft_kv, target_kv)
    zero = jnp.zeros(())
    found = priced_cycle(pricing, DraftMeasurement(jnp.ones(1), zero, zero, zero, footprint), LENGTH)
    times = dataclasses.replace(found["times"], scatter=np.float32(SCATTER))
    return found["cycle"].total_s.known, found["cycle"].ar_stored_s.known, times


def with_widths(pricing):
    return pricing.replace(footprint=uniform(*WIDTHS), draft=DraftCost())


def of_tree(pricing):
    chain = NestedTrees(np.arange(LENGTH) - 1, np.zeros(LENGTH, int))
    (times,) = price_growths(with_widths(pricing), [chain], contexts=(int(CONTEXT),))
    cycle_s = times.verify_s[0, -1] + times.draft_s[0, -1] + times.engine_s[0, -1]
    return cycle_s, times.ar_stored_s[0], cycle_times_of(times, context=0, size=LENGTH - 1, scatter=np.float32(SCATTER))


def of_compare(pricing):
    prices = price_chains(with_widths(pricing), LENGTH)
    return prices.cycle_s[LENGTH], prices.cycle_s[0], prices.times(LENGTH, SCATTER)


@pytest.mark.parametrize("command", [of_evaluate, of_tree, of_compare])
def test_commands_that_measure(pricing, directly, command):
    cycle_s, step_s, times = command(pricing)
    assert cycle_s == pytest.approx(directly[0], rel=1e-5)
    assert step_s == pytest.approx(directly[1], rel=1e-5)
    held = headline_intervals(times, [ALPHA] * LENGTH, [0.0] * LENGTH, batch=BATCH)
    assert held.covers == ["calibration", "engine"]
    ends = held.speedup_vs_stored_ar
    assert [ends.low.known, ends.high.known] == pytest.approx(directly[3], rel=1e-4)
    # Of log-normal numbers the estimate is the geometric mean of both ends.
    assert np.sqrt(ends.low.known * ends.high.known) == pytest.approx(directly[2], rel=1e-4)


def test_commands_that_predict_points(pricing, directly):
    errors = KnownErrors(np.zeros(LENGTH, np.float32), np.asarray(SCATTER, np.float32))
    case = dataclasses.replace(pricing, footprint=uniform(*WIDTHS))
    chains, points, numbers, _ = _points(case, jnp.full(LENGTH, ALPHA), errors)
    # The first row is that of the workload's own batch.
    result, point, numbers = jax.tree.map(lambda leaf: leaf[0], (chains.result, points, numbers))
    assert float(result.cycle_s[LENGTH]) == pytest.approx(directly[0], rel=1e-5)
    assert float(result.speedup_vs_stored_ar[LENGTH]) == pytest.approx(directly[2], rel=1e-5)
    best = int(point.draft_length)
    base = {
        "acceptance": {"alpha_token": ALPHA},
        "architecture": pricing.architecture,
        "device": pricing.device,
        "draft": {},
        "engine": pricing.engine,
        "footprint": dict(
            zip(("draft_weight_bits", "target_weight_bits", "draft_kv_bits", "target_kv_bits"), WIDTHS, strict=True)
        )
        | {"expert_bits": None},
        "routing": Routing(),
        "workload": pricing.workload,
    }
    assert best > 0
    varied = {"workload.batch": np.array([BATCH, BATCH]), "engine.cycle_s": np.array([4e-4, 0.0])}
    asked = {"shape": (2,), "max_draft_length": LENGTH, "intervals": True}
    rows = begin_points(base, varied, scatter=SCATTER, **asked)()
    assert rows["draft_length"].tolist() == [best, best]
    assert rows["cycle_s"] == pytest.approx(float(result.cycle_s[best]) - np.array([0.0, 4e-4]), rel=1e-5)
    for name in ("cycle_s", "speedup_vs_stored_ar", "tokens_per_s", "ar_bf16_s"):
        low, high = (float(end[best]) for end in numbers[name].ends(COVERAGE))
        assert rows[f"{name}_low"][0] == pytest.approx(low, rel=1e-4)
        assert rows[f"{name}_high"][0] == pytest.approx(high, rel=1e-4)
    none = begin_points(base | {"device": catalog.device("rtx-4090")}, varied, **asked)()
    assert np.isnan(none["cycle_s_low"]).all()


def test_answers_and_steps_of_an_engine(pricing, directly):
    passes = 64.0
    tokens = jnp.concatenate([jnp.ones(1), expected_tokens_iid(ALPHA, LENGTH)[None]])
    lengths = jnp.array([float(LENGTH)])
    found = price_speculation(
        dataclasses.replace(pricing, footprint=uniform(*WIDTHS), draft=DraftCost(statement="")),
        jnp.asarray(CONTEXT - passes / 2.0),
        jnp.array([BATCH]),
        jnp.array([passes]),
        lengths,
        tokens,
        jnp.asarray(SCATTER),
    )
    assert float(found.cycle_s[0, 1]) == pytest.approx(directly[0], rel=1e-5)
    answer_s = float(found.prefill_s[0]) + passes / float(tokens[1]) * directly[0]
    assert float(found.numbers["speculation_s"].value[0, 1]) == pytest.approx(answer_s, rel=1e-4)
    plain_s = float(found.prefill_s[0]) + passes * directly[1]
    assert float(found.numbers["speedup"].value[0, 1]) == pytest.approx(plain_s / answer_s, rel=1e-4)
    assert float(found.numbers["speedup"].log_deviation[0, 0]) < 1e-5  # plain decoding over itself
    most = {"max_batch": 5, "max_context": int(CONTEXT), "max_chunk": 64}
    case = dataclasses.replace(pricing, footprint=uniform(*WIDTHS))
    table = priced_table(case, **most, draft_length=LENGTH, scatter=SCATTER)
    assert float(table.seconds[LENGTH, 5, -1, 0]) == pytest.approx(directly[0], rel=1e-5)
    assert float(table.seconds[0, 5, -1, 0]) == pytest.approx(directly[1], rel=1e-5)
    assert float(table.deviation[LENGTH, 5, -1, 0]) > SCATTER > float(table.deviation[0, 5, -1, 0]) > 0.01
    slow = table.erring(1.0)
    np.testing.assert_allclose(slow.seconds, table.seconds * np.exp(table.deviation), rtol=1e-6)


@pytest.mark.parametrize(("name", "scheme"), [("qwen3-30b-a3b", "elastic"), ("llama-3.1-8b", "elastic")])
def test_a_copy_that_chooses_among_a_pool_does_so_in_every_command(name, scheme):
    config, target = build_config(PredictConfig, {"architecture": name, "scheme": scheme}), catalog.architecture(name)
    case = Case(catalog.device("rtx-4090"), target, Workload(), footprint=uniform(*WIDTHS))
    predicted = with_experts(case, config, name, knob_values(config)[EXPERT_POOL.name]).draft
    tree = design_tree(build_config(SweepConfig, {"axes": {"workload.batch": [1]}, "scheme": scheme}), name, "rtx-4090")
    swept = case_of(tree).draft
    advised = named_draft(build_config(AdviseConfig, {"draft": "self", "scheme": scheme}), target)
    pools = [float(cost.pool_experts) for cost in (predicted, swept, copy_by_scheme(scheme, target), advised)]
    assert pools == [pools[0]] * 4
    assert (pools[0] < target.num_experts) == (target.num_experts > 0)


def test_the_engine_of_the_settings_is_priced_everywhere():
    config = build_config(SweepConfig, {"axes": {"workload.batch": [1, 2]}, "engine": "vllm"})
    tree = design_tree(config, "llama-3.1-8b", "h100-sxm")
    assert tree["engine"] == catalog.engine("vllm")
    other = design_tree(dataclasses.replace(config, set={"engine.cycle_s": 5e-4}), "llama-3.1-8b", "h100-sxm")
    assert other["engine"].cycle_s == 5e-4
    assert other["engine"].draft_pass_s == catalog.engine("vllm").draft_pass_s


@pytest.mark.parametrize(("device", "engine"), [("m4-pro", "llama.cpp"), (None, "vllm")])
def test_advice_and_prediction_are_equal(tmp_path, device, engine):
    # The second is a changed GPU: nobody measured the engine on it, so its own kernels count in both, with a note.
    own = device or js.device("h100-sxm", memory_bandwidth_bytes_per_s=2e12)
    given = {"device": own, "engine": engine, "draft": "llama-3.2-1b", "architecture": "llama-3.1-8b"}
    given |= {"acceptance": 0.7, "max_draft_length": 3}
    (advised,) = js.advise(**given, batch=(4,), out=tmp_path / "advised").by_batch
    predicted = js.predict(**given, batch=4)
    speedups = [row.speedup_vs_stored_ar.known for row in predicted.by_draft_length[1:]]
    assert advised.speedups.known == pytest.approx(speedups, rel=1e-5)
    assert advised.tokens_per_s.known == pytest.approx(predicted.tokens_per_s.known, rel=1e-5)
    assert any("the device's own numbers count" in note for note in predicted.notes) == (device is None)
