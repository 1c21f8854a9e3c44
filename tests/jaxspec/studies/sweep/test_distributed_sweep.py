"""Sweeps that several processes of `jax.distributed` share. Minutes: `pytest -m slow`."""

import json
import os
import subprocess
import sys

import pytest
from own_address import launch_flags

pytestmark = pytest.mark.signals

#: 2,200,000 points in three parts, the last one smaller.
SWEEP = """
device = ["rtx-4090", "cassandra-npu"]
[axes]
"device.memory.bandwidth_bytes_per_s" = { from = 2e11, to = 4e12, points = 100, scale = "log" }
"workload.batch" = { from = 1, to = 16, points = 22 }
"footprint.draft_weight_bits" = { from = 3, to = 8, points = 50 }
"acceptance.alpha_token" = { from = 0.5, to = 0.9, points = 10 }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("distributed")
    (path / "sweep.toml").write_text(SWEEP)
    ended(start(path, "whole"))
    return path


def start(folder, out, *flags, program=("-m", "jaxspec"), **environment):
    command = [sys.executable, *program, "sweep", "sweep.toml", "--out", str(out), *flags]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=folder, env=os.environ | environment, text=True, **pipes)


def launched(folder, out, count=2, **more):
    return [start(folder, out, *own, **more) for own in launch_flags(count)]


def ended(process, code=0):
    out, error = process.communicate(timeout=900)
    assert process.returncode == code, error
    assert "Traceback" not in error
    return out, error


def points(folder, out):
    return (folder / out / "sweep.parquet").read_bytes()


def check_whole(folder, out):
    assert points(folder, out) == points(folder, "whole")
    whole = (folder / "whole" / "result.json").read_text()
    assert (folder / out / "result.json").read_text() == whole.replace('"whole"', json.dumps(str(out)))
    assert not (folder / out / "checkpoints").exists()
    assert not list((folder / out).rglob("*.part"))


def test_two_processes_give_the_bytes_of_one(folder):
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2"
    first, second = map(ended, launched(folder, "two", XLA_FLAGS=flags, JAX_PLATFORMS="cpu"))
    assert "2 processes share the points" in first[1]
    assert "2,200,000 points" in first[0]
    # Collectives on processors print a line of their own.
    assert ("points" in second[0], second[1]) == (False, "")
    check_whole(folder, "two")


def test_a_launcher_is_noticed(folder):
    slurm = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_NODELIST": "127.0.0.1", "SLURM_NTASKS": "2"}
    both = [
        start(folder, "slurm", "--distributed", **slurm, SLURM_PROCID=str(i), SLURM_LOCALID=str(i)) for i in range(2)
    ]
    for process in both:
        ended(process)
    check_whole(folder, "slurm")
    _, error = ended(start(folder, "nobody", "--distributed"), 2)
    assert "--distributed found no launcher" in error
    assert not (folder / "nobody").exists()
