"""Run directories: what made them, listed, compared, opened, resumed; from Python and from the shell."""

import json
import os
from pathlib import Path

import pytest

import jaxspec as js
from jaxspec.cli import main
from jaxspec.errors import InputError
from jaxspec.runs import compare_runs, find_run, list_runs, runs_table


def shell(capsys, *arguments):
    with pytest.raises(SystemExit) as left:
        main(["runs", *map(str, arguments)])
    out, err = capsys.readouterr()
    return left.value.code or 0, out, err


def cells(table):
    return {row.cells[0]: row.cells[1:] for row in table.rows}


def test_a_run_knows_what_made_it():
    js.toy(width=4, device="a,b", seed=7, out="runs/first")
    run = find_run("runs/first")
    assert (run.command, run.state, run.seed) == ("toy", "finished", 7)
    assert run.headline == [{"device": "a", "area": 19.5}, {"device": "b", "area": 19.5}]
    (made,) = run.attempts
    assert made["versions"]["jax"]
    assert made["devices"][0]["count"] >= 1
    assert "commit" in made
    assert "Toy" not in repr(run)
    assert "setting width" in run._repr_html_()
    assert js.open_result("runs/first").run._repr_html_() == run._repr_html_()


def test_runs_are_listed_and_compared(capsys):
    js.toy(width=4, out="runs/first")
    js.toy(width=5, out="runs/second")
    runs = list_runs()
    assert [run.path.name for run in runs] == ["first", "second"]
    assert cells(runs_table(runs))["second"][-1] == "area 25"
    differing = cells(compare_runs([run.path for run in runs]))
    assert differing["setting width"] == ("4", "5")
    assert differing["area"] == ("16", "25")
    assert "setting seed" not in differing
    code, out, _ = shell(capsys, "list", "--json", "runs.json")
    assert code == 0
    assert "2 runs, 2 finished" in out
    assert [run["command"] for run in json.loads(Path("runs.json").read_text())] == ["toy", "toy"]
    code, out, _ = shell(capsys, "compare", "runs/first", "runs/second")
    assert (code, "setting width" in out) == (0, True)
    code, out, _ = shell(capsys, "show", "runs/first")
    assert code == 0
    assert "Toy" in out


def test_equal_settings_and_seed_give_equal_results():
    first, second = (js.toy(seed=5, out=name) for name in ("one", "two"))
    assert first.to_json() == second.to_json()


def test_an_unfinished_run_is_resumed_and_keeps_its_attempts(capsys):
    whole = js.toy(width=4, out="runs/first")
    (Path("runs/first") / "result.json").unlink()
    assert find_run("runs/first").state == "unfinished"
    with pytest.raises(InputError, match="not finished; jaxspec runs resume runs/first"):
        js.open_result("runs/first")
    assert js.resume("runs/first").results == whole.results
    assert len(find_run("runs/first").attempts) == 2
    (Path("runs/first") / "result.json").unlink()
    code, out, err = shell(capsys, "resume", "runs/first")
    assert code == 0
    assert "that is all" in out
    assert "result: runs/first" in err
    assert js.resume("runs/first").to_json() == whole.to_json()


@pytest.mark.parametrize("finished", [True, False])
def test_settings_that_were_changed_afterwards_are_noticed(capsys, finished):
    js.toy(width=4, out="run")
    if not finished:
        os.unlink("run/result.json")
    settings = Path("run/config.toml")
    written = settings.read_text()
    settings.write_text(written.replace("width = 4", "width = 5"))
    for use in (
        lambda: js.resume("run"),
        lambda: js.toy(width=5, out="run"),
        lambda: js.open_result("run") if finished else js.resume("run"),
        lambda: compare_runs(["run", "run"]),
    ):
        with pytest.raises(InputError, match=r"config\.toml' has changed since the run was begun.*restore it"):
            use()
    code, _, err = shell(capsys, "resume", "run")
    assert (code, len(err.strip().splitlines())) == (2, 1)
    settings.write_text(written)
    assert js.resume("run").area.value == 16
    js.toy(width=5, out="run", force=True)  # anew, with a record of its own
    assert js.open_result("run").area.value == 25


