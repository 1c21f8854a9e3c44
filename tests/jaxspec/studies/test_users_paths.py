"""The commands of the page of users' paths, on small networks in the formats that the page names."""

import json
import re
import shlex
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from test_coded_runs import quantized

from jaxspec.cli import main
from jaxspec.models import DecoderConfig, init_params, save_directory
from jaxspec.studies import ExportConfig, export_draft

pytestmark = pytest.mark.study

PAGE = (Path(__file__).parents[3] / "docs" / "pages" / "users-paths.md").read_text(encoding="utf-8")
NETWORK = DecoderConfig(
    vocab_size=256, hidden_size=16, intermediate_size=32, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=8
)
FEW = [
    "--prompts",
    "2",
    "--prompt-tokens",
    "12",
    "--output-tokens",
    "8",
    "--calibration-prompts",
    "2",
    "--task",
    "none",
]
FEW += ["--context", "700", "--max-draft-length", "2"]


#: Of a network on which drafts pay, in the place of the small one's where costs are predicted.
LARGE = {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8}
LARGE |= {"head_dim": 128, "vocab_size": 128256}


def enlarge():
    for place in Path().glob("*/config.json"):
        raw = json.loads(place.read_text())
        layers = {"num_hidden_layers": 1 if raw["num_hidden_layers"] == 1 else 32}
        place.write_text(json.dumps(raw | LARGE | layers))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A network of which all states point much the same way, where one token lies: what comes next is known from any."""
    folder = tmp_path_factory.mktemp("plain") / "network"
    params = jax.tree.map(lambda x: 0.3 * x if x.ndim > 2 else x, init_params(NETWORK, jax.random.key(3)))
    params |= {"embed": 100 * params["embed"] + 100, "lm_head": params["lm_head"].at[7].set(10)}
    save_directory(params, NETWORK, folder, max_positions=2048)
    return folder


def gguf_files(plain, some_text):
    export_draft(ExportConfig(run=str(plain), draft_type="q4_0", prompts=0), Path("out"))
    for part in ("target", "draft"):
        (Path("out") / f"{part}.gguf").rename(f"{part}.gguf")


def last_layer(plain, place, columns=1):
    """The last layer's tensors under other names; attention reads its input so many times over."""
    tensors, found = load_file(plain / "model.safetensors"), {}
    for name, value in tensors.items():
        if name.startswith(first := f"model.layers.{NETWORK.num_layers - 1}."):
            wide = columns > 1 and any(part in name for part in ("q_proj", "k_proj", "v_proj"))
            found[name.replace(first, place)] = np.tile(value, (1, columns)) if wide else value
    return tensors, found


def awq_and_head(plain, some_text):
    quantized(plain, Path("awq-checkpoint"))
    tensors, head = last_layer(plain, "midlayer.", 2)
    one = np.ones(NETWORK.hidden_size, ml_dtypes.bfloat16)
    head |= {"midlayer.hidden_norm.weight": one, "norm.weight": one, "lm_head.weight": tensors["lm_head.weight"]}
    head["fc.weight"] = np.tile(np.eye(NETWORK.hidden_size), (1, 3)).astype(ml_dtypes.bfloat16)
    raw = json.loads((plain / "config.json").read_text()) | {"num_hidden_layers": 1, "draft_vocab_size": 256}
    raw |= {"architectures": ["LlamaForCausalLMEagle3"], "eagle_aux_hidden_state_layer_ids": [0, 1, 2]}
    Path("eagle3-head").mkdir()
    Path("eagle3-head/config.json").write_text(json.dumps(raw))
    save_file({name: np.ascontiguousarray(value) for name, value in head.items()}, "eagle3-head/model.safetensors")


def release(plain, some_text):
    own = f"model.layers.{NETWORK.num_layers}."
    tensors, further = last_layer(plain, own)
    size = NETWORK.hidden_size
    further |= {
        f"{own}{name}.weight": np.ones(size, ml_dtypes.bfloat16) for name in ("enorm", "hnorm", "shared_head.norm")
    }
    mixing = np.concatenate([np.eye(size), np.zeros((size, size))], axis=1)
    further[f"{own}eh_proj.weight"] = mixing.astype(ml_dtypes.bfloat16)
    Path("release").mkdir()
    Path("release/config.json").write_text((plain / "config.json").read_text())
    save_file(tensors | further, "release/model.safetensors")


def log(plain, some_text):
    Path("vllm.log").write_text("Mean acceptance length: 2.55, Per-position acceptance rate: 0.757, 0.491, 0.303\n")


@pytest.mark.parametrize(
    ("heading", "make", "engine"),
    [
        ("A GGUF file on a laptop", gguf_files, "llama-server --model target.gguf --spec-type ngram-simple"),
        ("An AWQ checkpoint and an EAGLE-3 head", awq_and_head, '"method": "eagle3", "model": "eagle3-head"'),
        (
            "A release with its own layer for further tokens",
            release,
            "--model-path release --speculative-algorithm EAGLE",
        ),
        ("A server that speculates already", log, "vllm serve"),
    ],
)
def test_the_commands_of_a_path_lead_to_an_engines_own(
    plain, some_text, tmp_path, monkeypatch, capsys, heading, make, engine
):
    monkeypatch.chdir(tmp_path)
    make(plain, some_text)
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    printed = None
    (block,) = re.findall(r"```text\n([^`]*)```", section)
    for line in block.splitlines():
        words = shlex.split(line)
        more = ["--text", str(some_text), *FEW] if words[1] == "compare" else []
        if words[1] == "advise":
            enlarge()
        with pytest.raises(SystemExit) as ended:
            main([*words[1:], *more])
        printed = capsys.readouterr()
        assert not ended.value.code, printed.err
    assert printed is not None
    assert engine in " ".join(printed.out.replace("\\\n", " ").split())
    for result in Path("runs").glob("*/result.json"):
        for found in json.loads(result.read_text())[0].get("contestants", {}).values():
            assert found["lossless"]["mismatches"] in (0, None)
