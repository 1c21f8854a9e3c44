"""Quantized releases run and priced in their own codes: with drafts that need no 16-bit weights, and refused for others."""

import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jaxspec.errors import InputError
from jaxspec.formats.packed_integers import fp8_rows
from jaxspec.models import DecoderConfig, init_params, load_directory, save_directory
from jaxspec.models.coded import Coded
from jaxspec.settings import build_config
from jaxspec.studies import (
    CompareConfig,
    EvaluateConfig,
    ScaleConfig,
    TreeConfig,
    TuneConfig,
    compare,
    evaluate,
    search_tree,
    tune,
)
from jaxspec.studies.measured.checking import check_inputs
from jaxspec.studies.scale.inputs import check_scale

pytestmark = pytest.mark.study

NETWORK = DecoderConfig(
    vocab_size=256, hidden_size=16, intermediate_size=32, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8
)
GROUP = 16
SMALL = {"prompts": 3, "prompt_tokens": 12, "output_tokens": 8, "calibration_prompts": 3, "context": 700}


def awq(matrix):
    """Tensors of a matrix in AWQ, groups of 16 input channels."""
    parts = matrix.astype(np.float32).reshape(len(matrix), -1, GROUP)
    low, high = parts.min(-1), parts.max(-1)
    scales = ((high - low) / 15).astype(np.float16)
    zeros = np.round(-low / scales).clip(0, 15)
    codes = np.round(parts / scales[..., None] + zeros[..., None]).clip(0, 15).reshape(matrix.shape)

    def packed(rows):
        """Nibbles of a word, the lowest first, are channels 0, 2, 4, 6, 1, 3, 5, 7."""
        channels = rows.T.astype(np.uint32).reshape(rows.shape[1], -1, 8)[..., [0, 2, 4, 6, 1, 3, 5, 7]]
        return (channels << 4 * np.arange(8, dtype=np.uint32)).sum(-1, dtype=np.uint32).view(np.int32)

    return {"qweight": packed(codes), "qzeros": packed(zeros), "scales": np.ascontiguousarray(scales.T)}


def quantized(source, folder):
    """The network of a folder in AWQ, its head and vectors in float16."""
    folder.mkdir()
    tensors = {}
    for name, value in load_file(source / "model.safetensors").items():
        stem, _, part = name.rpartition(".")
        if "_proj" in name:
            tensors |= {f"{stem}.{key}": np.ascontiguousarray(each) for key, each in awq(value).items()}
        else:
            tensors[f"{stem}.{part}"] = value.astype(np.float16)
    save_file(tensors, folder / "model.safetensors")
    raw = json.loads((source / "config.json").read_text())
    form = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}
    (folder / "config.json").write_text(json.dumps(raw | {"quantization_config": form, "torch_dtype": "float16"}))
    return folder


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    folder = tmp_path_factory.mktemp("awq")
    params = jax.tree.map(lambda x: 3.0 * x if x.ndim > 2 else x, init_params(NETWORK, jax.random.key(3)))
    save_directory(params, NETWORK, folder / "plain", max_positions=128)
    return quantized(folder / "plain", folder / "codes"), folder / "plain"


def test_drafts_run_on_codes_and_self_drafts_are_left_out(network, some_text, tmp_path):
    codes, plain = network
    held = load_directory(codes).params["layers"]
    assert all(isinstance(held[kind], Coded) for kind in NETWORK.matrix_kinds)
    drafts = f"ngram,layer-skip,{plain},{codes}"
    settings = {"model": str(codes), "text": str(some_text), "architecture": "own", "drafts": drafts, "task": "none"}
    (result,), _ = compare(build_config(CompareConfig, SMALL | settings), out=str(tmp_path / "run"))
    found = result.plain()["contestants"]
    assert set(found) == {"autoregressive", *drafts.split(",")}
    left_out = result.plain()["left_out"]
    assert "codes of fewer bits" in left_out["cassandra1"]
    assert any("compresses 16-bit weights" in why for why in left_out.values())
    alone = found["autoregressive"]
    # The head is in 16 bits, matrices in 4 with a scale and a zero point for 16 of them.
    assert 5.25 <= alone["bits_per_weight_verify"] < 16
    assert alone["statement"] == "INT4 (awq) in groups of 16"
    for name in drafts.split(","):
        assert found[name]["lossless"]["mismatches"] == 0
        assert found[name]["tokens_per_cycle_predicted"] == pytest.approx(found[name]["tokens_per_cycle_counted"])
    # The same network drafts what its target says, in codes as in 16 bits all but always.
    assert found[str(codes)]["acceptance"]["conditional"][0] == 1
    assert found[str(plain)]["bits_per_weight"] == 16 > found[str(codes)]["bits_per_weight"]


