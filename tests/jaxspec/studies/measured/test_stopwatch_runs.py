"""A run with a stopwatch: what its result says, on the device of a file and on one of the catalog; and what is refused."""

import numpy as np
import pytest

from hwmodels import (
    COMPRESSED_COPY,
    NO_ENGINE,
    Case,
    DraftCost,
    EngineTerms,
    Workload,
    catalog,
    chain_plan,
    price,
    uniform_footprint,
)
from hwmodels.speculation import engine_time
from jaxspec.host.measuring import measured_title
from jaxspec.host.stopwatch import chain_way
from jaxspec.models import DecoderConfig
from jaxspec.models.architecture import architecture_of
from jaxspec.results.network_results import RunningModel
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.progress import Reporter
from jaxspec.speculate import GREEDY
from jaxspec.speculate.drafts import NGramDraft, NGramParams, ReadyDraft
from jaxspec.studies.evaluate.config import EvaluateConfig
from jaxspec.studies.evaluate.result import EvaluateResult
from jaxspec.studies.evaluate.run import evaluate
from jaxspec.studies.measured.run_context import begin_run
from jaxspec.studies.measured.stopwatch import predict_ways, stopwatch_part

pytestmark = pytest.mark.study

HOST = """
title = "{title}"
peak_flops_per_s = { value = 50e9, source = "assumed" }
compute_efficiency = { value = 0.7, source = "assumed" }
operator_latency_s = { value = 2e-6, source = "assumed" }

[memory]
bandwidth_bytes_per_s = { value = 10e9, source = "assumed" }
efficiency = { value = 0.9, source = "assumed" }
capacity_bytes = { value = 8e9, source = "assumed" }
"""


@pytest.fixture(scope="module")
def settings(tmp_path_factory, tiny_model, some_text):
    host = tmp_path_factory.mktemp("device") / "host.toml"
    host.write_text(HOST.replace("{title}", measured_title()))
    return EvaluateConfig(
        model=str(tiny_model),
        text=str(some_text),
        architecture="own",
        device=(str(host), "rtx-4090"),
        batch=2,
        prompts=3,
        prompt_tokens=12,
        output_tokens=10,
        calibration_prompts=4,
        draft_length=2,
        stopwatch=True,
        repeats=3,
    )


@pytest.fixture(scope="module")
def timed(settings, tmp_path_factory):
    """Results of both devices with nothing but the stopwatch, and the folder of the stages."""
    folder, made = tmp_path_factory.mktemp("timed"), []
    with RunDirectory("evaluate", settings, out=folder / "run") as directory:
        work = begin_run(settings, directory, Reporter(period_s=1e9))

    def ways():
        made.append(1)
        draft = ReadyDraft(NGramDraft(work.setup.config.vocab_size), NGramParams())
        return {"given": chain_way(draft, 2, GREEDY)}

    cost = DraftCost(passes=0.0)
    parts = [stopwatch_part(work, device, "name", ways, cost=cost) for device in settings.device]
    assert len(made) == 1
    return [EvaluateResult(model=RunningModel(name="tiny"), stopwatch=part) for part in parts], folder


def test_ways_are_timed_once_and_predicted_for_a_file_alone(timed):
    (here, other), _ = timed
    for clock in (here.stopwatch, other.stopwatch):
        assert clock.prompts.value == 2  # one whole batch of three prompts
        assert clock.repeats.value == 3
        assert clock.autoregressive.tokens_per_turn.value == 2.0
        assert clock.ways["given"].drafted_tokens.value == 2
        assert clock.ways["given"].equal_tokens.value == 1.0
    assert here.stopwatch.ways["given"].speedup == other.stopwatch.ways["given"].speedup
    assert other.stopwatch.ways["given"].predicted is None
    assert "another machine" in other.stopwatch.statement
    told, way = here.stopwatch.ways["given"].predicted, here.stopwatch.ways["given"]
    step_s = here.stopwatch.autoregressive.predicted.cycle_s.value
    assert told.cycle_s.value == pytest.approx(2 * told.draft_step_s.value + told.verify_s.value)
    assert told.speedup.value == pytest.approx(way.tokens_per_turn.value / 2.0 * step_s / told.cycle_s.value)
    assert told.tokens_per_s.value == pytest.approx(way.tokens_per_turn.value / told.cycle_s.value)


def test_a_whole_run_is_timed(settings, tmp_path):
    results, directory = evaluate(settings, out=str(tmp_path / "run"), reporter=Reporter(period_s=1e9))
    assert len(list((directory.path / "checkpoints" / "stages" / "stopwatch").iterdir())) == 1
    speeds = results[0].stopwatch.ways["given"].speedup
    # Differences of programs that take a millisecond may have any sign on a busy machine.
    assert np.isfinite(speeds.median.value)
    low, high = speeds.low.value, speeds.high.value  # None: without end
    assert low is None or low <= speeds.median.value
    assert high is None or speeds.median.value <= high
    again, _ = evaluate(settings, out=str(tmp_path / "run"), reporter=Reporter(period_s=1e9))
    assert [one.plain() for one in again] == [one.plain() for one in results]


def test_predictions_are_cycles_with_the_terms_of_the_engine():
    config = DecoderConfig(
        vocab_size=11, hidden_size=8, intermediate_size=12, num_layers=1, num_heads=2, num_kv_heads=1, head_dim=4
    )
    device, terms, network = catalog.device("rtx-4090"), EngineTerms(1e-3, 1e-4, 1e-5, 1.0), architecture_of(config)
    options = {"takes_in": None, "batch": 3, "slots": 40.0, "bits": 32.0}
    parents = [np.arange(2) - 1, np.arange(4) - 1]
    plain, with_terms = (
        predict_ways(device, network, COMPRESSED_COPY, parents, terms=each, **options) for each in (NO_ENGINE, terms)
    )
    priced = price(
        Case(
            device,
            network,
            workload=Workload(batch=3.0, context_tokens=40.0),
            footprint=uniform_footprint(32.0),
            draft=COMPRESSED_COPY,
        ),
        chain_plan(4.0),
    )
    assert plain[1].cycle_s == pytest.approx(float(priced.total_s), rel=1e-5)
    assert plain[1].step_s == pytest.approx(float(priced.baselines.stored.cost.total_s), rel=1e-5)
    spent = float(engine_time(terms, chain_plan(4.0), target=network, draft_cost=COMPRESSED_COPY, batch=3.0))
    assert with_terms[1].cycle_s - plain[1].cycle_s == pytest.approx(spent, rel=1e-4)
    assert with_terms[1].verify_s - plain[1].verify_s == pytest.approx(1e-3, rel=1e-4)
    (lookup,) = predict_ways(device, network, DraftCost(passes=0.0), parents[:1], terms=terms, **options)
    assert lookup.draft_s == pytest.approx(2 * 3 * 1e-5, rel=1e-4)