DAMAGED_RECORDS = [
    ("run.json", {"attempts": 5}),
    ("run.json", {"attempts": [{"versions": [5]}]}),
    ("run.json", {"attempts": [{"devices": [{}]}]}),
    ("run.json", {"headline": "ab"}),
    ("inputs.json", {"text": 5}),
    ("inputs.json", None),  # deeper than Python reads
]


@pytest.mark.parametrize(("name", "change"), DAMAGED_RECORDS)
def test_a_damaged_record_is_one_line(capsys, name, change):
    js.toy(width=4, out="runs/first")
    js.toy(width=5, out="runs/second")
    file = Path("runs/first", name)
    text = "[" * 200_000 if change is None else json.dumps(json.loads(file.read_text()) | change)
    file.write_text(text)
    for arguments in (["show", "runs/first"], ["compare", "runs/first", "runs/second"], ["resume", "runs/first"]):
        code, _, err = shell(capsys, *arguments)
        assert code == 2
        assert f"{name}' is damaged" in err
        assert len(err.strip().splitlines()) == 1
    with pytest.raises(InputError, match="is damaged"):
        js.toy(width=4, out="runs/first")
    js.toy(width=4, out="runs/first", force=True)
    assert find_run("runs/first").finished


def test_a_run_in_progress_is_reported():
    js.toy(out="runs/first")
    os.unlink("runs/first/result.json")
    import fcntl

    with open("runs/first/.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert find_run("runs/first").state == ("running" if Path("/proc/locks").exists() else "unfinished")


def test_runs_of_earlier_versions_are_recognised_by_their_settings():
    js.toy(width=4, out="runs/first")
    os.unlink("runs/first/run.json")
    assert find_run("runs/first").command is None
    assert js.open_result("runs/first").area.value == 16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list", "nowhere"], "folder 'nowhere' cannot be read (No such file or directory); give one with runs"),
        (["show", "nowhere"], "run 'nowhere' is no run directory"),
        (["show", "n" * 300], "nnnn' is no run directory"),
        (["lst"], "no such command 'lst'; did you mean list"),
        (["show", "bad"], "run.json' is damaged"),
    ],
)
def test_bad_input_is_one_line(arguments, message, capsys):
    Path("bad").mkdir()
    Path("bad", "config.toml").write_text("width = 3")
    Path("bad", "run.json").write_text("[")
    code, _, err = shell(capsys, *arguments)
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1


def test_a_damaged_run_does_not_hide_the_others(capsys):
    js.toy(width=4, out="runs/first")
    js.toy(width=5, out="runs/second")
    Path("runs/first/run.json").write_text("[")
    damaged, whole = list_runs()
    assert (damaged.state, damaged.headline, whole.state, whole.damage) == ("damaged", [], "finished", None)
    assert "run.json" in damaged.damage
    assert "--force" in damaged.damage
    code, out, _ = shell(capsys, "list", "--json", "runs.json")
    assert (code, "2 runs, 1 finished" in out, "area 25" in out) == (0, True, True)
    assert [run["state"] for run in json.loads(Path("runs.json").read_text())] == ["damaged", "finished"]


def test_an_edited_number_is_not_one_of_the_run(capsys):
    whole = js.toy(width=4, device="a,b", out="runs/first")
    kept = whole["b"].save("runs/kept")
    assert js.open_result(kept) == whole["b"]
    path = Path("runs/first/result.json")
    path.write_text(path.read_text().replace("16", "99"))
    with pytest.raises(InputError, match="is not as the run wrote it"):
        js.open_result("runs/first")
    assert [(run.path.name, run.state) for run in list_runs()] == [("first", "damaged"), ("kept", "finished")]
    code, _, err = shell(capsys, "show", "runs/first")
    assert (code, len(err.splitlines())) == (2, 1)
    assert js.toy(width=4, device="a,b", out="runs/first", force=True) == whole
    assert js.open_result("runs/first") == whole
