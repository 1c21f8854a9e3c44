"""Times of stages: what they took when they were computed, not what it takes to load them."""

import errno
import resource
import shutil
import time

import numpy as np
import pytest

from jaxspec.errors import InputError
from jaxspec.runs.stages import Stages

pytestmark = pytest.mark.signals


def slow():
    time.sleep(0.2)
    return {"x": np.arange(3)}


def test_a_resumed_run_tells_the_time_that_stages_took(tmp_path):
    first = Stages(tmp_path)
    first.run("decoded/a", slow)
    assert first.timing_s["decoded/a"] >= 0.2
    again = Stages(tmp_path)
    np.testing.assert_array_equal(again.run("decoded/a", lambda: pytest.fail("computed twice"))["x"], [0, 1, 2])
    assert again.timing_s == first.timing_s


@pytest.mark.parametrize("kept", [0.0, 0.5])
def test_a_damaged_stage_is_named(tmp_path, kept):
    Stages(tmp_path).run("decoded/a", slow)
    stage = tmp_path / "stages" / "decoded" / "a"
    for file in stage.rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[: int(kept * file.stat().st_size)])
    with pytest.raises(InputError, match=r"stage '.*decoded.a' is damaged .*remove that folder"):
        Stages(tmp_path).run("decoded/a", slow)
    shutil.rmtree(stage)
    np.testing.assert_array_equal(Stages(tmp_path).run("decoded/a", slow)["x"], [0, 1, 2])


@pytest.mark.parametrize("part", ["stage", "state"])
def test_a_full_disk_is_the_systems_own_error(tmp_path, part, caplog):
    stages, large = Stages(tmp_path), {"x": np.random.default_rng(0).standard_normal(400_000)}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))  # no file may be longer
    try:
        with pytest.raises(OSError, match="File too large") as caught, stages.progress("ascent") as progress:
            _ = stages.run("large", lambda: large) if part == "stage" else progress.save(5, large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG
    assert caught.value.filename == str(tmp_path / ("stages/large" if part == "stage" else "progress/ascent/5"))
    assert not caplog.records  # no stack trace of a thread
    np.testing.assert_array_equal(Stages(tmp_path).run("large", lambda: large)["x"], large["x"])
