"""`jaxspec advise`: against the serving cycle priced directly, what it writes, where acceptance comes from, bad input."""

import dataclasses
import json
import re

import jax
import numpy as np
import pytest

import jaxspec as js
from hwmodels import (
    EXPERT_MATRICES,
    Case,
    Workload,
    catalog,
    chain_plan,
    expected_tokens_iid,
    serving_cycle,
    serving_step,
    uniform_footprint,
)
from jaxspec.errors import InputError
from jaxspec.results import predicted
from jaxspec.settings import build_config
from jaxspec.studies.advise.config import AdviseConfig
from jaxspec.studies.advise.inputs import draft_acceptance, named_draft, read_widths, served_draft
from jaxspec.studies.advise.pricing import single_length
from jaxspec.studies.advise.result import AdvisedBatch, AdviseResult
from jaxspec.studies.advise.view import advice_in_words, gain_figure
from jaxspec.studies.engine_flags import Range, ServedDraft, engines_for

GIVEN = {
    "device": "rtx-4090",
    "engine": "vllm",
    "architecture": "llama-3.1-8b",
    "draft": "llama-3.2-1b",
    "acceptance": 0.7,
    "acceptance_cycles": 800,
    "batch": (1, 48, 512),
    "max_draft_length": 3,
    "context": 300,
    "prompt_tokens": 90,
    "output_tokens": 110,
}


@pytest.fixture(scope="module")
def advised(tmp_path_factory):
    return js.advise(**GIVEN, out=tmp_path_factory.mktemp("advise") / "run")


@jax.jit
def directly(batch, length, tokens):
    device, target = catalog.device("rtx-4090", engine="vllm"), catalog.architecture("llama-3.1-8b")
    parts = {
        "footprint": uniform_footprint(16.0),
        "workload": Workload(batch=batch, context_tokens=300.0, prompt_tokens=90.0, output_tokens=110.0),
        "engine": catalog.engine("vllm"),
    }
    draft = named_draft(AdviseConfig(draft="llama-3.2-1b"), target)
    cycle = serving_cycle(Case(device, target, draft=draft, **parts), chain_plan(length), tokens_per_cycle=tokens)
    return cycle.total_s, serving_step(Case(device, target, **parts))


@pytest.mark.study
def test_numbers_are_those_of_the_serving_cycle(advised):
    for row, batch in zip(advised.by_batch, GIVEN["batch"], strict=True):
        expected = []
        for length in (1, 2, 3):
            tokens = float(expected_tokens_iid(0.7, length))
            cycle_s, step_s = directly(float(batch), float(length), tokens)
            expected.append(float(step_s) * tokens / float(cycle_s))
        np.testing.assert_allclose(row.speedups.value, expected, rtol=2e-4)
        best = int(np.argmax(expected)) + 1
        assert row.best_draft_length.value == best
        assert row.draft_length.value == (best if max(expected) > 1 else 0)


@pytest.mark.study
def test_what_does_not_pay_is_not_advised(advised):
    first, *_, last = advised.by_batch
    assert first.draft_length.value >= 1
    assert last.draft_length.value == 0
    assert (last.speedup_vs_stored_ar.value, last.tokens_per_cycle.value) == (1.0, 1.0)
    assert first.probability_pays.value > 0.5 > last.probability_pays.value
    assert first.interval.low.value < first.speedup_vs_stored_ar.value < first.interval.high.value
    assert last.interval.low.value is None
    # The parts of a cycle are the whole cycle, and those of a step without a draft the whole step.
    for row in (first, last):
        assert sum(row.time_by_cause.value.values()) == pytest.approx(row.cycle_s.value, rel=1e-4)
    assert first.fits.value
    assert not last.fits.value
    assert advice_in_words(advised.results[0]).endswith("There is no memory for batch 512.")


def test_the_best_of_a_draft_that_does_not_pay_has_memory():
    row = lambda batch, speedup, fits: AdvisedBatch(
        batch=batch, draft_length=predicted(0), best_draft_speedup=predicted(speedup), fits=predicted(fits)
    )
    result = AdviseResult(architecture="net", device="chip", by_batch=[row(1, 0.7, True), row(64, 0.9, False)])
    assert "Its best is 0.70x at batch 1." in advice_in_words(result)


def test_batches_without_memory_do_not_choose_the_length():
    speedups = np.array([[1.1, 1.2], [9.0, 1.0]])
    assert single_length(speedups, np.array([True, False])) == 2
    assert single_length(speedups, np.array([False, False])) == 1


