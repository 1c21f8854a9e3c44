"""Commands as real processes: signals at any moment, pipes that close, disks that are full."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from jaxspec.cli import main
from jaxspec.models import DecoderConfig, save_directory
from jaxspec.studies import PackConfig, pack_checkpoint

#: Seconds from a signal to the end; about one is promised, on a machine that does nothing else.
AT_ONCE_S = 4.0

SMALL = "--model tiny --text text.txt --prompts 3 --prompt-tokens 12 --output-tokens 10 --calibration-prompts 4"

#: Command -> its arguments, and words on standard error after which it works (None: it says nothing).
COMMANDS = {
    "tune": (f"{SMALL} --steps 7 --uniform-steps 3 --out run", "continuing the calibration"),
    "evaluate": (f"{SMALL} --out run", "continuing the calibration"),
    "tree": (f"{SMALL} --nodes 6 --depth 3 --out run", "continuing the calibration"),
    "sweep": ("sweep.toml --out run", "design points"),
    "pack": ("big.safetensors --scheme huffman -o new/below/big.jspk", "packing"),
    "unpack": ("big.jspk -o back", "unpacking"),
    "inspect": ("big.jspk --json new/big.json", "reading"),
    "predict": ("--json new/p.json --plot new/p.png", None),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, random_network):
    """A folder with what the commands read."""
    folder = tmp_path_factory.mktemp("inputs")
    config = DecoderConfig(
        vocab_size=256, hidden_size=16, intermediate_size=24, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=6
    )
    save_directory(random_network(config, 3), config, folder / "tiny", max_positions=128)
    (folder / "text.txt").write_text("".join(f"line {i}: {i * i % 97} and {i % 7}\n" for i in range(200)))
    tensors = {f"layers.{i}.w": np.full((1000, 1000), i, ml_dtypes.bfloat16) for i in range(24)}
    save_file(tensors, folder / "big.safetensors")
    (folder / "sweep.toml").write_text("[axes]\n'workload.batch' = [1, 2, 4]\n'workload.context_tokens' = [512]\n")
    pack_checkpoint(PackConfig(model=str(folder / "big.safetensors"), scheme="raw"), folder / "big.jspk")
    return folder


@pytest.fixture
def folder(inputs, tmp_path):
    """The inputs in a folder of the test's own."""
    shutil.copytree(inputs, tmp_path / "work", copy_function=os.link)
    return tmp_path / "work"


def start(folder, command, arguments="", **streams):
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    return subprocess.Popen([sys.executable, "-m", "jaxspec", command, *arguments.split()], cwd=folder, **streams)


