"""Settings of `jaxspec tree`: what is refused, and before any work."""

import shutil

import pytest

from jaxspec.errors import InputError
from jaxspec.models import embedded
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.inputs import input_digests
from jaxspec.runs.progress import Reporter
from jaxspec.settings import build_config
from jaxspec.studies import TreeConfig, search_tree
from jaxspec.studies.tree.stages import begin_tree


@pytest.fixture(scope="module")
def settings(tiny_model, some_text):
    return {"model": str(tiny_model), "text": str(some_text), "nodes": 6, "depth": 3, "contexts": "2048,70,32768"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"nodes": 2, "depth": 3, "search": "width"}, "depth is 3; 2 nodes can have 1 to 2 levels"),
        ({"draft": "nobody"}, "draft 'nobody' is unknown"),
        ({"device": "rtx-409"}, "did you mean"),
    ],
)
def test_bad_input_is_refused_before_any_work(settings, tmp_path, given, words):
    with pytest.raises(InputError, match=words):
        search_tree(build_config(TreeConfig, settings, given), out=str(tmp_path / "bad"))
    assert not (tmp_path / "bad" / "checkpoints").exists()


def test_a_changed_draft_is_noticed(settings, tmp_path):
    draft = tmp_path / "draft"
    shutil.copytree(settings["model"], draft)
    config = build_config(TreeConfig, settings, {"draft": str(draft)})
    of_the_draft = lambda: {key: sha for key, sha in input_digests(config).items() if key.startswith("draft/")}
    before = of_the_draft()
    assert set(before) == {"draft/config.json", "draft/model.safetensors"}
    data = bytearray((draft / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (draft / "model.safetensors").write_bytes(bytes(data))
    after = of_the_draft()
    assert {name for name in before if before[name] != after[name]} == {"draft/model.safetensors"}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("128,x", "whole numbers"),
        ("-1", "contexts is -1; allowed is 0"),
        ([1.5], "whole numbers"),
        ("", "whole numbers"),
    ],
)
def test_contexts_are_whole_numbers(value, words):
    with pytest.raises(InputError, match=words):
        build_config(TreeConfig, {"contexts": value})
    assert build_config(TreeConfig, {"contexts": "512, 7,512"}).contexts == (7, 512)


def test_a_tree_run_loads_its_target_once(tiny_model, some_text, tmp_path, monkeypatch):
    loaded, load = [], embedded.load_directory
    monkeypatch.setattr(embedded, "load_directory", lambda path, **more: loaded.append(str(path)) or load(path, **more))
    settings = {"model": str(tiny_model), "text": str(some_text), "prompts": 2, "prompt_tokens": 8, "output_tokens": 4}
    config = build_config(TreeConfig, settings, {"nodes": 3, "depth": 2, "draft": "q4"})
    with RunDirectory("tree", config, inputs={}, out=tmp_path / "run") as directory:
        stages = begin_tree(config, directory, Reporter())
    assert loaded == [str(tiny_model)]
    assert stages.made is not None
    assert stages.work.setup.loaded.params is stages.work.setup.stored
