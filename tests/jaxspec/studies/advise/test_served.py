"""Engines' commands name what an engine can load: a repository, a folder with weights, or a placeholder."""

import json
import shlex

import pytest

from hwmodels import catalog
from jaxspec.results import given
from jaxspec.results.network_results import EngineUsed
from jaxspec.settings import build_config
from jaxspec.studies.advise.config import AdviseConfig
from jaxspec.studies.advise.inputs import served_draft, served_target
from jaxspec.studies.advise.result import AdvisedDraft, AdviseResult
from jaxspec.studies.advise.view import command_lines, without_command
from jaxspec.studies.engine_flags import ServedDraft, engines_for

LLAMA = "meta-llama/Llama-3.1-8B"


def named(**settings):
    config = build_config(AdviseConfig, settings)
    return served_target(config), served_draft(config).weights


def test_mlx_is_asked_for_by_name():
    config = build_config(AdviseConfig, {"engine": "MLX", "architecture": "qwen3-8b", "draft": "qwen3-0.6b"})
    found = engines_for(served_target(config), served_draft(config), 3, mlx=config.engine == "mlx")[-1]
    words = shlex.split(found.content.replace("\\\n", ""))
    assert words == [
        *("mlx_lm.server", "--model", "Qwen/Qwen3-8B", "--draft-model", "Qwen/Qwen3-0.6B", "--num-draft-tokens", "3")
    ]


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


@pytest.mark.parametrize(
    ("engine", "architecture", "said"),
    [
        (
            "trtllm",
            "llama-3.1-8b",
            "no command of trtllm is known here; engines/ has the settings of transformers, vLLM",
        ),
        ("jax", "llama-3.1-8b", "no command of jax is known here"),
        (
            "vllm",
            "target.gguf",
            "no command of vLLM for GGUF files is known here; engines/ has the settings of llama.cpp",
        ),
        *[(name, "llama-3.1-8b", None) for name in ("vllm", "vllm-2025", "sglang", "llama.cpp", None)],
    ],
)
def test_no_other_engines_command_is_shown(engine, architecture, said):
    known = engines_for(architecture, ServedDraft("network", "draft"), 3)
    result = AdviseResult(
        engine=None if engine is None else EngineUsed(name=engine),
        device="h100-sxm",
        draft=AdvisedDraft(name="llama-3.2-1b", kind="network"),
        speculate=given(True),
        commands={each.title: each.shown for each in known},
    )
    if said is None:
        title = {"sglang": "SGLang", "llama.cpp": "llama.cpp"}.get(engine, "vLLM")
        assert command_lines(result)[0] == f"{title}, for h100-sxm:"
        assert without_command(result) == []
    else:
        assert command_lines(result) == []
        assert without_command(result)[0].startswith(f"h100-sxm: {said}")
