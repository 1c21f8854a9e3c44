"""Flags that say how processes find one another, and which commands stay on the processor."""

import importlib
import os
import socket
import subprocess
import sys

import pytest

from jaxspec.cli import main
from jaxspec.cli.study_command import Launch, launch_of
from jaxspec.registries import load_object
from jaxspec.runs.processes import Processes
from jaxspec.studies.study import STUDIES, find_study


def flags(**given):
    return {"distributed": False, "coordinator": None, "processes": None, "process_id": None} | given


def test_launches():
    assert launch_of(flags()) is None
    assert launch_of(flags(distributed=True)) == Launch()
    of_three = {"coordinator": "[::1]:4000", "processes": 3, "process_id": 2}
    assert launch_of(flags(**of_three)) == launch_of(flags(distributed=True, **of_three)) == Launch(**of_three)
    others = flags(batch=3)
    launch_of(others)
    assert others == {"batch": 3}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--coordinator node:4000", "--processes and --process-id did not come; give all of"),
        ("--process-id 0", "--coordinator and --processes did not come"),
        ("--coordinator node --processes 2 --process-id 0", "--coordinator is 'node'; give address and free port"),
        ("--coordinator :80 --processes 2 --process-id 0", "--coordinator is ':80'"),
        ("--coordinator a:65536 --processes 2 --process-id 0", "--coordinator is 'a:65536'"),
        ("--coordinator a:80 --processes 0 --process-id 0", "--processes is 0; it must be at least 1"),
        ("--coordinator a:80 --processes 2 --process-id 2", "2 processes are numbered 0 to 1"),
        ("--coordinator a:80 --processes 2 --process-id -1", "--process-id is -1"),
        ("--coordinator a:80 --processes two --process-id 0", "--processes"),
    ],
)
def test_launches_that_cannot_be_meant(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.toml").write_text('[axes]\n"workload.batch" = [1]\n')
    with pytest.raises(SystemExit) as left:
        main(["sweep", "sweep.toml", *arguments.split()])
    assert left.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.toml"]


@pytest.mark.parametrize("shared", [False, True])
def test_a_port_that_is_taken(tmp_path, monkeypatch, capsys, shared):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.toml").write_text('[axes]\n"workload.batch" = [1]\n')
    with socket.socket() as other:
        # As the process 0 of another run listens: it would share its port with ours.
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, shared)
        other.bind(("127.0.0.1", 0))
        other.listen()
        where = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(SystemExit) as left:
            main(["sweep", "sweep.toml", "--coordinator", where, "--processes", "2", "--process-id", "0"])
    assert left.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith(f"jaxspec: process 0 cannot listen at '{where}' (Address already in use); give a free port")
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.toml"]


@pytest.mark.parametrize("name", [name for name in STUDIES if find_study(name).meshed])
def test_processes_that_share_a_mesh_share_the_whole_run(monkeypatch, name):
    study, given, both = find_study(name), {}, Processes(1, 2)
    module = importlib.import_module(study.run.partition(":")[0])

    def carried(*_, **named):
        given.update(named)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "shared_processes", lambda: both)
    carries = [called for called in ("execute_run", "execute_record_run") if hasattr(module, called)]
    for called in carries:
        monkeypatch.setattr(module, called, carried)
    with pytest.raises(KeyboardInterrupt):
        load_object(study.run)(study.config())
    assert given["processes"] is both


#: A command line that ends where it would read its settings, and tells on which devices it would run.
ENDED_EARLY = """
import os, sys
from jaxspec.cli import main, study_command
def ends(*_):
    sys.exit(os.environ.get("JAX_PLATFORMS", "any"))
study_command.resolve = ends
main([sys.argv[1]])
"""


@pytest.mark.signals(1)
@pytest.mark.parametrize(
    ("command", "given", "wanted"),
    [("predict", None, "cpu"), ("predict", "cuda", "cuda"), ("serve", None, "cpu"), ("evaluate", None, "any")],
)
def test_commands_that_price_single_designs_stay_on_the_processor(command, given, wanted):
    rest = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
    done = subprocess.run(
        [sys.executable, "-c", ENDED_EARLY, command],
        env=rest | ({"JAX_PLATFORMS": given} if given else {}),
        capture_output=True,
        text=True,
    )
    assert done.stderr.strip() == wanted
