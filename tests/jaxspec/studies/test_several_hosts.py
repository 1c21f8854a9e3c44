"""Commands over two processes of two devices each. Minutes: `pytest -m slow`."""

import signal
import time
from functools import cache

import pytest
from runs_on_devices import check_same, ended, launched, result, start, write_settings

pytestmark = pytest.mark.signals


COUNTED = ("tokens_per_cycle_counted", "draft_length", "bits_per_weight")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_model, some_text, small):
    path = tmp_path_factory.mktemp("hosts")
    write_settings(path, tiny_model, some_text, small)
    return path


def check_counted(ours, theirs):
    """Tokens, cycles and accepted tokens are equal to the last one."""
    for name in ("prompts", "tokens", "mismatches"):
        assert ours["lossless"][name] == theirs["lossless"][name], name
    for name, found in ours["configurations"].items():
        for counted in COUNTED:
            assert found[counted] == theirs["configurations"][name][counted], (name, counted)
        assert found["acceptance"] == theirs["configurations"][name]["acceptance"], name


@pytest.fixture(scope="module")
def whole(folder):
    """What one process finds, by its number of devices and further flags."""

    @cache
    def evaluated(devices, *flags):
        ended(start(folder, "evaluate", out := f"whole-{devices}", *flags, devices=devices))
        return result(folder, out)

    return evaluated


def test_evaluating_over_two_processes_is_evaluating_in_one(folder, whole):
    first, second = map(ended, launched(folder, "evaluate", "two"))
    assert "2 processes share one mesh" in first[1]
    assert "on each of 4 devices (data=4,tensor=1)" in first[1]
    assert second[1] == ""
    found = result(folder, "two")
    check_same(found, whole(4))
    check_counted(found, whole(4))
    check_counted(found, whole(1))
    again, other = map(ended, launched(folder, "evaluate", "two"))
    assert "already finished" in again[1]
    assert other[1] == ""
    assert result(folder, "two") == found


def test_the_end_of_one_ends_the_other_and_the_same_command_resumes(folder, whole):
    out = "ended"
    both = launched(folder, "evaluate", out)
    while not (folder / out / "checkpoints" / "stages" / "calibration_text").exists():
        time.sleep(0.05)
    both[1].send_signal(signal.SIGKILL)
    ended(both[1], -9)
    other, _ = both[0].communicate(timeout=300)
    assert both[0].returncode
    assert "tokens" not in other
    for process in launched(folder, "evaluate", out):
        _, error = ended(process)
        assert "continuing the calibration prompts" not in error
    check_same(result(folder, out), whole(4))


def test_tuning_over_two_processes_is_tuning_in_one(folder):
    ended(start(folder, "tune", "tuned-whole", devices=4))
    first, second = launched(folder, "tune", "tuned-two")
    ended(first)
    assert ended(second)[1] == ""
    check_same(result(folder, "tuned-two"), result(folder, "tuned-whole"))
    check_counted(result(folder, "tuned-two"), result(folder, "tuned-whole"))
    files = {path.name for path in (folder / "tuned-whole").iterdir()}
    assert {path.name for path in (folder / "tuned-two").iterdir()} == files
