"""`pack`, `inspect` and `unpack` as a user calls them."""

import json

import ml_dtypes
import numpy as np
import pytest
from command_calls import refused, run
from safetensors.numpy import save_file

from jaxspec.formats.container.layout import compressed, uncompressed, write_prelude


@pytest.fixture(autouse=True)
def checkpoint(tmp_path, monkeypatch):
    """A file of weights in the working directory, and its bytes."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    tensors = {
        "layers.0.w": rng.standard_normal((50, 70)).astype(ml_dtypes.bfloat16),
        "layers.1.w": rng.standard_normal((50, 70)).astype(ml_dtypes.bfloat16),
        "ids": np.arange(11),
    }
    save_file(tensors, "weights.safetensors", metadata={"made": "by hand"})
    return (tmp_path / "weights.safetensors").read_bytes()


@pytest.mark.study
def test_there_and_back(capsys, tmp_path, checkpoint):
    code, out, _ = run(capsys, "pack", "weights.safetensors", "--scheme", "huffman", "--json", "packed.json")
    assert code == 0
    assert "layers.*.w (2)" in out
    assert json.loads((tmp_path / "packed.json").read_text())["scheme"] == "huffman"
    code, out, _ = run(capsys, "inspect", "weights.jspk", "--plot", "bits.png", "--json", "inspected.json", "--all")
    assert code == 0
    assert "layers.1.w" in out
    entries = json.loads((tmp_path / "inspected.json").read_text())["tensors"]
    assert {e["name"]: bool(e["entropy"]) for e in entries} == {"layers.0.w": True, "layers.1.w": True, "ids": False}
    assert (tmp_path / "bits.png").read_bytes().startswith(b"\x89PNG")
    code, out, _ = run(capsys, "inspect", "weights.jspk", "--tensor", "layers.1.w")
    assert code == 0
    assert "bits each" in out
    code, out, _ = run(capsys, "unpack", "weights.jspk", "-o", "back.safetensors")
    assert code == 0
    assert (tmp_path / "back.safetensors").read_bytes() == checkpoint
    code, out, _ = run(capsys, "inspect", "back.safetensors")
    assert code == 0
    assert "not packed" in " ".join(out.split())


def test_settings_may_come_from_a_file_and_flags_win(capsys, tmp_path):
    (tmp_path / "pack.toml").write_text('model = "weights.safetensors"\nscheme = "huffllm"\nseed = 3\n')
    code, _, _ = run(capsys, "pack", "--config", "pack.toml", "--json", "a.json", "-o", "a.jspk")
    assert code == 0
    assert json.loads((tmp_path / "a.json").read_text())["scheme"] == "huffllm"
    code, _, _ = run(capsys, "pack", "--config", "pack.toml", "--scheme", "raw", "--json", "b.json", "-o", "b.jspk")
    assert code == 0
    assert json.loads((tmp_path / "b.json").read_text())["scheme"] == "raw"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("pack", "nowhere"), "does not exist"),
        (("pack", "weights.safetensors", "--scheme", "zip"), "allowed are cassandra1"),
        (("pack", "weights.safetensors", "--weight-prune", "1"), "0 to 0.95"),
        (("pack", "weights.safetensors", "--importance", "guess"), "auto, wanda, magnitude"),
        (("pack", "weights.safetensors", "--importance", "wanda"), "of no known family"),
        (("pack", "weights.safetensors", "-o", "."), "there already"),
        (("unpack", "nowhere.jspk", "-o", "x"), "cannot be opened"),
        (("unpack", "weights.safetensors", "-o", "x"), "no container"),
        (("inspect", "nowhere"), "does not exist"),
        (("inspect", "weights.safetensors", "--json", "weights.safetensors"), "a file that this command reads"),
        (("unpack", "weights.safetensors", "--json", "./weights.safetensors"), "a file that this command reads"),
        (("pack", "weights.safetensors", "--sheme", "raw"), "did you mean --scheme"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(capsys, tmp_path, arguments, words):
    before = sorted(tmp_path.iterdir())
    assert words in refused(capsys, *arguments)
    assert sorted(tmp_path.iterdir()) == before


def test_a_container_is_a_model_wherever_one_is_asked_for(capsys):
    assert "cannot be opened" in refused(capsys, "tune", "--model", "nowhere.jspk")
    run(capsys, "pack", "weights.safetensors", "--scheme", "raw")
    assert "holds no config.json" in refused(capsys, "tune", "--model", "weights.jspk")


def test_a_damaged_container_is_refused_whole(capsys, tmp_path):
    run(capsys, "pack", "weights.safetensors", "--scheme", "huffman")
    content = bytearray((tmp_path / "weights.jspk").read_bytes())
    content[len(content) // 3] ^= 4
    (tmp_path / "weights.jspk").write_bytes(content)
    for command in (("unpack", "weights.jspk", "-o", "out"), ("inspect", "weights.jspk")):
        code, _, err = run(capsys, *command)
        assert code == 2
        assert "damaged" in err.splitlines()[-1]  # behind a line of progress: only reading all of it tells
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "value", [[], "x", 7, None, {"code_lengths": 7}, {"widths": [1, 8, 7], "code_lengths": {"1": 7}}]
)
def test_inspecting_a_coding_that_is_none(capsys, tmp_path, value):
    run(capsys, "pack", "weights.safetensors", "--scheme", "huffman")
    content = (tmp_path / "weights.jspk").read_bytes()
    offset = int.from_bytes(content[16:24], "little")
    directory = json.loads(uncompressed(content[offset:], content[8], tmp_path / "weights.jspk"))
    directory["tensors"][-1]["coding"] = value
    stored = compressed(json.dumps(directory).encode())
    (tmp_path / "weights.jspk").write_bytes(write_prelude(stored, offset) + content[64:offset] + stored)
    assert "damaged" in refused(capsys, "inspect", "weights.jspk")
