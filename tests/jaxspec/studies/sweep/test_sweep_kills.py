"""SIGKILL at random moments, the same command again, the same points to the byte. Minutes: `pytest -m slow`."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

KILLS = 20

SWEEP = """
[axes]
"device.memory.bandwidth_bytes_per_s" = { from = 2e11, to = 4e12, points = 200, scale = "log" }
"workload.batch" = { from = 1, to = 16, points = 40 }
"footprint.draft_weight_bits" = { from = 3, to = 8, points = 50 }
"acceptance.alpha_token" = { from = 0.5, to = 0.9, points = 10 }
"""


def test_twenty_kills_lose_no_point(tmp_path):
    (tmp_path / "sweep.toml").write_text(SWEEP)
    command = [sys.executable, "-m", "jaxspec", "sweep", str(tmp_path / "sweep.toml")]

    def start(out: Path) -> subprocess.Popen:
        return subprocess.Popen([*command, "--out", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def points(out: Path) -> bytes:
        return (out / "sweep.parquet").read_bytes()

    began = time.monotonic()
    whole = start(tmp_path / "whole")
    _, error = whole.communicate(timeout=900)
    assert whole.returncode == 0, error.decode()

    duration_s = time.monotonic() - began

    rng, out, kills = random.Random(11), tmp_path / "killed", 0
    while True:
        process = start(out)
        try:
            _, error = process.communicate(timeout=duration_s * rng.uniform(0.2, 1.0) if kills < KILLS else 900)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
            continue
        assert process.returncode == 0, error.decode()
        assert points(out) == points(tmp_path / "whole")
        if kills >= KILLS:
            break
        out = tmp_path / f"killed-{kills}"  # it finished before the last kill: begin again
    assert not list(tmp_path.rglob("*.part"))
