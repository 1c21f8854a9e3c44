"""Every file that a configuration names is part of its run: a changed one is noticed and named."""

import json
import re
from pathlib import Path

import pytest

from hwmodels import catalog
from jaxspec.errors import InputError
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.inputs import input_digests
from jaxspec.studies import CompareConfig, EvaluateConfig, ExportConfig, SweepConfig, TreeConfig

DEVICE = (Path(catalog.__file__).parent / "devices" / "rtx-4090.toml").read_text(encoding="utf-8")


@pytest.fixture
def files(tmp_path, monkeypatch):
    """One file of each kind in the working directory."""
    monkeypatch.chdir(tmp_path)
    for folder in ("model", "shape", "draft"):
        Path(folder).mkdir()
        Path(folder, "config.json").write_text(json.dumps({"of": folder}))
    Path("model", "model.safetensors").write_bytes(b"weights")
    Path("model", "more.jspk").write_bytes(b"container")
    Path("mine.toml").write_text(DEVICE)
    Path("r.json").write_text("[]")
    Path("t.txt").write_text("text")
    return tmp_path


EVALUATE = {
    "model": "model",
    "architecture": "shape",
    "device": "rtx-4090,mine.toml",
    "knobs": "r.json",
    "text": "t.txt",
}
TREE = {"model": "model", "draft": "draft"}
SWEEP = {"axes": {"workload.batch": [1]}, "device": ["mine.toml"], "architecture": ["shape", "r.json"]}


@pytest.mark.parametrize(
    ("kind", "settings", "names"),
    [
        (
            EvaluateConfig,
            EVALUATE,
            {"config.json", "model.safetensors", "shape/config.json", "mine.toml", "r.json", "t.txt"},
        ),
        (EvaluateConfig, {"model": "model/more.jspk"}, {"more.jspk"}),
        (TreeConfig, TREE, {"config.json", "model.safetensors", "draft/config.json"}),
        (SweepConfig, SWEEP, {"mine.toml", "shape/config.json", "r.json"}),
        (SweepConfig, SWEEP | {"device": ["rtx-4090"], "architecture": ["llama-3.1-8b"]}, set()),
        (ExportConfig, {"run": "embedded"}, set()),
    ],
)
def test_every_file_that_is_named_has_a_digest(files, kind, settings, names):
    assert set(input_digests(kind(**settings))) == names


@pytest.mark.parametrize(
    ("settings", "edited"),
    [
        (EVALUATE, "mine.toml"),
        (EVALUATE, "shape/config.json"),
        (EVALUATE, "r.json"),
        (EVALUATE, "t.txt"),
        (EVALUATE, "model/model.safetensors"),
        (TREE, "draft/config.json"),
    ],
)
def test_an_edited_file_is_named_and_the_old_result_is_not_shown(files, settings, edited):
    config = (TreeConfig if "draft" in settings else EvaluateConfig)(**settings)

    def begin(**more):
        return RunDirectory("evaluate", config, inputs=input_digests(config), out=files / "run", **more)

    with begin() as run:
        run.write_result([{"speedup": 1.0}])
    with begin() as run:
        assert run.finished() == [{"speedup": 1.0}]
    Path(edited).write_text(Path(edited).read_text() + " ")
    name = edited.removeprefix("model/")
    with pytest.raises(InputError, match=f"{name} has changed since run directory .* was begun; .*--force"):
        begin()
    with begin(force=True) as run:
        assert run.finished() is None


@pytest.mark.parametrize(
    ("settings", "added", "told"),
    [
        (EVALUATE, "model/generation_config.json", "generation_config.json (new)"),
        (EVALUATE, "model/chat_template.jinja", "chat_template.jinja (new)"),
        (TREE, "draft/tokenizer.json", "draft/tokenizer.json (new)"),
        (TREE | {"model": "a model", "draft": "draft"}, "a model/tokenizer_config.json", "tokenizer_config.json (new)"),
    ],
)
def test_a_file_that_comes_later_is_a_changed_one(files, settings, added, told):
    # With it prompts are other ones, or texts end elsewhere.
    Path("model").rename(settings["model"]) if settings["model"] != "model" else None
    config = (TreeConfig if "draft" in settings else EvaluateConfig)(**settings)
    recorded = input_digests(config)
    RunDirectory("evaluate", config, inputs=recorded, out=files / "run").close()
    Path(added).write_text("{}")
    with pytest.raises(InputError, match=rf"^{re.escape(told)} has changed since run directory"):
        RunDirectory("evaluate", config, inputs=input_digests(config), out=files / "run")
    Path(added).rename(Path(added).parent / "notes.json")  # which nothing is read from
    RunDirectory("evaluate", config, inputs=input_digests(config), out=files / "run").close()


def test_drafts_of_a_comparison_are_digested_by_the_same_rule(files):
    for folder in ("one", "two"):
        Path(folder).mkdir()
        for name in ("config.json", "model.safetensors", "consolidated.safetensors", "README.md"):
            Path(folder, name).write_text(folder)
    found = input_digests(CompareConfig(model="model", drafts=("one", "two", "ngram", "model/more.jspk")))
    assert {name for name in found if "/" in name} == {
        *(f"{folder}/{name}" for folder in ("one", "two") for name in ("config.json", "model.safetensors")),
        "model/more.jspk",
    }
