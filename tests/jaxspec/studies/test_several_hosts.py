"""Evaluating and tuning over two processes of two devices each. Minutes: `pytest -m slow`."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import cache

import pytest
from own_address import launch_flags, own_address

pytestmark = pytest.mark.slow

#: Shares of a result that stand for the same run: times are none.
RELATIVE = 1e-5

#: A program of one's own.
OWN = """
import sys
import jax
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
import jaxspec as js
print(js.evaluate("evaluate.toml", out="own")[0].configurations["given"].tokens_per_cycle_counted.known)
"""

COUNTED = ("tokens_per_cycle_counted", "draft_length", "bits_per_weight")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_model, some_text, small):
    path = tmp_path_factory.mktemp("hosts")
    both = {"model": str(tiny_model), "text": str(some_text), "device": ["rtx-4090"]}
    for command in ("evaluate", "tune"):
        steps = () if command == "tune" else ("steps", "uniform_steps", "windows_per_step")
        settings = both | {name: value for name, value in small.items() if name not in steps}
        (path / f"{command}.toml").write_text(
            "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
        )
    return path


def start(folder, command, out, *flags, devices):
    return child(folder, "-m", "jaxspec", command, "--config", f"{command}.toml", "--out", out, *flags, devices=devices)


def child(folder, *words, devices):
    environment = os.environ | {
        "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}",
        "JAX_PLATFORMS": "cpu",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "true",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *words], cwd=folder, env=environment, **pipes)


def launched(folder, command, out, *flags, devices=2):
    return [start(folder, command, out, *flags, *own, devices=devices) for own in launch_flags(2)]


def ended(process, code=0):
    out, error = process.communicate(timeout=1800)
    assert process.returncode == code, error
    assert "Traceback" not in error
    return out, error


def result(folder, out):
    (found,) = json.loads((folder / out / "result.json").read_text())
    found.pop("timing_s")
    return found


def check_same(ours, theirs, where=""):
    """Equal, numbers to rounding."""
    if isinstance(ours, dict):
        assert set(ours) == set(theirs), where
        for name in ours:
            check_same(ours[name], theirs[name], f"{where}.{name}")
    elif isinstance(ours, list):
        assert len(ours) == len(theirs), where
        for index, pair in enumerate(zip(ours, theirs, strict=True)):
            check_same(*pair, f"{where}[{index}]")
    elif isinstance(ours, float):
        assert ours == pytest.approx(theirs, rel=RELATIVE, abs=1e-9), where
    else:
        assert ours == theirs, where


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


def test_matrices_may_be_split_over_processes(folder, whole):
    split = ("--mesh", "tensor=2")
    for process in launched(folder, "evaluate", "tensor", *split, devices=1):
        ended(process)
    found = result(folder, "tensor")
    check_same(found, whole(2, *split))
    check_counted(found, whole(2, *split))
    check_counted(found, whole(1))


@pytest.mark.parametrize(
    ("index", "number", "code"), [(1, signal.SIGKILL, -9), (1, signal.SIGINT, 130), (0, signal.SIGINT, 130)]
)
def test_the_end_of_one_ends_the_other_and_the_same_command_resumes(folder, whole, index, number, code):
    out = f"ended-{index}-{number}"
    both = launched(folder, "evaluate", out)
    while not (folder / out / "checkpoints" / "stages" / "calibration_text").exists():
        time.sleep(0.05)
    both[index].send_signal(number)
    ended(both[index], code)
    other, error = ended(both[1 - index], 2)
    assert "tokens" not in other
    assert f"run directory {out} keeps what is done, and the same command resumes it" in error if index else error == ""
    for process in launched(folder, "evaluate", out):
        _, error = ended(process)
        assert "continuing the calibration prompts" not in error
    check_same(result(folder, out), whole(4))


def test_settings_that_several_processes_cannot_have(folder):
    for flags, line in {
        ("--stream",): "stream came with 2 processes",
        ("--stopwatch",): "stopwatch came with 2 processes",
        ("--mesh", "data=1"): "mesh is 'data=1'; 2 processes have 2 devices",
    }.items():
        first, second = launched(folder, "evaluate", "refused", *flags, devices=1)
        assert line in ended(first, 2)[1].splitlines()[-1]
        assert ended(second, 2)[1] == ""
    assert not (folder / "refused").exists()


def test_a_program_that_has_initialized_jax_itself(folder, whole):
    where = own_address()
    both = [child(folder, "-c", OWN, where, str(i), devices=2) for i in range(2)]
    counted = [float(ended(process)[0].splitlines()[-1]) for process in both]
    assert counted == [whole(4)["configurations"]["given"]["tokens_per_cycle_counted"]] * 2
    check_same(result(folder, "own"), whole(4))


def test_tuning_over_two_processes_is_tuning_in_one(folder):
    ended(start(folder, "tune", "tuned-whole", devices=4))
    first, second = launched(folder, "tune", "tuned-two")
    ended(first)
    assert ended(second)[1] == ""
    check_same(result(folder, "tuned-two"), result(folder, "tuned-whole"))
    check_counted(result(folder, "tuned-two"), result(folder, "tuned-whole"))
    files = {path.name for path in (folder / "tuned-whole").iterdir()}
    assert {path.name for path in (folder / "tuned-two").iterdir()} == files
