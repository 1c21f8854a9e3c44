"""What all reproductions share: a paper found by its folder, rows and summaries, printing, figures, and the command."""

import dataclasses
import json
import sys

import pytest

import experiments.papers
from experiments.reproduce import __main__ as command
from experiments.reproduce import run
from experiments.reproduce.paper import Choice, Modelled, Paper
from jaxspec.errors import InputError

TOY = """
from pathlib import Path

from matplotlib.figure import Figure

from experiments.reproduce.paper import constant, each
from experiments.reproduce.paper import Choice, Detail, Modelled, Paper, PrintedTable, as_printed


def speeds(solved):
    def model(cell):
        if cell["board"] == "d":
            return None
        if cell.metric == "tokens":
            return as_printed(cell)
        status = "calibrated" if cell["board"] == "c" else "predicted"
        return Modelled(cell.value * solved, status, "near", "a slip" if cell["board"] == "e" else "")

    return model


PAPER = Paper(
    name="toy",
    title="A toy",
    folder=Path(__file__).parent,
    minutes=0.01,
    tables=(
        PrintedTable(
            name="speeds",
            title="Table I: speeds",
            model=speeds,
            label=("board",),
            simplest={"one constant": constant()},
            fitted=lambda solved: {"slope": solved},
            fitted_to="board c",
            choices=(Choice("a line"),),
            inherits={"a catalog": lambda solved: {"offset": 2}},
            doubts=("board e",),
        ),
    ),
    solve=lambda seed: 1.05 + seed,
    details=(Detail("extra", "Extra", lambda outcome: [{"a": 1.234}], {"a": "{a:.1f}"}),),
    figures={"empty": lambda outcome: Figure()},
    missed_bars=lambda outcome: ["far off"] if outcome.solved > 2 else [],
)
"""

CSV = """board,metric,value,unit,status,note
a,speed,1,x,printed,
b,speed,4,x,printed,odd
c,speed,9,x,printed,
d,speed,16,x,printed,
e,speed,25,x,printed,
a,tokens,7,tokens,printed,
a,name,seven,text,printed,
a,speed,3,x,commented,
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A paper is one folder: no other file names it."""
    folder = tmp_path / "papers" / "toy"
    (folder / "data").mkdir(parents=True)
    (folder / "__init__.py").write_text('"""A toy."""\n')
    (folder / "paper.py").write_text(TOY)
    (folder / "data" / "toy_speeds.csv").write_text(CSV)
    monkeypatch.setattr(experiments.papers, "__path__", [*experiments.papers.__path__, str(folder.parent)])
    yield run.find_paper("toy")
    for name in [name for name in sys.modules if name.startswith("experiments.papers.toy")]:
        del sys.modules[name]
    vars(experiments.papers).pop("toy", None)


def test_a_paper_is_found_by_its_folder(toy):
    names = run.paper_names()
    assert names == sorted(names)
    assert {"cassandra", "fpga_tree_sd", "huffllm", "toy"} <= set(names)
    assert isinstance(toy, Paper)
    with pytest.raises(InputError, match=", ".join(names)):
        run.find_paper("tyo")
    result = run.reproduce([toy], seed=0)
    assert [(r["conditions"]["board"], r["status"]) for r in result["rows"]] == [
        ("a", "predicted"),
        ("b", "predicted"),
        ("c", "calibrated"),
        ("e", "predicted"),
        ("a", "input"),
    ]
    assert result["rows"][1] == {
        "paper": "toy",
        "table": "speeds",
        "conditions": {"board": "b"},
        "metric": "speed",
        "unit": "x",
        "paper_value": 4.0,
        "model_value": pytest.approx(4.2),
        "relative_error": pytest.approx(0.05),
        "status": "predicted",
        "note": "near; odd",
        "doubt": "",
        "by_outcome": [],
        "as_printed": {},
    }
    summary = result["summary"]["toy/speeds"]
    # Six numbers are printed, board d is not covered; e is in doubt: a and b decide, whose median 2.5 is 150 % and 37.5 % off.
    assert (summary["cells"], summary["covered"], summary["in_doubt"]["cells"]) == (6, 5, 1)
    assert summary["judged"] == {"cells": 2, "median": pytest.approx(0.05), "max": pytest.approx(0.05)}
    assert summary["simplest_predictors"]["one constant"]["max"] == pytest.approx(1.5)
    assert summary["reproduced"]
    assert summary["verdict"] == "reproduced; 1 cells in doubt left out"
    assert (summary["fitted"], summary["choices"], summary["doubts"]) == ({"slope": 1.05}, ["a line"], ["board e"])
    found = result["papers"]["toy"]
    assert (found["details"], found["missed_bars"]) == ({"extra": [{"a": 1.234}]}, [])


