"""A command is a folder and a line: a toy study gets flags, help, bad-input handling, a run directory and JSON."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_calls import refused, run

from jaxspec.registries import load_object
from jaxspec.studies.study import STUDIES, find_study

TOY = {
    "__init__.py": "",
    "config.py": """
import dataclasses
from typing import Literal

from jaxspec.settings.base import Settings
from jaxspec.settings.fields import setting


@dataclasses.dataclass(frozen=True)
class ToyConfig(Settings):
    width: int = setting(3, "Width of the toy.", low=1, high=9, quick=2)
    colour: Literal["red", "green"] = setting("red", "Colour of the toy.")
    weights: dict[str, float] = setting(dict, "Weights by name.", sizes=(1e-6, 1e6))
""",
    "command.py": """
from jaxspec.studies.study import Plot, Study, run_directory
from toy_study.config import ToyConfig

TOY = Study(
    name="toy",
    config=ToyConfig,
    help="Build a toy.",
    run="toy_study.run:build",
    present="toy_study.run:shown",
    announce=lambda config: f"a toy of width {config.width}",
    out=run_directory("toy"),
    plot=Plot("Draw the toy.", "toy_study.run:plot"),
)
""",
    "run.py": """
from jaxspec.report import Shown, Table
from jaxspec.runs import execute_run


def build(config, *, out=None, force=False, reporter=None):
    def prepare(directory, reporter):
        return lambda: {"area": config.width**2, "colour": config.colour}

    return execute_run("toy", config, prepare, out=out, force=force, reporter=reporter)


def shown(found):
    result, directory = found
    table = Table("A toy")
    table.add_column("area")
    table.add_row(str(result["area"]))
    return Shown(result, [table], ["that is all"], f"result: {directory.path / 'result.json'}")


def plot(found):
    from matplotlib.figure import Figure

    return Figure((1, 1))
""",
}


@pytest.fixture
def _toy(tmp_path, monkeypatch):
    folder = tmp_path / "with-toy" / "toy_study"
    folder.mkdir(parents=True)
    for name, text in TOY.items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(folder.parent)
    monkeypatch.setitem(STUDIES, "toy", "toy_study.command:TOY")
    monkeypatch.chdir(tmp_path)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "toy_study"]:
        del sys.modules[name]


@pytest.mark.usefixtures("_toy")
def test_a_study_is_a_folder_and_a_line(capsys):
    code, out, _ = run(capsys, "toy", "--help")
    assert code == 0
    for words in (
        "Build a toy.",
        "--width INTEGER",
        "[1 to 9; default: 3]",
        "[red, green; default: red]",
        "error bars: width 2.",
        "runs/toy-<hash of the settings>",
        "--config",
        "--force",
        "--json",
    ):
        assert words in " ".join(out.split())
    assert "--weights" not in out
    assert "toy" in run(capsys, "--help")[1]
    assert "did you mean toy?" in refused(capsys, "tyo")
    assert "width is 10; allowed is 1 to 9" in refused(capsys, "toy", "--width", "10")
    assert "did you mean --colour?" in refused(capsys, "toy", "--color", "red")
    Path("toy.toml").write_text("colour = 'green'\n[weights]\nhead = 'heavy'\n")
    words = "toy.toml: weights.head is 'heavy'; it must be a finite number"
    assert words in refused(capsys, "toy", "--config", "toy.toml")
    assert not Path("runs").exists()

    Path("toy.toml").write_text("colour = 'green'\nwidth = 9\n[weights]\nhead = 2\n")
    arguments = ("toy", "--config", "toy.toml", "--width", "4", "--json", "toy.json", "--out", "mine")
    code, out, err = run(capsys, *arguments)
    assert code == 0
    assert json.loads(Path("toy.json").read_text()) == {"area": 16, "colour": "green"}
    assert Path("toy.json").read_text() == Path("mine", "result.json").read_text()
    assert "16" in out
    assert "that is all" in out
    assert "jaxspec toy: a toy of width 4" in err
    assert "already finished: mine" in run(capsys, *arguments)[2]
    assert "differs in weights, width" in refused(capsys, "toy", "--quick", "--out", "mine", "--colour", "green")


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_has_what_it_names(name):
    study = find_study(name)
    assert study.name == name
    for place in (study.run, study.present, *([study.plot.draw] if study.plot else [])):
        assert callable(load_object(place))


@pytest.mark.study
def test_settings_do_not_load_jax_and_functions_keep_their_names():
    script = """
import sys
from jaxspec.studies import EvaluateConfig, PackConfig, PredictConfig, SweepConfig, TreeConfig, TuneConfig
assert "jax" not in sys.modules and "matplotlib" not in sys.modules
import jaxspec.studies.sweep.config, jaxspec.studies.tune.config
from jaxspec.studies import sweep, tune
assert callable(sweep) and callable(tune)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
