"""Whole runs on a tiny untrained network: plumbing, resumption and the shape of results."""

import collections
import json
import xml.etree.ElementTree as ElementTree
from functools import partial

import numpy as np
import pytest
from finished_runs import attempts, untimed

from jaxspec.compress import DEFAULT_SCHEME
from jaxspec.settings import build_config
from jaxspec.studies import EvaluateConfig, TuneConfig, evaluate, tune
from jaxspec.studies.tune import run as tuning_module
from jaxspec.studies.tune.result import TuneResult
from jaxspec.studies.tune.view import lines_by_device, optimism_in_words

METRICS = {
    "speedup_vs_bf16_ar",
    "speedup_vs_stored_ar",
    "acceptance",
    "bits_per_weight",
    "bits_per_kv",
    "draft_length",
    "tokens_per_cycle_predicted",
    "tokens_per_cycle_counted",
    "knobs",
    "status",
}


#: Of each number of a configuration, but for knobs and draft length, which some configurations were given.
STATUSES = {
    "acceptance": "measured",
    "bits_per_kv": "measured",
    "bits_per_kv_verify": "measured",
    "bits_per_weight": "measured",
    "bits_per_weight_verify": "measured",
    "cycle": "predicted",
    "draft_length_predicted_best": "predicted",
    "kl": "measured",
    "operators": "predicted",
    "roofline": "predicted",
    "speedup_vs_bf16_ar": "predicted",
    "speedup_vs_stored_ar": "predicted",
    "tokens_per_cycle_counted": "measured",
    "tokens_per_cycle_gap_in_standard_errors": "measured",
    "tokens_per_cycle_predicted": "predicted",
    "tokens_per_cycle_standard_error": "measured",
}


@pytest.fixture(scope="module")
def config(tiny_model, some_text, small):
    # Devices of one structure share all programs.
    settings = {"model": str(tiny_model), "text": str(some_text), "device": "rtx-4090,jetson-agx-orin", "j_grid": True}
    settings |= {"calibration_prompts": 6}  # of which two validate
    return build_config(TuneConfig, small, settings)