@pytest.mark.study
def test_files_of_a_run(advised):
    folder = advised.directory
    page = (folder / "report.html").read_text()
    assert "@media print" in page  # nothing scrolls on paper
    assert not re.search(r"https?://(?!www\.w3\.org)", page)
    assert page.count("<svg") == 2
    assert "num_speculative_tokens_per_batch_size" in page
    assert {path.name for path in (folder / "engines" / "rtx-4090").iterdir()} == {
        "vllm.json",
        "sglang.txt",
        "llama_cpp.txt",
        "with_transformers.py",
    }
    settings = json.loads((folder / "engines/rtx-4090/vllm.json").read_text())
    assert settings["method"] == "draft_model"
    schedule = settings["num_speculative_tokens_per_batch_size"]
    assert [schedule[0][0], schedule[-1][1], schedule[-1][2]] == [1, 512, 0]
    assert settings["num_speculative_tokens"] == max(length for *_, length in schedule)
    again = js.open_result(folder)
    assert again == advised
    assert [row.cells for row in again.table().rows] == [row.cells for row in advised.table().rows]
    assert advised.engine.terms["draft_layer_s"].status == "calibrated"
    assert any("no kernels of vllm were measured on NVIDIA GeForce RTX 4090" in note for note in advised.notes)
    assert not any("were not priced" in note for note in advised.notes)
    assert "errors of the device's kernels on held-out shapes" in advised.interval_statement
    assert str(advised.table()).count("[") >= 2


@pytest.mark.study
def test_contexts_are_rows_of_one_table(advised, tmp_path):
    several = js.advise(**GIVEN | {"context": "300,8k"}, out=tmp_path / "run")
    near, far = several
    assert near.by_batch == advised.by_batch
    assert [one.workload.context_tokens.value for one in several.results] == [300, 8192]
    assert far.by_batch[0].cycle_s.value > near.by_batch[0].cycle_s.value
    (table,) = several.tables
    assert [tuple(row.cells[:2]) for row in table.rows][2:4] == [("300", "512"), ("8,192", "1")]
    frame = several.to_frame()
    assert frame["context_tokens"].tolist() == [300] * 3 + [8192] * 3
    assert len(frame.columns) == 12
    for row, batch in zip(frame.to_dict("records"), (*near.by_batch, *far.by_batch), strict=True):
        assert row["tokens_per_s"] * row["token_s"] == pytest.approx(row["batch"])
        assert (row["draft_length"], row["fits"]) == (batch.draft_length.value, batch.fits.value)
        assert batch.time_by_cause.value is not None
        assert row["bound"] in {name.rpartition(": ")[2] for name in batch.time_by_cause.value}
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.count("<svg") == 4
    title = gain_figure(far.results[0], " at 8,192 cached tokens").axes[0].get_title(loc="left")
    assert title.endswith("by batch at 8,192 cached tokens")
    assert page.count("<h2") == (advised.directory / "report.html").read_text().count(
        "<h2"
    )  # one section of the device
    folders = sorted(path.name for path in (tmp_path / "run" / "engines").iterdir())
    assert folders == ["rtx-4090-context-300", "rtx-4090-context-8192"]
    assert js.open_result(tmp_path / "run") == several


def test_acceptance_from_a_run(tmp_path):
    entry = {
        "configurations": {
            "given": {
                "acceptance": {"conditional": [0.8, 0.6, None]},
                "tokens_per_cycle_standard_error": 0.07,
            }
        }
    }
    (tmp_path / "result.json").write_text(json.dumps([entry]))
    for place in (tmp_path, tmp_path / "result.json"):
        found = draft_acceptance(AdviseConfig(run=str(place)))
        np.testing.assert_allclose(found.conditional, [0.8, 0.6])
        assert found.status == "measured"
        # Slopes of 1 + a (1 + b): the error of tokens per cycle is the one that was counted over prompts.
        assert np.hypot(*(found.error.T @ [1.6, 0.8])) == pytest.approx(0.07)


