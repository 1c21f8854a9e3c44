"""SIGKILL at random moments, the same command again, the same points to the byte."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from own_address import launch_flags

pytestmark = pytest.mark.signals

KILLS = 3

#: 2,200,000 points in three parts.
SWEEP = """
[axes]
"device.memory.bandwidth_bytes_per_s" = { from = 2e11, to = 4e12, points = 110, scale = "log" }
"workload.batch" = { from = 1, to = 16, points = 40 }
"footprint.draft_weight_bits" = { from = 3, to = 8, points = 50 }
"acceptance.alpha_token" = { from = 0.5, to = 0.9, points = 10 }
"""


def launches(count):
    """Flags of each process that shares the sweep."""
    return [[]] if count == 1 else launch_flags(count)


@pytest.mark.parametrize(("processes", "kills"), [(1, KILLS), (2, 1)])
def test_kills_lose_no_point(tmp_path, processes, kills):
    (tmp_path / "sweep.toml").write_text(SWEEP)
    command = [sys.executable, "-m", "jaxspec", "sweep", str(tmp_path / "sweep.toml")]

    def start(out: Path, count: int = processes) -> list[subprocess.Popen]:
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        return [subprocess.Popen([*command, "--out", str(out), *flags], **pipes) for flags in launches(count)]

    def end(started: list[subprocess.Popen], until: float) -> None:
        for process in started:
            _, error = process.communicate(timeout=max(0.0, until - time.monotonic()))
            assert process.returncode == 0, error.decode()

    def points(out: Path) -> bytes:
        return (out / "sweep.parquet").read_bytes()

    began = time.monotonic()
    end(start(tmp_path / "whole", 1), began + 900)
    duration_s = time.monotonic() - began

    rng, out, killed = random.Random(11), tmp_path / "killed", 0
    while True:
        started = start(out)
        patience_s = duration_s * rng.uniform(0.2, 1.0) if killed < kills else 900
        try:
            end(started, time.monotonic() + patience_s)
        except subprocess.TimeoutExpired:
            for process in rng.sample(started, len(started)):
                process.kill()
            for process in started:
                process.communicate()
            killed += 1
            continue
        assert points(out) == points(tmp_path / "whole")
        if killed >= kills:
            break
        out = tmp_path / f"killed-{killed}"  # it finished before the last kill: begin again
    assert not list(tmp_path.rglob("*.part"))
