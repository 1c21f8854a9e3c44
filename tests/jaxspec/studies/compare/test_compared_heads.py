"""Heads of releases compared on their target, and engines advised by what was counted."""

import json

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jaxspec.errors import InputError
from jaxspec.models import DecoderConfig, init_params, save_directory
from jaxspec.settings import build_config
from jaxspec.studies import AdviseConfig, CompareConfig, advise, compare

NETWORK = DecoderConfig(
    vocab_size=256, hidden_size=16, intermediate_size=24, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=6
)
HIDDEN, KNOWN = NETWORK.hidden_size, np.arange(10, 200, 2)
SMALL = {
    **{"prompts": 3, "prompt_tokens": 12, "output_tokens": 12, "calibration_prompts": 3, "context": 700},
    **{"max_draft_length": 3, "schemes": "none", "lossy": "none", "task": "none", "device": "h100-sxm"},
}

pytestmark = [pytest.mark.usefixtures("compile_quickly"), pytest.mark.study]


def layer(place, target, scale, columns=HIDDEN):
    """The last layer's tensors under other names, made small; attention reads so many columns."""
    first = f"model.layers.{NETWORK.num_layers - 1}."
    found = {name.replace(first, place): value for name, value in target.items() if name.startswith(first)}
    wide = lambda value: np.tile(value, (1, columns // HIDDEN))
    found = {name: wide(v) if "q_p" in name or "k_p" in name or "v_p" in name else v for name, v in found.items()}
    return {name: (scale * v if v.ndim > 1 else v).astype(ml_dtypes.bfloat16) for name, v in found.items()}


def written(folder, raw, tensors):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(raw))
    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, folder / "model.safetensors")
    return str(folder)


@pytest.fixture(scope="module")
def heads(tmp_path_factory):
    """A target with a layer for further tokens, and heads: one that says much the same, and two that do not."""
    folder = tmp_path_factory.mktemp("heads")
    # Layers that add little: the next token follows from the last one.
    params = jax.tree.map(lambda x: 0.3 * x if x.ndim > 2 else x, init_params(NETWORK, jax.random.key(3)))
    save_directory(params | {"embed": 100 * params["embed"]}, NETWORK, folder / "target", max_positions=128)
    target = load_file(folder / "target" / "model.safetensors")
    own = "model.layers.3."
    one = np.ones(HIDDEN, ml_dtypes.bfloat16)
    passes = np.concatenate([np.eye(HIDDEN), np.zeros((HIDDEN, HIDDEN))], axis=1).astype(ml_dtypes.bfloat16)
    further = layer(own, target, 0.1) | {f"{own}{name}.weight": one for name in ("enorm", "hnorm", "shared_head.norm")}
    save_file(target | further | {f"{own}eh_proj.weight": passes}, folder / "target" / "model.safetensors")
    raw = json.loads((folder / "target" / "config.json").read_text()) | {"num_hidden_layers": 1}
    eagle = {name: v for name, v in layer("layers.0.", target, 0.1).items() if "input_layernorm" not in name}
    eagle = written(folder / "eagle", raw, eagle | {"fc.weight": passes})
    third = layer("midlayer.", target, 1.0, 2 * HIDDEN) | {"midlayer.hidden_norm.weight": one, "norm.weight": one}
    rows = target["lm_head.weight"][KNOWN]
    third |= {"fc.weight": np.tile(passes[:, :HIDDEN], (1, 3)), "lm_head.weight": rows}
    third |= {"d2t": KNOWN - np.arange(len(KNOWN)), "t2d": np.isin(np.arange(256), KNOWN)}
    raw |= {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": len(KNOWN)}
    inner = {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": [0, 1, 2]}
    eagle3 = written(folder / "eagle3", raw | {"eagle_config": inner}, third)
    # A residual block that adds nothing, and the target's head: what may come next, for every place.
    block = {"linear.weight": np.zeros((HIDDEN, HIDDEN)), "linear.bias": np.zeros(HIDDEN)}
    tensors = {f"{n}.0.{part}": value.astype(ml_dtypes.bfloat16) for n in (0, 1) for part, value in block.items()}
    tensors |= {f"{n}.1.weight": target["lm_head.weight"] for n in (0, 1)}
    medusa = written(folder / "medusa", {"medusa_num_heads": 2, "medusa_num_layers": 1}, tensors)
    (folder / "medusa" / "model.safetensors").rename(folder / "medusa" / "medusa_lm_head.safetensors")
    return str(folder / "target"), eagle, eagle3, medusa


def test_heads_are_decoded_as_predicted_and_advised(heads, some_text, tmp_path):
    target, *folders = heads
    settings = SMALL | {"model": target, "text": str(some_text), "drafts": ",".join(("mtp", *folders))}
    (result,), run = compare(build_config(CompareConfig, settings), out=str(tmp_path / "run"))
    found = result.plain()
    assert found["lossless"]["mismatches"] == 0
    assert set(found["contestants"]) == {"autoregressive", "mtp", *folders}
    for name in ("mtp", *folders):
        one = found["contestants"][name]
        assert one["lossless"]["mismatches"] == 0
        assert one["tokens_per_cycle_predicted"] == pytest.approx(one["tokens_per_cycle_counted"])
        assert name in folders[1:] or one["acceptance"]["conditional"][0] > 0.5
        assert one["draft_parameters"] > 0
    asked = {"run": str(run.path), "architecture": target, "device": "h100-sxm", "batch": "1", "engine": "vllm"}
    for draft, method in (("mtp", "mtp"), (folders[0], "eagle"), (folders[1], "eagle3"), (folders[2], "medusa")):
        config = build_config(AdviseConfig, asked | {"draft": draft})
        assert config.kind == method
        (advice,), _ = advise(config, out=str(tmp_path / method))
        told = " ".join(str(advice.plain()).split())
        assert f"counted in {run.path}, draft {draft}" in told
        assert "that of another draft" not in told
    with pytest.raises(InputError, match="of the draft it is 'ngram', not compared"):
        advise(build_config(AdviseConfig, asked | {"draft": "ngram"}), out=str(tmp_path / "none"))
