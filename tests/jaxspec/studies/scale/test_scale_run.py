"""`jaxspec scale` on a tiny untrained network: results, resumption, tables and figures."""

import json

import jax
import pytest

from jaxspec.cli import main
from jaxspec.errors import InputError
from jaxspec.models import DecoderConfig, init_params, save_directory
from jaxspec.settings import build_config
from jaxspec.studies import ScaleConfig, scale
from jaxspec.studies.scale import stages as stages_module
from jaxspec.studies.scale.inputs import check_scale
from jaxspec.studies.scale.result import ScaleResult

ONE_LAYER = DecoderConfig(
    vocab_size=256, hidden_size=16, intermediate_size=24, num_layers=1, num_heads=4, num_kv_heads=2, head_dim=6
)

#: Two groups of problems.
SMALL = {"prompts": 9, "samples": "1,4", "output_tokens": 10, "context": 700, "batches": "2", "acceptance": 0.7}


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "one-layer"
    save_directory(init_params(ONE_LAYER, jax.random.key(3)), ONE_LAYER, directory, max_positions=128)
    return SMALL | {"model": str(directory), "task": "arithmetic", "score": "judge", "judge": str(directory)}


@pytest.fixture(scope="module")
def config(settings):
    # A device whose energy is known.
    priced = {"device": "elmoe3d-xpu", "architecture": "llama-3.2-1b", "scheme": "q4_0", "accuracy": 0.5}
    return build_config(ScaleConfig, settings, priced)


@pytest.fixture(scope="module")
def finished(config, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "whole"
    results, directory = scale(config, out=str(out))
    assert ScaleResult.load(directory.path / "result.json") == results
    return [result.plain() for result in results], directory.path


def test_entries_are_per_device_and_whole(finished, config):
    entries, path = finished
    assert [entry["device"] for entry in entries] == ["elmoe3d-xpu"]
    for entry in entries:
        methods = ["pass-at-n", "best-of-n", "majority", "beam"]
        (network,) = entry["networks"]
        assert [curve["method"] for curve in network["curves"]] == methods
        assert [curve["attainable"] for curve in network["curves"]] == [False, True, True, True]
        assert [(row["method"], row["samples"], row["batch"]) for row in entry["plans"]] == [
            (method, samples, batch) for batch in (1, 2) for method in methods for samples in (1, 4)
        ]
        for row in entry["plans"]:
            assert row["total_s"] == pytest.approx(row["prefill_s"] + row["decode_s"] + row["judge_s"])
            assert row["decode_s"] == pytest.approx(row["passes"] * row["step_s"])
            assert row["energy_j"] > 0
            assert row["fits"]
            # A judge as large as the network is beside it where scores choose.
            asked = row["samples"] > 1 and row["method"] in ("best-of-n", "beam")
            assert (row["judge_s"] > 0) == asked
        assert [(row["batch"], row["rows"]) for row in entry["speculation"]["rows"]] == [(1, 4), (2, 4)]
        assert entry["speculation"]["conditional"][config.model[0]] == [0.7] * 8
        assert entry["target"] == {"accuracy": 0.5, "by_time": None, "by_energy": None}
        assert entry["pays"] is False
        statuses = json.dumps(entry["status"])
        assert {word for word in ("measured", "predicted", "input") if word in statuses} == {
            "measured",
            "predicted",
            "input",
        }
    assert (path / "report.html").is_file()


@pytest.mark.study
def test_a_killed_run_goes_on_where_it_was(finished, config, tmp_path, monkeypatch):
    search, calls = stages_module.beam_search, []

    def killed(*arguments, **options):
        calls.append(None)
        if len(calls) == 9:  # in the second group
            raise KeyboardInterrupt
        return search(*arguments, **options)

    monkeypatch.setattr(stages_module, "beam_search", killed)
    with pytest.raises(KeyboardInterrupt):
        scale(config, out=str(tmp_path / "run"))
    monkeypatch.setattr(stages_module, "sample_continuations", None)
    scale(config, out=str(tmp_path / "run"))
    assert len(calls) == 10
    ours, theirs = (json.loads((path / "result.json").read_text()) for path in (tmp_path / "run", finished[1]))
    for entry in (*ours, *theirs):
        del entry["timing_s"]
    assert ours == theirs


@pytest.mark.study
def test_python_with_two_networks_and_a_measured_draft(settings, tmp_path, capsys):
    text = tmp_path / "functions.py"
    text.write_text("".join(f"def f{i}(x):\n    return x + {i}\n\n\n" for i in range(40)))
    (tmp_path / "link").symlink_to(settings["model"])
    flags = {"model": f"{settings['model']},{tmp_path / 'link'}", "text": text, "architecture": "own", "prompts": 2}
    flags |= {"method": "pass-at-n", "samples": "2", "output_tokens": 12, "prompt_bytes": 40, "device": "rtx-4090"}
    out = tmp_path / "run"
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in (flags | {"out": out}).items()]
    with pytest.raises(SystemExit) as left:
        main(["scale", *arguments, f"--plot={tmp_path / 'plot.png'}"])
    assert left.value.code in (None, 0)
    (entry,) = json.loads((out / "result.json").read_text())
    first, second = entry["speculation"]["conditional"].values()
    assert first == second != [0.7] * 8
    assert [row["model"] for row in entry["plans"]] == [name for name in flags["model"].split(",") for _ in range(6)]
    assert len(entry["inputs"]) == 5
    assert (tmp_path / "plot.png").is_file()
    # Twelve bytes are no function, so that no plan is right.
    assert "nothing is more accurate than one sample" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"task": "python", "method": "majority"}, "functions have no answers to count"),
        ({"task": "python", "score": "judge"}, "a judge of arithmetic alone is shipped"),
        ({"model": "a,b"}, "2 models and one architecture came"),
        ({"draft": "self"}, "with --acceptance"),
        ({"judge": "x"}, "score likelihood asks no judge"),
        ({"task": "arithmetic", "check": "compiles"}, "the task is arithmetic"),
        ({"acceptance": "0.5," * 8 + "0.1"}, "acceptance has 9 positions"),
    ],
)
def test_settings_that_do_not_fit_together(given, message):
    with pytest.raises(InputError, match=message):
        build_config(ScaleConfig, given)


def test_doctests_without_isolation_are_refused_or_insisted_on(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", "")
    out = tmp_path / "run"
    with pytest.raises(SystemExit) as ended:
        main(["scale", "--check", "doctests", "--out", str(out)])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert "apt-get install bubblewrap util-linux" in error
    assert "--unsafe-run-code" in error
    assert error.strip().count("\n") == 0
    assert not out.exists()
    insists = build_config(ScaleConfig, {"check": "doctests", "unsafe_run_code": True})
    assert "nothing isolates the code of samples" in check_scale(insists).notes
    with pytest.raises(InputError, match=r"unsafe_run_code.* no code of samples runs"):
        build_config(ScaleConfig, {"unsafe_run_code": True})
