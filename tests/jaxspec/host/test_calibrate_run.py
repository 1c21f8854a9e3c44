"""The command: from a file or from a machine (whose clock is known here) to a device that other commands take."""

import json
from pathlib import Path

import pytest
from known_machine import known_rows, noisy

import jaxspec as js
from jaxspec.cli import main
from jaxspec.host import measuring
from jaxspec.host.measuring import machine_name
from jaxspec.host.programs import Timed, Timing
from jaxspec.host.table import rows_text
from jaxspec.partial_files import to_json
from jaxspec.report.assumptions import device_facts, number_status

pytestmark = pytest.mark.study


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    return caught.value.code or 0, *capsys.readouterr()


def refused(capsys, *arguments):
    code, _, err = run(capsys, *arguments)
    assert code == 2
    return err.strip().splitlines()[-1]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_times_of_a_file_become_a_device_that_other_commands_take(capsys):
    Path("mine.csv").write_text(rows_text(noisy(known_rows(bits=(32.0,)))))
    code, out, _ = run(capsys, "calibrate", "--from", "mine.csv", "-o", "board.toml", "--json", "found.json")
    assert code == 0
    assert "Device of mine.csv" in out
    assert "products, 32-bit" in out
    found = json.loads(Path("found.json").read_text())
    assert found["noise"] is None
    assert found["status"]["measurements"] is not None
    assert found["device_file"] == Path("board.toml").read_text()
    assert {part["part"] for part in found["parts"]} == {"products", "attention", "lookup", "sampling"}
    (folder,) = Path("runs").iterdir()
    assert {"report.html", "device.toml", "measurements.csv", "config.toml"} <= {p.name for p in folder.iterdir()}
    assert len(list((folder / "figures").iterdir())) == 2
    assert json.loads((folder / "inputs.json").read_text()).keys() == {"mine.csv"}
    # Again: reprinted, into another file; from Python the same.
    again = js.calibrate(measurements="mine.csv", out="other.toml")
    assert Path("other.toml").read_text() == Path("board.toml").read_text()
    assert again.plain()["step_error"] is None
    assert js.open_result(folder).plain() == again.plain()
    facts = device_facts("board.toml")
    assert "take the times that the device's file was fitted to; 90 %" in " ".join(facts["assumptions"])
    assert number_status(facts["device_data"]["matrix_unit.formats.0.launch_s"].source) == "calibrated"
    # The times of another device do not tell its memory.
    assert facts["device_data"]["memory.capacity_bytes"].source.startswith("assumed: that of the machine that fitted")
    assert any("capacity_bytes in its file is this machine's" in note for note in again.notes)
    assert js.device("board.toml").matrix_unit.remarks[0].startswith("no whole steps")


def test_bad_input_is_one_line_before_anything_is_made(capsys):
    assert "measurements 'no.csv' is no file" in refused(capsys, "calibrate", "--from", "no.csv")
    Path("bad.csv").write_text("part,seconds\nturn,x\n")
    assert "bad.csv, line 2, column seconds: 'x' came" in refused(capsys, "calibrate", "--from", "bad.csv")
    Path("mine.toml").write_text("title = 'mine'\n")
    assert "was not written by jaxspec calibrate" in refused(capsys, "calibrate", "-o", "mine.toml")
    assert "end it in .toml" in refused(capsys, "calibrate", "-o", "mine.txt")
    Path("steps.csv").write_text(
        "part,weight_bits,batch,tokens,context_tokens,architecture,layers,seconds\nstep,16,1,1,9,embedded,5,1e-3\n"
    )
    assert "ran 5 layers of embedded, which has 4" in refused(capsys, "calibrate", "--from", "steps.csv")
    few = [row for row in known_rows(bits=(32.0,)) if row.part == "product"][:5]
    Path("few.csv").write_text(rows_text(few))
    assert "32-bit weights: 5 different ones came; at least 8" in refused(capsys, "calibrate", "--from", "few.csv")
    assert not Path("runs").exists()
    code, out, _ = run(capsys, "calibrate", "--example")
    assert code == 0
    assert out.startswith("part,weight_bits")


@pytest.fixture
def timed_groups(monkeypatch):
    """Programs are not made, and every one takes as long; names of the groups that were timed."""
    found, nothing = [], lambda *args, **options: Timed(lambda turns: None)
    for what in ("attention", "launch", "lookup", "product", "sampling", "step", "stream", "turn"):
        monkeypatch.setattr(measuring.programs, f"{what}_program", nothing)
    monkeypatch.setattr(measuring, "random_params", lambda config, held: None)
    monkeypatch.setattr(
        measuring,
        "cycle_timings",
        lambda config, held, *, lengths, **rest: [Timing(2e-3, 1e-3, 0.01, 0.1)] * (1 + 2 * len(lengths)),
    )
    monkeypatch.setattr(measuring, "product_program", nothing)
    monkeypatch.setattr(
        measuring, "measure", lambda programs, *, repeats, empty=None: [Timing(2e-5, 1e-5, 0.01, 0.1) for _ in programs]
    )
    timed = measuring._timed

    def noted(group, repeats):
        if group.name.startswith("lookup"):
            raise KeyboardInterrupt
        found.append(group.name)
        return timed(group, repeats)

    monkeypatch.setattr(measuring, "_timed", noted)
    return found


def test_a_stopped_run_goes_on_where_it_was_and_another_machine_is_refused(timed_groups, monkeypatch, capsys):
    code, _, err = run(capsys, "calibrate", "--quick")
    assert code == 130
    assert "the same command resumes it" in err
    first = list(timed_groups)
    assert first[-1] == "stream/all"
    assert "product/float32-256x704-17" in first
    assert run(capsys, "calibrate", "--quick")[0] == 130
    assert timed_groups == first  # what was timed is there; the group that stopped it is the next
    (machine,) = Path("runs").glob("*/checkpoints/machine.json")
    recorded = machine.read_text()
    machine.write_text(to_json({"machine": machine_name(), "load": None}))  # as earlier versions did
    assert run(capsys, "calibrate", "--quick")[0] == 130
    machine.write_text(recorded)
    monkeypatch.setattr(measuring, "whole_machine_name", lambda: "another")
    assert "and this is another; start it anew with --force" in refused(capsys, "calibrate", "--quick")
    for damaged in ("{", "[" * 100_000, "[]", '{"machine": "another"}', '{"machine": "another", "load": "high"}'):
        machine.write_text(damaged)
        assert "machine.json' is damaged" in refused(capsys, "calibrate", "--quick")
    assert timed_groups == first