@pytest.fixture(scope="module")
def in_fp8(network, tmp_path_factory):
    """The network in FP8, a scale for each row."""
    folder, tensors = tmp_path_factory.mktemp("fp8"), {}
    for name, value in load_file(network[1] / "model.safetensors").items():
        if "_proj" in name:
            tensors[name], tensors[f"{name}_scale"] = fp8_rows(value)
        else:
            tensors[name] = value
    save_file(tensors, folder / "model.safetensors")
    raw = json.loads((network[1] / "config.json").read_text())
    weights = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}
    group = {
        "targets": ["Linear"],
        "weights": weights,
        "input_activations": weights | {"strategy": "token", "dynamic": True},
    }
    form = {"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"]}
    form |= {"config_groups": {"group_0": group}}
    (folder / "config.json").write_text(json.dumps(raw | {"quantization_config": form}))
    return folder


@pytest.mark.parametrize("kind", [TreeConfig, CompareConfig, ScaleConfig])
def test_a_coded_target_is_priced_with_the_kernels_of_its_form(network, in_fp8, some_text, kind):
    more = {"drafts": "ngram", "schemes": "none", "lossy": "none", "task": "none"}
    more = {TreeConfig: {"draft": "ngram"}, CompareConfig: more, ScaleConfig: {"task": "arithmetic"}}[kind]
    more |= {} if kind is ScaleConfig else {"text": str(some_text)} | SMALL
    settings = {"device": "h200-sxm", "architecture": "llama-3.1-8b"} | more

    def units(model, **given):
        config = build_config(kind, settings | {"model": str(model)} | given)
        if kind is ScaleConfig:
            return check_scale(config).pricings["h200-sxm"][str(model)].device.matrix_unit
        return check_inputs(config).pricings["h200-sxm"].device.matrix_unit

    same = lambda *trees: jax.tree.all(jax.tree.map(lambda *leaves: np.array_equal(*leaves), *trees))
    fp8 = units(in_fp8)
    assert same(fp8, units(network[1], weight_format="fp8"))
    assert jax.tree.structure(fp8) != jax.tree.structure(units(network[1]))


def test_a_tree_of_a_lookup_decodes_a_network_in_codes(network, some_text, tmp_path):
    settings = {"model": str(network[0]), "text": str(some_text), "draft": "ngram", "nodes": 6, "depth": 3}
    config = build_config(TreeConfig, SMALL | settings | {"search": "greedy"})
    (result,), _ = search_tree(config, out=str(tmp_path / "run"))
    assert result.plain()["lossless"]["mismatches"] == 0
    assert result.plain()["lossless"]["tokens"] > 0


@pytest.mark.parametrize(
    ("run", "kind", "more"),
    [
        (evaluate, EvaluateConfig, {}),
        (tune, TuneConfig, {}),
        (search_tree, TreeConfig, {}),
        (search_tree, TreeConfig, {"draft": "ngram", "scheme": "mxint8"}),
        (compare, CompareConfig, {"schemes": "cassandra1"}),
    ],
)
def test_what_needs_16_bit_weights_is_refused_in_one_line(network, some_text, tmp_path, run, kind, more):
    config = build_config(kind, SMALL | {"model": str(network[0]), "text": str(some_text)} | more)
    with pytest.raises(
        InputError, match=r"codes of fewer bits \(quantization_config\); give jaxspec tree or compare"
    ) as said:
        run(config, out=str(tmp_path / "run"))
    assert "\n" not in str(said.value)
    assert not (tmp_path / "run").exists()
