"""`jaxspec compare` on a tiny untrained network: its numbers against others' ways to them, the election, resumption."""

import io
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from rich.console import Console

from hwmodels import Case, DraftCost, chain_plan, price
from jaxspec.models import DecoderConfig, init_params, save_directory
from jaxspec.results.network_results import LOST_IN_NOISE
from jaxspec.runs import Reporter
from jaxspec.settings import build_config
from jaxspec.studies import CompareConfig, compare
from jaxspec.studies.compare.result import AUTOREGRESSIVE, CompareResult, Contestant
from jaxspec.studies.compare.view import rows_in_words, shown
from jaxspec.studies.measured.pricing import resolve_pricing

ONE_LAYER = DecoderConfig(
    vocab_size=256, hidden_size=16, intermediate_size=24, num_layers=1, num_heads=4, num_kv_heads=2, head_dim=6
)

SMALL = {
    "prompts": 3,
    "prompt_tokens": 12,
    "output_tokens": 12,
    "calibration_prompts": 3,
    "context": 700,
    "max_draft_length": 3,
    "schemes": "none",
    "drafts": "ngram",
    "lossy": "int4-channel,rotated-int4,smoothquant-w8a8,duquant-w4a4kv4",
    "task": "arithmetic",
    "problems": 3,
}


@pytest.fixture(scope="module")
def settings(tmp_path_factory, some_text):
    directory = tmp_path_factory.mktemp("models") / "one-layer"
    # Layers that add little: greedy text then falls into loops, which a lookup tells.
    params = jax.tree.map(lambda x: 0.3 * x if x.ndim > 2 else x, init_params(ONE_LAYER, jax.random.key(3)))
    save_directory(params, ONE_LAYER, directory, max_positions=128)
    return SMALL | {"model": str(directory), "text": str(some_text), "device": "hexagon-v75"}


@pytest.fixture(scope="module")
def config(settings):
    return build_config(CompareConfig, settings)


