import errno
import importlib
import json
import os
from pathlib import Path

import pytest
from bad_inputs import DEVICE
from command_calls import refused, run

from jaxspec.cli import main
from jaxspec.models import DecoderConfig, init_params, save_directory


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    import jax

    config = DecoderConfig(256, 16, 24, 1, 2, 1, 8)
    directory = tmp_path_factory.mktemp("cli") / "model"
    save_directory(init_params(config, jax.random.key(0)), config, directory, max_positions=64)
    return directory


@pytest.mark.parametrize("command", ["tune", "evaluate", "tree"])
@pytest.mark.parametrize(
    "bad",
    [
        ("--model", "nowhere"),
        ("--text", "nowhere.txt"),
        ("--device", "rtx-409"),
        ("--architecture", "lama"),
        ("--prompt-tokens", "1000000"),
        ("--json", "below"),
        ("--out", "file"),
        None,
    ],
)
def test_bad_input_leaves_no_directory_and_promises_nothing(capsys, model, tmp_path, command, bad):
    (tmp_path / "below").mkdir()
    (tmp_path / "file").write_text("")
    own = {"tune": ("--device", "mine.toml"), "evaluate": ("--knobs", "nowhere.json"), "tree": ("--draft", "nobody")}
    before = sorted(tmp_path.rglob("*"))
    code, out, err = run(capsys, command, "--model", model, *(bad or own[command]))
    assert code == 2
    assert sorted(tmp_path.rglob("*")) == before
    assert "resumes" not in out + err


@pytest.mark.parametrize(
    "arguments",
    [
        ("predict", "--plot", "x.txt"),
        ("predict", "--json", "file/x.json"),
        ("inspect", "embedded", "--plot", "x.txt"),
        ("inspect", "embedded", "--json", "."),
        ("pack", "embedded", "--json", "."),
        ("pack", "embedded", "-o", "file/a.jspk"),
        ("sweep", "sweep.toml", "--out", "file"),
        ("tune", "--out", "file/below"),
        ("devices", "--json", "file/x"),
    ],
)
def test_places_for_results_are_refused_before_the_work(capsys, monkeypatch, tmp_path, arguments):
    (tmp_path / "file").write_text("")
    (tmp_path / "sweep.toml").write_text("[axes]\n'workload.batch' = [1]\n")

    def worked(*_, **__):
        raise AssertionError("the work began")

    for work in ("pack.run.inspect_file", "predict.run.predict", "pack.run.pack", "measured.run_context.load_inputs"):
        module, _, name = work.rpartition(".")
        monkeypatch.setattr(importlib.import_module(f"jaxspec.studies.{module}"), name, worked)
    monkeypatch.setattr("jaxspec.studies.pack.run._split", worked)
    monkeypatch.setattr(importlib.import_module("jaxspec.studies.sweep.run"), "_run", worked)
    refused(capsys, *arguments)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "sweep.toml"]


