"""Two processes that share a mesh: what they tell each other, and how they end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from own_address import own_address

from jaxspec.models import DecoderConfig, init_params, save_directory

pytestmark = pytest.mark.signals

CONFIG = DecoderConfig(
    vocab_size=40, hidden_size=16, intermediate_size=24, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=6
)


def both_ended(commands, folder):
    """Output and errors of processes that run at the same time, and their exit codes."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(sys.path)}
    started = [subprocess.Popen([sys.executable, *own], cwd=folder, env=environment, **pipes) for own in commands]
    outputs = [process.communicate(timeout=300) for process in started]
    return [(*output, process.returncode) for output, process in zip(outputs, started, strict=True)]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("together")
    save_directory(init_params(CONFIG, jax.random.key(3)), CONFIG, folder / "tiny", max_positions=128)
    where, child = own_address(), str(Path(__file__).parent / "two_processes.py")
    first, second = both_ended([[child, where, str(i), "tiny"] for i in range(2)], folder)
    assert (first[2], second[2]) == (0, 0), first[1] + second[1]
    return json.loads(first[0].splitlines()[-1])  # JAX's collectives on CPUs print lines of their own


def test_a_broadcast_is_process_0s(found):
    assert found["broadcast"] == [0, 1, 2]


def test_each_value_is_gathered(found):
    assert found["gathered"] == ["x" * 1000, "x" * 2000]


def test_bad_input_anywhere_is_reported_once(found):
    assert found["good"] == [0, 1]
    other = ["ReportedByRank0Error", ""]
    assert found["first"] == [["CollectiveInputError", "bad in 0"], other]
    assert found["second"] == [["CollectiveInputError", "process 1 of 2: bad in 1"], other]
    (kind, line), elsewhere = found["alike"]
    assert (kind, elsewhere) == ("CollectiveInputError", other)
    assert line.startswith("process 1 of 2 differs from process 0 in seed; start all with the same command")


def test_a_matrix_is_split_over_processes_and_gathered(found):
    assert found["mesh"] == [1, 2]
    assert found["part"] == [[2, 12, 16], [2, 24, 16]]
    assert found["same"]


def test_bad_input_ends_all_with_one_line_and_no_directory(tmp_path):
    flags = ["evaluate", "--model", "nowhere", "--out", "run", "--coordinator", own_address(), "--processes", "2"]
    first, second = both_ended([["-m", "jaxspec", *flags, "--process-id", str(i)] for i in range(2)], tmp_path)
    assert (first[2], second[2]) == (2, 2)
    assert first[1].splitlines()[-1].startswith("jaxspec: model directory 'nowhere' does not exist")
    assert second[1] == ""
    assert list(tmp_path.iterdir()) == []