@pytest.fixture
def by_outcome(toy):
    """Speeds are read as thrice the printed ones because of board b; twice is printed. Board a was not in view."""
    twice = lambda solved: lambda cell: Modelled(2 * cell.value, "predicted") if cell["board"] in "abce" else None
    choice = Choice(
        "unit",
        used="thrice",
        printed="twice",
        why="nearer",
        seen="board b",
        cells=lambda cell: cell["board"] == "b",
        as_printed=lambda solved: lambda cell: twice(solved)(cell) if cell.metric == "speed" else None,
    )
    (table,) = toy.tables
    model, other = table.model, dataclasses.replace(choice, name="pace")
    speeds = lambda solved: lambda cell: model(solved)(cell) if cell.metric == "speed" else None
    table = dataclasses.replace(table, model=speeds, choices=(Choice("a line"), choice, other.inherited()))
    return dataclasses.replace(toy, tables=(table,))


def test_a_choice_by_outcome_calibrates_its_cells(by_outcome):
    outcome = run.run_paper(by_outcome)
    assert [(row["conditions"]["board"], row["status"], row["by_outcome"]) for row in outcome.rows] == [
        ("a", "predicted", []),
        ("b", "calibrated", ["unit"]),
        ("c", "calibrated", []),
        ("e", "predicted", []),
    ]
    # One cell is left, which a constant can but repeat.
    assert not outcome.summary["speeds"]["reproduced"]
    assert outcome.summary["speeds"]["verdict"].startswith(
        "NOT reproduced: a simpler predictor is as good for speed (none"
    )


def test_command(toy, tmp_path, monkeypatch, capsys):
    out, file = tmp_path / "deep" / "figures", tmp_path / "a" / "r.json"
    monkeypatch.setattr(sys, "argv", ["reproduce", "toy", "toy", "--json", str(file), "--out", str(out)])
    command.main()
    written = json.loads(file.read_text(encoding="utf-8"))
    assert set(written) == {"schema_version", "seed", "rows", "summary", "papers", "versions"}
    assert len(written["rows"]) == 5
    assert sorted(path.name for path in out.iterdir()) == ["toy_empty.png", "toy_errors.png"]
    assert (out / "toy_errors.png").stat().st_size > 20_000
    assert "Median (largest) relative error" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tyo"], "no paper 'tyo'; there are cassandra, "),
        (["--seed", "-1"], "'-1'"),
        (["--seed", "one"], "'one' came; give a whole number"),
        (["--json", "."], ". is a folder; name a file"),
        (["--out", "pyproject.toml"], "pyproject.toml is a file; name a folder"),
        (["--json", "pyproject.toml/r.json"], "cannot be written"),
        (["--nonsense"], "unrecognized"),
    ],
)
def test_bad_input_is_one_line(arguments, words, monkeypatch, capsys, request):
    monkeypatch.chdir(request.config.rootpath)
    monkeypatch.setattr(sys, "argv", ["reproduce", *arguments])
    with pytest.raises(SystemExit) as end:
        command.main()
    said = capsys.readouterr()
    assert end.value.code == 2
    assert words in said.err
    assert len(said.err.splitlines()) == 1
    assert said.out == ""