def listing(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def half_written(folder):
    return [name for name in listing(folder) if ".part" in name or "orbax-checkpoint-tmp" in name]


def stop(process, number):
    """The exit code, standard error, and the seconds that it took."""
    began = time.monotonic()
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    return process.returncode, error.decode(), time.monotonic() - began


def check_stopped(folder, before, code, error, seconds):
    assert code == 130, error
    assert seconds < AT_ONCE_S
    assert error.splitlines()[-1].startswith("jaxspec: interrupted; nothing is half-written; ")
    assert "Traceback" not in error
    assert half_written(folder) == []
    made = set(listing(folder)) - set(before)
    # Beside a run directory only files that were whole at that moment, which the message names, and their folders.
    last = error.splitlines()[-1]
    whole = {name for name in made if "written before that" in last and name in last}
    folders = {str(parent) for name in whole for parent in Path(name).parents}
    assert {name for name in made if name != "run" and not name.startswith("run/")} <= whole | folders
    # What it says of a run directory is true at that moment; one from before is said to keep what is done once it is open.
    said = "run directory run keeps what is done" in error
    assert said or "run/config.toml" not in made
    assert not said or (folder / "run/config.toml").exists()


@pytest.mark.signals(1)
@pytest.mark.parametrize(
    ("command", "number"),
    # The one about two interrupts runs a sweep.
    [
        ("tune", signal.SIGINT),
        ("evaluate", signal.SIGINT),
        ("tree", signal.SIGTERM),
        ("pack", signal.SIGINT),
        ("unpack", signal.SIGTERM),
        ("inspect", signal.SIGINT),
        ("predict", signal.SIGTERM),
    ],
)
def test_a_signal_ends_every_command_at_once_while_native_code_runs(folder, command, number):
    arguments, words = COMMANDS[command]
    before = listing(folder)
    process = start(folder, command, arguments)
    seen = b""
    if words is None:
        time.sleep(2)
    while words is not None and words.encode() not in seen:
        line = process.stderr.readline()
        assert line, seen.decode()
        seen += line
    code, error, seconds = stop(process, number)
    check_stopped(folder, before, code, seen.decode() + error, seconds)


@pytest.mark.signals
def test_the_same_command_goes_on_after_two_interrupts_in_a_row(folder):
    process = start(folder, "sweep", COMMANDS["sweep"][0])
    while b"design points" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    code, _, seconds = stop(process, signal.SIGTERM)
    assert code == 130
    assert seconds < AT_ONCE_S
    assert half_written(folder) == []
    assert not {"run/result.json", "run/sweep.parquet"} & set(listing(folder))
    process = start(folder, "sweep", COMMANDS["sweep"][0])
    assert process.communicate(timeout=300)[1]
    assert process.returncode == 0
    assert "run/sweep.parquet" in listing(folder)


@pytest.mark.signals
@pytest.mark.parametrize("command", ["tune", "pack"])
def test_signals_at_many_moments_and_then_the_whole_command(folder, command):
    arguments, _ = COMMANDS[command]
    rng = random.Random(command)
    begun = time.monotonic()
    whole = start(folder, command, arguments)
    assert whole.communicate(timeout=600)[1] is not None
    assert whole.returncode == 0
    length_s = time.monotonic() - begun
    for made in ("run", "new", "back"):
        shutil.rmtree(folder / made, ignore_errors=True)
    for _ in range(4):
        before = listing(folder)
        process = start(folder, command, arguments)
        try:
            process.communicate(timeout=rng.uniform(0.3, length_s))
        except subprocess.TimeoutExpired:
            stopped = stop(process, rng.choice([signal.SIGINT, signal.SIGTERM]))
            if stopped[0] != 0:
                check_stopped(folder, before, *stopped)
                shutil.rmtree(folder / "new", ignore_errors=True)  # a container that was whole before the signal
                continue
            assert stopped[2] < AT_ONCE_S  # at its end
        assert process.returncode == 0  # it was quicker than the clock, or than the signal
        for made in ("run", "new", "back"):
            shutil.rmtree(folder / made, ignore_errors=True)
    process = start(folder, command, arguments)
    _, error = process.communicate(timeout=600)
    assert process.returncode == 0, error.decode()


def test_signals_are_watched_before_anything_large_is_imported():
    """Until then an interrupt is a traceback of Python's own."""
    large = "{'numpy', 'jax', 'click', 'rich'}"
    code = f"import sys, jaxspec.cli; print(*sorted({large} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "")


def test_importing_takes_no_signal_and_python_callers_get_their_exception(monkeypatch, capsys):
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    before = signal.getsignal(signal.SIGINT)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    from jaxspec.studies import SweepConfig, sweep
    from jaxspec.studies.predict import run as prediction

    monkeypatch.setattr(prediction, "predict", interrupted)
    with pytest.raises(SystemExit) as caught:
        main(["predict"])
    assert caught.value.code == 130
    assert "interrupted; nothing is half-written" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    monkeypatch.setattr(sys.modules["jaxspec.studies.sweep.run"], "plan_sweep", lambda _: interrupted())
    with pytest.raises(KeyboardInterrupt):
        sweep(SweepConfig(axes={"workload.batch": [1]}))


@pytest.mark.parametrize("command", ["devices --sources", "sweep absent.toml"])
def test_a_reader_that_leaves_is_no_error(tmp_path, command):
    read, write = os.pipe()
    os.close(read)  # as `| head` does in the end
    absent = "absent" in command  # bad input tells it on standard error
    process = start(
        tmp_path, command.partition(" ")[0], command.partition(" ")[2], **{"stderr" if absent else "stdout": write}
    )
    os.close(write)
    out, err = process.communicate(timeout=60)
    assert process.returncode == (2 if absent else 141)
    assert not out
    assert not err


@pytest.mark.signals
@pytest.mark.parametrize("command", ["devices", "sweep --example"])
def test_a_full_disk_below_the_output_is_one_line(tmp_path, command):
    with open("/dev/full", "wb") as full:
        process = start(tmp_path, command.partition(" ")[0], command.partition(" ")[2], stdout=full)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.decode().splitlines() == [
        "jaxspec: the output cannot be written (No space left on device); send it elsewhere, then run it again"
    ]
