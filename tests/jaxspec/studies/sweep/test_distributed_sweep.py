"""Sweeps that several processes of `jax.distributed` share. Minutes: `pytest -m slow`."""

import json
import os
import subprocess
import sys
import time

import pytest
from own_address import launch_flags

pytestmark = pytest.mark.signals

#: 4,000,000 points in four parts, the last one smaller.
SWEEP = """
device = ["rtx-4090", "cassandra-npu"]
[axes]
"device.memory.bandwidth_bytes_per_s" = { from = 2e11, to = 4e12, points = 100, scale = "log" }
"workload.batch" = { from = 1, to = 16, points = 40 }
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


def until(folder, out, count):
    """Wait until so many parts are there."""
    while len(list((folder / out / "checkpoints" / "points").glob("[0-9]*.parquet"))) < count:
        time.sleep(0.05)


@pytest.mark.parametrize("devices", [1, 2])
def test_two_processes_give_the_bytes_of_one(folder, devices):
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
    out = f"two-{devices}"
    first, second = map(ended, launched(folder, out, XLA_FLAGS=flags, JAX_PLATFORMS="cpu"))
    assert "2 processes share the points" in first[1]
    assert "4,000,000 points" in first[0]
    assert second == ("", "")
    check_whole(folder, out)


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


def test_one_that_is_killed_leaves_its_points_to_the_others(folder):
    first, second = launched(folder, "second-killed")
    until(folder, "second-killed", 1)
    second.kill()
    second.communicate()
    ended(first)
    check_whole(folder, "second-killed")


def test_when_process_0_is_killed_the_others_say_so_and_nothing_is_lost(folder):
    first, second = launched(folder, "first-killed")
    until(folder, "first-killed", 1)
    first.kill()
    first.communicate()
    out, error = ended(second, 2)
    assert out == ""
    assert error.count("\n") == 1
    assert "process 0 of 2 ended without a result; run directory 'first-killed' keeps what is done" in error
    _, error = ended(start(folder, "first-killed"))
    assert "kept from before" in error
    check_whole(folder, "first-killed")
