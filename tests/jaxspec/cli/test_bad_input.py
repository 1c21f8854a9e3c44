"""A hundred and more kinds of bad input through real processes: exit code 2, one line, nothing left behind.

A new process imports JAX for two seconds where a file has to be opened, so most rows run in processes forked from a warm one
(see `forked_processes`); those without a file need no JAX, and some of them run as `python -m jaxspec`, timed.
"""

import json
import os
import shutil
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from bad_inputs import CHECKPOINTS, CONFLICTS, FLAGS, ROWS, SETTINGS, WORDS, Row
from bad_sweeps import SWEEPS
from forked_processes import ForkedProcesses
from safetensors.numpy import save_file

from jaxspec.models import DecoderConfig, save_directory
from jaxspec.studies import PackConfig, pack_checkpoint

TINY = DecoderConfig(256, 16, 24, 1, 2, 1, 8)


@pytest.fixture(scope="module")
def samples(tmp_path_factory, random_network):
    """A good network, weights and container, and damaged ones."""
    folder = tmp_path_factory.mktemp("samples")
    model = folder / "model"
    save_directory(random_network(TINY, 1), TINY, model, max_positions=64)
    for name in ("cut", "garbled", "family", "shapes", "endless"):
        shutil.copytree(model, folder / name)
    weights = (model / "model.safetensors").read_bytes()
    (folder / "cut" / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    (folder / "garbled" / "model.safetensors").write_bytes(b"\xff" * 8 + weights[8:])
    (folder / "endless" / "generation_config.json").mkdir()
    raw = json.loads((model / "config.json").read_text())
    (folder / "family" / "config.json").write_text(json.dumps(raw | {"model_type": "mamba"}))
    (folder / "shapes" / "config.json").write_text(json.dumps(raw | {"intermediate_size": 25}))
    save_file({"a": np.arange(48).reshape(6, 8).astype(ml_dtypes.bfloat16)}, folder / "weights.safetensors")
    pack_checkpoint(PackConfig(model=folder / "weights.safetensors", scheme="raw"), folder / "packed.jspk")
    packed = bytearray((folder / "packed.jspk").read_bytes())
    (folder / "cut.jspk").write_bytes(packed[: len(packed) // 2])
    packed[len(packed) // 3] ^= 4
    (folder / "damaged.jspk").write_bytes(packed)
    return folder


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    found = ForkedProcesses(tmp_path_factory.mktemp("streams"))
    yield found
    found.close()


#: Names that no file system allows, which are no file rather than an error of ours.
LONG = "n" * 300
LONG_NAMES = [
    Row(f"advise --run {LONG}", "File name too long"),
    Row(f"export {LONG}", "is no run directory"),
    Row(f"pack {LONG}", "does not exist"),
    Row(f"inspect {LONG}", "does not exist"),
    Row(f"runs show {LONG}", "is no run directory"),
]


def prepare(row, folder):
    folder.mkdir()
    for name, content in (row.files or {}).items():
        if content is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def tree(folder):
    """Every file and folder below, with its content."""
    return {path: None if path.is_dir() else path.read_bytes() for path in sorted(folder.rglob("*"))}


def check(row, code, err):
    lines = err.splitlines()
    assert code == 2, err
    assert "Traceback" not in err
    assert [line for line in lines if line.startswith("jaxspec: ")] == lines[-1:], err
    assert row.says in lines[-1]


def name_of(row):
    return f"{row.typed[:60]}-{row.says[:30]}"


def test_there_are_a_hundred_kinds():
    assert len({(row.typed, str(row.files)) for row in ROWS}) == len(ROWS) >= 100


@pytest.mark.parametrize("row", [*ROWS, *SWEEPS, *LONG_NAMES], ids=name_of)
def test_bad_input_is_one_line_and_leaves_nothing(row, samples, processes, tmp_path):
    prepare(row, tmp_path / "here")
    before = tree(tmp_path), tree(samples)
    ended = processes.run(row.arguments(samples), tmp_path / "here")
    check(row, ended.code, ended.err)
    assert not ended.out
    assert (tree(tmp_path), tree(samples)) == before


@pytest.mark.study(1)
@pytest.mark.parametrize(
    "row", [WORDS[0], WORDS[4], FLAGS[0], FLAGS[12], CONFLICTS[0], CONFLICTS[3], SETTINGS[2], SETTINGS[6]], ids=name_of
)
def test_settings_are_refused_before_jax_is_imported(row, samples, tmp_path):
    prepare(row, tmp_path / "here")
    (tmp_path / "jax.py").write_text("raise AssertionError('JAX was imported')")
    paths = [str(tmp_path), *filter(None, sys.path)]
    found = subprocess.run(
        [sys.executable, "-m", "jaxspec", *row.arguments(samples)],
        cwd=tmp_path / "here",
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    check(row, found.returncode, found.stderr)
    assert len(found.stderr.splitlines()) == 1


@pytest.mark.study
@pytest.mark.parametrize("row", [CHECKPOINTS[0], CHECKPOINTS[3]], ids=name_of)
def test_new_processes_say_the_same_as_forked_ones(row, samples, processes, tmp_path):
    prepare(row, tmp_path / "here")
    found = subprocess.run(
        [sys.executable, "-m", "jaxspec", *row.arguments(samples)],
        cwd=tmp_path / "here",
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=120,
    )
    ended = processes.run(row.arguments(samples), tmp_path / "here")
    assert (found.returncode, found.stderr.splitlines()[-1]) == (ended.code, ended.err.splitlines()[-1])