@pytest.fixture(scope="module")
def finished(config, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "whole"
    told = io.StringIO()
    results, directory = compare(config, out=str(out), reporter=Reporter(Console(file=told, width=200)))
    # What follows is alike for all drafts, and there may be a dozen of them.
    assert "draft ngram, 1 of 1, for hexagon-v75:" in told.getvalue().splitlines()
    assert CompareResult.load(directory.path / "result.json") == results
    return [result.plain() for result in results], directory.path


def test_every_contestant_is_there_with_statuses(finished):
    entries, _ = finished
    assert [entry["device"] for entry in entries] == ["hexagon-v75"]
    for entry in entries:
        lossy = ("int4-channel", "rotated-int4", "smoothquant-w8a8", "duquant-w4a4kv4")
        assert {name: each["kind"] for name, each in entry["contestants"].items()} == {
            "autoregressive": "autoregressive",
            "ngram": "draft",
            **dict.fromkeys(lossy, "compression"),
        }
        for each in entry["contestants"].values():
            counted = {name for name in each if name.startswith("tokens_per_cycle") and "predicted" not in name}
            measured = {name for name, word in each["status"].items() if word == "measured"}
            assert measured == set(each["status"]) & (counted | {"acceptance", "lossless", "quality"})
            assert each["status"]["speedup_vs_bf16_ar"] == each["status"]["cycle_s"] == "predicted"
        names = ("autoregressive", "ngram", *lossy)
        assert [entry["contestants"][name]["activation_bits"] for name in names] == [16, 16, 16, 16, 8, 4]
        assert [entry["contestants"][name]["bits_per_kv_verify"] for name in names] == [16, 16, 16, 16, 16, 4.25]
        assert {each["status"]["activation_bits"] for each in entry["contestants"].values()} == {"input"}
        assert "activations rounded to 8 bits" in entry["contestants"]["smoothquant-w8a8"]["statement"]
        assert "16-bit arithmetic" in entry["contestants"]["smoothquant-w8a8"]["statement"]
        assert entry["lossless"]["mismatches"] == 0
        assert entry["lossless"]["tokens"] == 3 * 12
        assert (entry["task"], entry["problems"], entry["status"]["problems"]) == ("arithmetic", 3, "input")


def test_the_terminal_says_what_rows_are_why_and_what_next(finished):
    results = CompareResult.load(finished[1] / "result.json")
    said = shown((results, SimpleNamespace(path=finished[1]))).lines
    draft = results[0].contestants["ngram"]
    steps = draft.tokens_per_cycle_counted.known / draft.speedup_vs_stored_ar.known
    why = next(line for line in said if line.startswith("why, on hexagon-v75"))
    assert why.endswith(f": ngram {draft.tokens_per_cycle_counted.known:.2f} in {steps:.2f}")
    # Of the same prices: a cycle over a step of plain decoding.
    assert steps == pytest.approx(draft.cycle_s.known / draft.ar_stored_s.known, rel=1e-5)
    assert f"other drafts: ngram ({draft.statement})" in said
    assert ("--draft ngram" in said[-1]) == (results[0].best == "ngram")
    assert said[-1].startswith("next: ")


@pytest.mark.parametrize("form", ["16 bits", "GGUF (Q8_0)"])
def test_plain_decoding_is_of_the_form_that_runs(form):
    plain = Contestant(kind=AUTOREGRESSIVE, statement=form)
    said = rows_in_words(CompareResult(contestants={AUTOREGRESSIVE: plain}))
    assert said == [f"plain decoding: autoregressive (a token at a time, in {form})"]


@pytest.mark.study
def test_speeds_follow_from_counts_and_prices(finished, config):
    for entry in finished[0]:
        pricing = resolve_pricing(config, entry["device"], None)
        draft = DraftCost(passes=0.0, statement="")
        case = Case(pricing.device, pricing.architecture, pricing.workload, draft=draft)
        priced = jax.jit(price)(case, chain_plan(np.arange(1.0, 4.0)))
        draft, cycle_s = entry["contestants"]["ngram"], np.asarray(priced.total_s)
        ar_s = float(priced.baselines.bf16.cost.total_s)
        length = draft["draft_length"]
        assert draft["cycle_s"] == pytest.approx(cycle_s[length - 1], rel=1e-5)
        speed = draft["tokens_per_cycle_counted"] * ar_s / cycle_s[length - 1]
        assert draft["speedup_vs_bf16_ar"] == pytest.approx(speed, rel=1e-5)
        assert draft["speedup_low"] <= draft["speedup_vs_bf16_ar"] <= draft["speedup_high"]
        assert draft["tokens_per_cycle_predicted"] == pytest.approx(draft["tokens_per_cycle_counted"])
        accepted = 1 + length * draft["acceptance"]["alpha_fraction"]
        assert accepted == pytest.approx(draft["tokens_per_cycle_counted"])
        if (energy := draft["energy_j_per_token"]) is not None:
            assert energy == pytest.approx(
                float(priced.energy_j[length - 1]) / draft["tokens_per_cycle_counted"], rel=1e-5
            )
        for name in ("int4-channel", "rotated-int4"):
            each = entry["contestants"][name]
            assert each["speedup_vs_bf16_ar"] == pytest.approx(ar_s / each["cycle_s"], rel=1e-5)
            assert 4 < each["bits_per_weight_verify"] < 4.6
            assert each["quality"]["agreement"] < 1
            assert each["changes_output"]
            assert each["quality"]["task"]["accuracy"] == 0  # of an untrained network
        plain = entry["contestants"]["autoregressive"]
        assert (plain["quality"]["agreement"], plain["speedup_vs_bf16_ar"]) == (1, 1)
        assert entry["pays"] == (draft["speedup_vs_bf16_ar"] > 1)
        assert entry["best"] == ("ngram" if entry["pays"] else "autoregressive")


@pytest.mark.study
def test_every_kind_of_draft_takes_part(settings, tmp_path):
    given = settings | {
        "schemes": "cassandra1,cassandra1-head,cassandra2,any-precision",
        "drafts": "ngram,layer-skip,sparse-kv-25,q4",
        "lossy": "none",
        "weight_prune": 0.2,
        "stopwatch": True,
        "repeats": 3,
    }
    (result,), directory = compare(build_config(CompareConfig, given), out=str(tmp_path / "all"))
    # What was predicted and counted of each draft, and the clock's word beside it.
    assert set(result.stopwatch.ways) == set(result.contestants) - {"autoregressive"}
    for name, way in result.stopwatch.ways.items():
        assert way.drafted_tokens.known == result.contestants[name].draft_length.known
    page = (directory.path / "report.html").read_text()
    assert "Stopwatch" in page
    # A cycle of so small a network is a difference of two times, which a busy machine loses in their noise, and says so.
    medians = [way.speedup.median.value for way in result.stopwatch.ways.values()]
    assert all(np.isfinite(median) for median in medians if median is not None)
    assert None not in medians or LOST_IN_NOISE in " ".join(page.split())
    found = result.plain()["contestants"]
    assert len(found) == 9
    for name, each in found.items():
        if name == "autoregressive":
            continue
        assert each["lossless"]["mismatches"] == 0
        assert each["tokens_per_cycle_gap_in_standard_errors"] < 3
        assert each["changes_output"] == (name in ("cassandra2", "any-precision"))
        assert 1 <= each["draft_length"] <= 3
    own = [
        name
        for name in ("cassandra1", "cassandra1-head", "cassandra2", "any-precision")
        if found[name]["vs_best_self_draft"] is None
    ]
    assert len(own) == 1
    assert found["layer-skip"]["bits_per_weight"] == 16
    assert {name for name, each in found.items() if each["bits_per_head_weight"] is not None} == {"cassandra1-head"}
    assert found["cassandra1-head"]["bits_per_head_weight"] < 8
    assert "bits per weight of the LM head, draft" in (directory.path / "report.html").read_text()
    assert found["any-precision"]["bits_per_weight_verify"] < 9
