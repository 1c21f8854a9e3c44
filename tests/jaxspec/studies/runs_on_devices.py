"""Runs of commands in processes of their own, on devices that JAX makes of the processor, and comparison of their results."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from own_address import launch_flags

from jaxspec.runs.stages import Stages

#: Shares of a result that stand for the same run: times are none.
RELATIVE = 1e-5

#: Settings of a command that all others have in another number or not at all.
OF_COMMAND = {
    "evaluate": {},
    "tune": {"steps": 4, "uniform_steps": 2, "windows_per_step": 2, "continuation_tokens": 10},
    "tree": {"nodes": 6, "depth": 3, "contexts": [128, 4096]},
    "compare": {
        "max_draft_length": 3,
        "schemes": ["cassandra1"],
        "drafts": ["q4", "sparse-kv-25", "layer-skip"],
        "lossy": ["int4-channel", "duquant-w4a4kv4"],
        "task": "arithmetic",
        "problems": 3,
    },
}

#: Of `jaxspec scale`, which has other settings than all others. Two groups of problems.
OF_SCALE = {"prompts": 9, "samples": [1, 4], "output_tokens": 10, "batches": [2], "task": "arithmetic"}


def write_settings(path, model, text, small):
    """A file of settings for each command that splits a network: `small` are those of a run in seconds."""
    both = {"model": str(model), "device": ["rtx-4090"]}
    measured = {name: value for name, value in small.items() if name not in OF_COMMAND["tune"]}
    found = {command: both | {"text": str(text)} | measured | own for command, own in OF_COMMAND.items()}
    judged = {"model": [str(model)], "score": "judge", "judge": str(model)}
    found["scale"] = both | OF_SCALE | judged
    for command, settings in found.items():
        lines = (f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
        (path / f"{command}.toml").write_text("".join(lines))


def start(folder, command, out, *flags, devices):
    """A command with its settings on so many devices, under way."""
    return child(folder, "-m", "jaxspec", command, "--config", f"{command}.toml", "--out", out, *flags, devices=devices)


def child(folder, *words, devices):
    """Python with these words on so many devices, under way."""
    environment = os.environ | {
        "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *words], cwd=folder, env=environment, **pipes)


def launched(folder, command, out, *flags, devices=2):
    """Two processes of one run, under way."""
    return [start(folder, command, out, *flags, *own, devices=devices) for own in launch_flags(2)]


def ended(process, code=0):
    """What a process wrote to its end."""
    out, error = process.communicate(timeout=1800)
    assert process.returncode == code, error
    assert "Traceback" not in error
    return out, error


def result(folder, out):
    """A run's only result, without times."""
    (found,) = json.loads((folder / out / "result.json").read_text())
    found.pop("timing_s")
    return found


def stage(folder, out, name):
    """The arrays that a run stored of a stage."""

    def lacking():
        pytest.fail(f"{out} has no stage {name}")

    return Stages((folder / out / "checkpoints").absolute()).run(name, lacking)


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
        # A margin is the difference of two logits, each of which is rounded as it is summed.
        rounding = 4e-6 if where.endswith("margin") else 1e-9
        assert ours == pytest.approx(theirs, rel=RELATIVE, abs=rounding), where
    else:
        assert ours == theirs, where


def check_stages(folder, ours, theirs, names):
    """Stages of two runs: whole numbers and truths are equal, others to rounding."""
    for name in names:
        one, other = (stage(folder, out, name) for out in (ours, theirs))
        assert set(one) == set(other), name
        for field in one:
            if one[field].dtype.kind == "f":
                np.testing.assert_allclose(one[field], other[field], rtol=1e-4, err_msg=f"{name} {field}")
            else:
                np.testing.assert_array_equal(one[field], other[field], err_msg=f"{name} {field}")