def test_published_acceptance_counts_where_none_is_given():
    found = draft_acceptance(AdviseConfig(draft="eagle3", max_draft_length=5))
    assert found.conditional.shape == (5,)
    assert found.error.shape == (5, 1)  # one cause moves all positions
    assert found.status == "input"
    assert "published" in found.source


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"draft": "eagle4"}, "did you mean eagle"),
        ({"draft": "block"}, "no acceptance of draft 'block' is published"),
        ({"device": "rtx-409"}, "did you mean 'rtx-4090'"),
        ({"engine": "vlm"}, "did you mean 'vllm'"),
        ({"batch": (0, 4)}, "batch is 0; allowed is 1 to 4096"),
        ({"run": "nowhere"}, "run 'nowhere' cannot be read"),
        ({"run": "nowhere", "acceptance": 0.5}, "a finished run says what was accepted"),
        ({"acceptance_cycles": 100}, "no acceptance was given"),
        ({"acceptance": (0.5, 0.4), "max_draft_length": 4}, "max_draft_length would have no effect: acceptance names"),
        ({"run": "nowhere", "max_draft_length": 4}, "max_draft_length would have no effect: a finished run says"),
        ({"output_tokens": 300}, "output_tokens would have no effect: no prompts are processed"),
        ({"architecture": "own"}, "needs a network"),
        ({"draft": "mtp", "draft_weights": "here"}, "the head is the target's own"),
        ({"expert_bits": 4.25}, "expert_bits came, but architecture 'llama-3.1-8b' has no routed experts"),
    ],
)
def test_bad_input_is_one_line(settings, message, tmp_path):
    with pytest.raises(InputError, match=message) as caught:
        js.advise(**settings, out=tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("draft", ["ngram", "eagle", "eagle3", "mtp", "llama-3.2-1b"])
def test_engines_take_every_kind(draft):
    target = catalog.architecture("llama-3.1-8b")
    cost = named_draft(build_config(AdviseConfig, {"draft": draft}), target)
    assert (float(cost.passes) == 0.0) == (draft == "ngram")
    served = served_draft(build_config(AdviseConfig, {"draft": draft}))
    found = {engine.title: engine for engine in engines_for("target", served, 4)}
    assert json.loads(found["vLLM"].content)["num_speculative_tokens"] == 4
    assert "--speculative-num-draft-tokens 5" in found["SGLang"].content
    assert ("llama.cpp" in found) == (draft != "eagle")
    assert ("transformers" in found) == (draft == "llama-3.2-1b")
    assert ("--speculative-draft-model-path" in found["SGLang"].content) == bool(served.weights)


@pytest.mark.study
def test_a_schedule_reaches_the_engines_that_have_one():
    schedule = [Range(1, 15, 5), Range(16, 31, 2), Range(32, 64, 0)]
    vllm = next(each for each in engines_for("t", ServedDraft("ngram"), 2, schedule=schedule) if each.title == "vLLM")
    assert json.loads(vllm.content) == {
        "method": "ngram",
        "num_speculative_tokens": 5,
        "num_speculative_tokens_per_batch_size": [[1, 15, 5], [16, 31, 2], [32, 64, 0]],
    }
    assert "0 in a schedule is not free" in vllm.note
    same = [dataclasses.replace(each, draft_length=3) for each in schedule]
    vllm = next(each for each in engines_for("t", ServedDraft("ngram"), 3, schedule=same) if each.title == "vLLM")
    assert json.loads(vllm.content) == {"method": "ngram", "num_speculative_tokens": 3}
    assert "not free" not in vllm.note


def test_no_draft_at_any_batch_loads_none(tmp_path):
    found = js.advise(
        device="rtx-4090", draft="llama-3.2-1b", acceptance=0.01, batch=(1, 8), max_draft_length=1, out=tmp_path
    )
    (result,) = found.results
    assert not result.speculate.value
    assert not any("not free" in note for note in result.notes)


@pytest.mark.study
def test_experts_of_their_own_width_are_priced_as_predict_does(tmp_path):
    """gpt-oss in MXFP4: the step without a draft, and the bits of all other weights."""
    mixture = {"architecture": "gpt-oss-20b", "device": "h200-sxm", "engine": "vllm", "context": 700}
    found = {}
    for bits in (None, 4.25):
        given = mixture | {"batch": (3,), "draft": "ngram", "scheme": "bf16", "acceptance": 0.0, "expert_bits": bits}
        # A lookup that is never right decodes as nothing does.
        (row,) = js.advise(**given, out=tmp_path / str(bits)).by_batch
        assert row.draft_length.value == 0
        step = js.predict(**mixture, batch=3, scheme="bf16", acceptance=0.5, expert_bits=bits)
        assert row.cycle_s.value == pytest.approx(step.by_draft_length[0].cycle_s.value, rel=1e-4)
        found[bits] = row.cycle_s.value
    assert found[4.25] < 0.7 * found[None]
    widths = read_widths(build_config(AdviseConfig, {"architecture": "gpt-oss-20b", "expert_bits": 4.25}))
    assert {kind for kind, bits in widths.target_weight_bits.items() if bits == 4.25} == set(EXPERT_MATRICES)
