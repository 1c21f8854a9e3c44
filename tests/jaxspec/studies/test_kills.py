"""SIGKILL at random moments, the same command again, the same result to the byte."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from finished_runs import untimed

pytestmark = pytest.mark.signals

KILLS = 3


def test_kills_change_nothing(tiny_model, some_text, small, tmp_path):
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in small.items() if key != "windows_per_step"]
    command = [sys.executable, "-m", "jaxspec", "tune", "--model", str(tiny_model), "--text", str(some_text), *flags]

    def start(out: Path) -> subprocess.Popen:
        return subprocess.Popen([*command, "--out", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    whole = start(tmp_path / "whole")
    _, error = whole.communicate(timeout=600)
    assert whole.returncode == 0, error.decode()

    rng, out, kills = random.Random(7), tmp_path / "killed", 0
    while True:
        process = start(out)
        try:
            _, error = process.communicate(timeout=rng.uniform(1.0, 28.0) if kills < KILLS else 600)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
            continue
        assert process.returncode == 0, error.decode()
        if kills >= KILLS:
            break
        # Finished before the last kill: begin again, so that all of them fall into a run.
        assert untimed(out) == untimed(tmp_path / "whole")
        out = tmp_path / f"killed-{kills}"
    assert untimed(out) == untimed(tmp_path / "whole")
    assert not list(out.rglob("*.part"))