@pytest.fixture(scope="module")
def finished(config, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "whole"
    results, directory = tune(config, out=str(out))
    assert TuneResult.load(directory.path / "result.json") == results
    return [result.plain() for result in results], directory.path


def test_one_entry_per_device_with_every_promised_field(finished, config):
    entries, path = finished
    assert [entry["device"] for entry in entries] == ["rtx-4090", "jetson-agx-orin"]
    assert json.loads((path / "result.json").read_text()) == entries
    for entry in entries:
        assert set(entry["configurations"]) == {"default", "j_grid", "grid", "uniform", "tuned"}
        for found in entry["configurations"].values():
            assert set(found) >= METRICS
            chosen = ("knobs", "draft_length", "intervals")
            assert {name: word for name, word in found["status"].items() if name not in chosen} == STATUSES
            for spec in DEFAULT_SCHEME.knob_specs:
                value = found["knobs"][spec.name]
                flat = np.concatenate([np.ravel(v) for v in (value.values() if isinstance(value, dict) else [value])])
                assert ((flat >= spec.low) & (flat <= spec.high)).all()
        lossless = {"prompts": 3, "tokens": 30, "mismatches": 0, "ties": 0}
        assert {key: entry["lossless"][key] for key in lossless} == lossless
        assert entry["configurations"]["default"]["knobs"]["weight_cut_bits"]["q"] == [4.0, 4.0]
        # A verification reads what a draft does and, raw, the 40 % that are pruned and 4 bits of the others.
        default = entry["configurations"]["default"]
        assert default["bits_per_weight_verify"] - default["bits_per_weight"] == pytest.approx(8.8, abs=0.3)
        assert default["bits_per_kv_verify"] - default["bits_per_kv"] == pytest.approx(4.0, abs=0.3)
        lengths = {name: found["status"]["draft_length"] for name, found in entry["configurations"].items()}
        assert set(lengths.values()) == {"predicted"}
        assert {entry["status"][name] for name in ("lossless", "timing_s")} == {"measured"}
        assert {entry["status"][name] for name in ("ratios", "pays")} == {"predicted"}
        assert {entry["status"][name] for name in ("model", "workload", "decoding")} == {"input"}
        assert len(entry["grid"]) == 24
        knobs = {name: found["status"]["knobs"] for name, found in entry["configurations"].items()}
        assert knobs == {"default": "input"} | dict.fromkeys(("j_grid", "grid", "uniform", "tuned"), "predicted")
        assert set(entry["grid"][0]) == set(entry["status"]["grid"])
        assert entry["device_data"]["peak_flops_per_s"]["status"] == "input"


def test_predicted_tokens_per_cycle_are_the_counted_ones_under_greedy_decoding(finished):
    for entry in finished[0]:
        for found in entry["configurations"].values():
            assert found["tokens_per_cycle_predicted"] == pytest.approx(found["tokens_per_cycle_counted"], rel=1e-5)


def test_speedup_is_counted_tokens_over_predicted_time(finished):
    for entry in finished[0]:
        for found in entry["configurations"].values():
            cycle = found["cycle"]
            total = found["draft_length"] * cycle["draft_step_s"] + cycle["verify_s"]
            expected = cycle["ar_bf16_s"] * found["tokens_per_cycle_counted"] / total
            assert found["speedup_vs_bf16_ar"] == pytest.approx(expected, rel=1e-6)
            for step, times in found["operators"].items():
                key = {"draft": "draft_step_s", "verify": "verify_s"}.get(step, f"{step}_s")
                assert sum(times.values()) == pytest.approx(cycle[key], rel=1e-5)


def test_what_calibration_text_promised_stands_beside_what_held_out_prompts_keep(finished):
    entries, path = finished
    for entry in entries:
        said, kept = entry["on_calibration"], entry["configurations"]
        assert set(said) == {"j_grid", "grid", "uniform", "tuned"}
        speedup = {name: found["speedup_vs_bf16_ar"] for name, found in said.items()}
        # Elected by that very number: none of the three can be worse than the one it began at.
        assert speedup["grid"] <= speedup["uniform"] <= speedup["tuned"]
        for name, found in said.items():
            assert found["gap"] == pytest.approx(speedup[name] / kept[name]["speedup_vs_bf16_ar"] - 1, abs=1e-6)
            ratio = kept["tuned"]["speedup_vs_bf16_ar"] / kept[name]["speedup_vs_bf16_ar"]
            assert found["tuned_vs_this"] == pytest.approx(speedup["tuned"] / speedup[name], rel=1e-6)
            assert found["optimism"] == pytest.approx(found["tuned_vs_this"] / ratio - 1, abs=1e-6)
    lines = lines_by_device(TuneResult.load(path / "result.json"), optimism_in_words)
    assert [line.partition(":")[0] for line in lines] == ["rtx-4090", "jetson-agx-orin"]
    assert all("on the calibration text that selected it, the tuned draft is" in line for line in lines)
    page = (path / "report.html").read_text()
    assert page.count("tuned vs grid, on calibration text") == 2


def test_the_papers_own_search_knows_no_device(finished):
    entries, path = finished
    found = [entry["configurations"]["j_grid"]["knobs"] for entry in entries]
    for name in ("weight_prune", "weight_cut_bits", "kv_prune", "kv_cut_bits"):
        assert found[0][name] == found[1][name]
        values = found[0][name].values() if name.startswith("weight") else [found[0][name]]
        grid = {0.3, 0.4, 0.5, 0.6} if name.endswith("prune") else set(range(6))
        assert len({number for row in values for number in row}) == 1
        assert {round(number, 6) for row in values for number in row} <= grid
    j = [[point["relative_j"] for point in entry["grid"]] for entry in entries]
    assert j[0] == j[1]
    assert len(set(j[0])) > 8
    assert {entry["status"]["grid"]["relative_j"] for entry in entries} == {"measured"}
    page = (path / "report.html").read_text()
    assert page.count("objective J (Cassandra, Eq. 2) chooses") == 2


def test_the_directory_holds_what_was_promised(finished, small):
    _, path = finished
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    # The toy's best pair prunes nothing and its best grid point does: an ascent begins at each.
    passes = dict.fromkeys(("tuned", "tuned-from-uniform"), small["steps"]) | {"uniform": small["uniform_steps"]}
    wanted = {(device, stage): count for device in ("rtx-4090", "jetson-agx-orin") for stage, count in passes.items()}
    assert collections.Counter((line["device"], line["stage"]) for line in lines) == wanted
    judged = collections.Counter(line["stage"] for line in lines if "hard_speedup_unseen" in line)
    assert judged == {"tuned": 6, "tuned-from-uniform": 6}
    assert (path / "checkpoints").is_dir()
    figures = list((path / "figures").iterdir())
    assert len(figures) >= 4
    for figure in figures:
        if figure.suffix == ".svg":
            ElementTree.parse(figure)
    report = (path / "report.html").read_text()
    assert "rtx-4090" in report
    assert "jetson-agx-orin" in report


def test_a_finished_run_is_reprinted_without_work(finished, config, monkeypatch):
    entries, path = finished
    monkeypatch.setattr(tuning_module, "Tuning", None)
    again, _ = tune(config, out=str(path))
    assert [result.plain() for result in again] == entries


@pytest.mark.study
def test_a_run_stopped_at_any_stage_ends_with_the_same_result(finished, config, tmp_path):
    # Every attempt ends one stage and stops in the next one: nothing that was done is done again.
    assert attempts(partial(tune, config, out=str(tmp_path / "stopped")), 1) > 10
    assert untimed(tmp_path / "stopped") == untimed(finished[1])


@pytest.mark.study
def test_an_ascent_killed_between_checkpoints_goes_on_from_the_last_one(finished, config, tmp_path, monkeypatch):
    _, whole = finished
    out = tmp_path / "killed"
    real, steps = tuning_module.ascend, []

    def interrupted(*args, on_step, **options):
        def step(done, speedup):
            steps.append(done)
            if done == 3 and steps.count(3) == 1:
                raise KeyboardInterrupt
            on_step(done, speedup)

        return real(*args, on_step=step, **options)

    monkeypatch.setattr(tuning_module, "ascend", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tune(config, out=str(out))
    resumed = len(steps)
    tune(config, out=str(out))
    assert steps[resumed] == 3  # the checkpoint of step 2, not step 1
    assert untimed(out) == untimed(whole)


def _shared(small):
    """What evaluating has in common with tuning."""
    return {
        k: v for k, v in small.items() if k not in ("steps", "uniform_steps", "windows_per_step", "continuation_tokens")
    }


def test_evaluating_the_tuned_knobs_gives_the_tuned_numbers(finished, config, small, tmp_path):
    entries, path = finished
    settings = {name: getattr(config, name) for name in ("model", "text", "device", "calibration_prompts")}
    settings |= {"knobs": str(path / "result.json")}
    again, _ = evaluate(build_config(EvaluateConfig, _shared(small), settings), out=str(tmp_path / "e"))
    tuned, same = entries[0]["configurations"]["tuned"], again[0].plain()["configurations"]["given"]
    for key in ("tokens_per_cycle_counted", "bits_per_weight", "speedup_vs_bf16_ar"):
        assert same[key] == pytest.approx(tuned[key], rel=1e-5)


@pytest.mark.study
def test_sampled_tokens_are_counted_as_predicted(config, small, tmp_path):
    settings = {"model": config.model, "text": config.text, "temperature": 1.0, "prompts": 24}
    (result,), _ = evaluate(build_config(EvaluateConfig, _shared(small), settings), out=str(tmp_path / "sampled"))
    found = result.plain()["configurations"]["given"]
    error = found["tokens_per_cycle_standard_error"]
    assert 0 < error < 0.5
    assert abs(found["tokens_per_cycle_counted"] - found["tokens_per_cycle_predicted"]) < 4 * error
    assert result.plain()["lossless"]["mismatches"] == 0  # that is decoded greedily
