"""Engines' commands name what an engine can load: a repository, a folder with weights, or a placeholder."""

import json
import shlex

import pytest

from hwmodels import catalog
from jaxspec.settings import build_config
from jaxspec.studies.advise.config import AdviseConfig
from jaxspec.studies.advise.inputs import served_draft, served_target, weights_notes
from jaxspec.studies.engine_flags import engines_for

LLAMA = "meta-llama/Llama-3.1-8B"
SIZES = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 256,
    "tie_word_embeddings": False,
}


def named(**settings):
    config = build_config(AdviseConfig, settings)
    return served_target(config), served_draft(config).weights


def commands(**settings):
    config = build_config(AdviseConfig, settings)
    return {engine.title: engine for engine in engines_for(served_target(config), served_draft(config), 3)}


@pytest.mark.parametrize("name", catalog.architecture_names())
def test_no_command_names_an_entry_of_the_catalog(name):
    target, draft = named(architecture=name, draft=name)
    if name.startswith("embedded"):  # trained here
        assert target == draft == f"<weights of {name}>"
    else:
        owner, _, own = target.partition("/")
        assert owner
        assert own
        assert target == draft == catalog.architecture_repository(name)
    # "qwen3.8-27b" -> "Qwen/Qwen3.8-27B", "vicuna-7b" -> "lmsys/vicuna-7b-v1.5".
    assert name.replace("glm-", "").split("-")[0].lower() in target.lower()


def test_both_networks_of_a_command():
    found = commands(architecture="Llama-3.1-8B", draft="llama-3.2-1b")
    assert shlex.split(found["vLLM"].shown.replace("\\\n", ""))[2] == LLAMA
    assert json.loads(found["vLLM"].content)["model"] == "meta-llama/Llama-3.2-1B"
    assert f"--model-path {LLAMA} " in found["SGLang"].content
    assert f"from_pretrained('{LLAMA}'" in found["transformers"].content
    # The conversion reads folders alone.
    lines = found["llama.cpp"].content.replace(" \\\n   ", "").splitlines()
    assert lines[0] == f"hf download {LLAMA} --local-dir target"
    assert lines[1].startswith("python convert_hf_to_gguf.py target --outtype")
    assert lines[2] == "hf download meta-llama/Llama-3.2-1B --local-dir draft"


def test_heads_are_placeholders_that_a_shell_takes_as_one_word():
    text = commands(draft="eagle3")["SGLang"].content.replace("\\\n", "")
    words = shlex.split(text)
    assert words[words.index("--speculative-draft-model-path") + 1] == "<eagle3 head for llama-3.1-8b>"
    assert named(draft="eagle3", target_weights="mine", draft_weights="head") == ("mine", "head")
    assert named(draft="ngram") == (LLAMA, "")


def test_a_folder_is_named_where_it_has_weights(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SIZES))
    for name in (path, tmp_path):
        assert named(architecture=str(name), draft="ngram")[0] == f"<weights of {name}>"
    (tmp_path / "model.safetensors").touch()
    for name in (path, tmp_path):
        assert named(architecture=str(name), draft=str(path)) == (str(tmp_path), str(tmp_path))
    assert "hf download" not in commands(architecture=str(path), draft="ngram")["llama.cpp"].content


def test_what_was_not_named_is_told():
    def notes(**settings):
        return " | ".join(weights_notes(build_config(AdviseConfig, settings)))

    assert notes(draft="llama-3.2-1b") == (
        f"the engines' commands load {LLAMA} and meta-llama/Llama-3.2-1B; --target-weights or --draft-weights gives others"
    )
    assert "replace <eagle3 head for llama-3.1-8b> in the engines' commands, or give --draft-weights" in notes()
    assert notes(target_weights="mine", draft_weights="head") == ""
    assert "do not store the target by int8-channel" in notes(scheme="int8-channel")
    assert notes(scheme="int8-channel", target_weights="mine", draft="ngram") == ""