def test_damaged_weights_are_bad_input(capsys, model, tmp_path):
    for i, damage in enumerate((lambda b: b[: len(b) // 2], lambda b: b"\xff" * 8 + b[8:], lambda b: b"")):
        broken = tmp_path / f"broken-{i}"
        broken.mkdir()
        (broken / "config.json").write_bytes((model / "config.json").read_bytes())
        (broken / "model.safetensors").write_bytes(damage((model / "model.safetensors").read_bytes()))
        assert "model.safetensors" in refused(capsys, "tune", "--model", broken)


def test_a_directory_of_another_configuration_is_refused(capsys, tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    (out / "config.toml").write_text("seed = 7\n")
    assert "another configuration" in refused(capsys, "tune", "--out", out)
    assert (out / "config.toml").read_text() == "seed = 7\n"


@pytest.mark.signals(1)
@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "cannot write 'result.json' (No space left on device); free the disk or give another --out"),
        (errno.EFBIG, "cannot write 'result.json' (File too large); raise the limit of a file's size (ulimit -f)"),
    ],
)
def test_a_disk_that_takes_no_more_is_one_line(capsys, monkeypatch, code, words):
    def full(*_):
        raise OSError(code, os.strerror(code), "result.json")

    monkeypatch.setattr("jaxspec.cli.study_command.write_json", full)
    assert words in refused(capsys, "predict", "--json", "x.json")


@pytest.mark.signals
def test_our_own_bugs_keep_their_traceback(monkeypatch):
    def broken(*_):
        raise RuntimeError("ours")

    monkeypatch.setattr("jaxspec.cli.study_command.write_json", broken)
    with pytest.raises(RuntimeError, match="ours"):
        main(["predict", "--json", "x.json"])


@pytest.mark.signals
def test_predict_prints_and_writes_what_it_found(capsys, tmp_path):
    code, out, _ = run(
        capsys,
        "predict",
        "--device",
        "rtx-4090,cassandra-npu",
        "--acceptance",
        "0.95",
        "--json",
        "p.json",
        "--plot",
        "p.png",
    )
    assert code == 0
    entries = json.loads(Path("p.json").read_text())
    assert [e["device"] for e in entries] == ["rtx-4090", "cassandra-npu"]
    for entry in entries:
        best = max(entry["by_draft_length"], key=lambda row: row["speedup_vs_bf16_ar"])
        assert entry["draft_length"] == best["draft_length"]
        assert f"{best['speedup_vs_bf16_ar']:.3f}x" in out
        assert sum(entry["operators"]["ar_bf16"].values()) == pytest.approx(entry["ar_bf16_s"], rel=1e-5)
    assert Path("p.png").read_bytes().startswith(b"\x89PNG")


def test_no_result_is_written_over_what_the_command_reads(capsys, model, tmp_path):
    Path("run.toml").write_text("acceptance = 0.9")
    config = str(model / "config.json")
    for read, name in (("--architecture", config), ("--config", "run.toml")):
        before = Path(name).read_text()
        assert "is a file that this command reads" in refused(capsys, "predict", read, name, "--json", name)
        assert Path(name).read_text() == before


def test_a_config_json_is_an_architecture(capsys, model):
    code, _, _ = run(capsys, "predict", "--architecture", model / "config.json", "--json", "p.json")
    assert code == 0
    assert run(capsys, "predict", "--architecture", model)[0] == 0


@pytest.mark.signals
@pytest.mark.parametrize(("command", "name"), [("devices", "jetson-agx-orin"), ("models", "qwen3-4b")])
def test_catalogs_name_a_source_for_each_number(capsys, command, name):
    code, out, _ = run(capsys, command, "--sources", "--json", "c.json")
    assert code == 0
    assert name in out
    for entry in json.loads(Path("c.json").read_text()):
        beside = {"max_positions", "tokenizer"}  # facts of a network that are no numbers of its cost
        assert set(entry["sources"]) - beside == set(entry["values"]) - beside
        assert all(entry["sources"].values())


@pytest.mark.parametrize(
    ("command", "name", "number"), [("devices", "h100-sxm", "3.35e12 (3.35 TB/s)"), ("models", "qwen3-4b", "2560")]
)
def test_a_catalog_entry_is_shown_by_its_name(capsys, command, name, number):
    code, out, _ = run(capsys, command, name.upper(), "--json", "one.json")
    assert code == 0
    (entry,) = json.loads(Path("one.json").read_text())
    assert entry["name"] == name
    assert f"= {number}: " in out
    assert all(f"  {key}" in out for key in entry["sources"])
    assert "did you mean" in refused(capsys, command, name[:-1])


def test_a_file_is_shown_as_catalog_entries_are(capsys, model, tmp_path):
    chip = tmp_path / "chip.toml"
    chip.write_text(DEVICE.replace("1008e9", "700e9"), encoding="utf-8")
    for command, file, number in (("devices", chip, "700e9 (700 GB/s)"), ("models", model, "num_layers = 1")):
        code, out, _ = run(capsys, command, file, "--json", "one.json")
        assert code == 0
        assert number in out
        assert [entry["name"] for entry in json.loads(Path("one.json").read_text())] == [str(file)]


@pytest.mark.parametrize("written", ["RTX 4090", "NVIDIA GeForce RTX 4090 24GB"])
def test_a_device_is_shown_by_the_name_that_people_write(capsys, written):
    code, _, _ = run(capsys, "devices", written, "--json", "one.json")
    assert code == 0
    assert [entry["name"] for entry in json.loads(Path("one.json").read_text())] == ["rtx-4090"]
