"""Rows of the one table of families: a new row is all that a family with known blocks needs."""

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from test_blocks import MIXED

from hwmodels import catalog
from hwmodels.catalog.huggingface import FAMILIES, Family, Running
from hwmodels.network.architecture import parameters
from jaxspec.models import decoder
from jaxspec.models.architecture import architecture_of
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import abstract_params
from jaxspec.models.families import decoder_config, family_for, runnable_families
from jaxspec.models.hf_export import config_json, save_directory
from jaxspec.models.hf_load import load_directory

CONFIG = DecoderConfig(
    vocab_size=11, hidden_size=12, intermediate_size=20, num_layers=3, num_heads=2, num_kv_heads=1, head_dim=6
)
QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}

#: A made-up family: Llama's network under another name, with names of its own for keys and tensors.
NOVEL = Family(
    name="novel",
    defaults=FAMILIES["llama"].defaults | {"rms_norm_eps": 1e-3},
    spellings={"hidden_size": ("width",)},
    running=Running(
        architecture="NovelForCausalLM",
        tensors={
            **{name: f"net.{name}" for name in ("embed", "final_norm", "lm_head")},
            **{
                kind: f"net.{{layer}}.{kind}.w"
                for kind in ("attention_norm", "mlp_norm", *"qkvo", "gate", "up", "down")
            },
        },
        must_equal={"novelty": 1},
    ),
)


def random_params(config, seed=0):
    rng = np.random.default_rng(seed)
    draw = lambda leaf: (leaf.shape[-1] ** -0.5 * rng.standard_normal(leaf.shape)).astype(jax.numpy.bfloat16)
    return jax.tree.map(draw, abstract_params(config))


def test_a_row_is_all_that_a_new_family_needs(monkeypatch, tmp_path):
    params, tokens = random_params(CONFIG), np.arange(8).reshape(2, 4)
    save_directory(params, CONFIG, tmp_path / "llama", max_positions=64)
    monkeypatch.setitem(FAMILIES, "novel", NOVEL)
    save_directory(params, CONFIG, tmp_path / "novel", max_positions=64, family=NOVEL)
    raw = json.loads((tmp_path / "novel" / "config.json").read_text())
    assert (raw["model_type"], raw["architectures"], raw["novelty"]) == ("novel", ["NovelForCausalLM"], 1)
    raw["width"] = raw.pop("hidden_size")
    (tmp_path / "novel" / "config.json").write_text(json.dumps(raw))

    ours, llama = load_directory(tmp_path / "novel"), load_directory(tmp_path / "llama")
    assert ours.family is NOVEL
    assert ours.config == llama.config == CONFIG
    run = jax.jit(decoder.forward_text, static_argnums=1, compiler_options=QUICKLY)
    np.testing.assert_array_equal(
        run(ours.params, ours.config, tokens).logits, run(llama.params, llama.config, tokens).logits
    )
    priced = catalog.architecture_from_config_file(tmp_path / "novel")
    assert priced == catalog.architecture_from_config_file(tmp_path / "llama") == architecture_of(CONFIG)
    # Its own defaults count, and its own settings are kept.
    del raw["rms_norm_eps"]
    assert decoder_config(raw).norm_eps == 1e-3
    with pytest.raises(NotImplementedError, match="novel with novelty = 2 is not modelled; allowed is 1"):
        decoder_config(raw | {"novelty": 2})


#: Configurations of every family that runs: sizes that differ from each other, and from what could be derived.
SHAPES = {
    "plain": {},
    "tied, many heads": {"tie_embeddings": True, "num_heads": 6, "num_kv_heads": 3},
    "one layer": {"num_layers": 1, "head_dim": 10, "intermediate_size": 9},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("family", runnable_families())
def test_the_network_and_the_catalog_read_one_architecture(family, shape):
    row = FAMILIES[family]
    config = dataclasses.replace(CONFIG, qk_norm=row.qk_norm == "head", qkv_bias=row.qkv_bias is True, **SHAPES[shape])
    raw = config_json(config, max_positions=77, family=row)
    read = decoder_config(raw)
    assert read == dataclasses.replace(config, norm_eps=read.norm_eps)
    ours, catalogs = architecture_of(read), catalog.architecture_from_config(raw)
    assert ours == catalogs
    assert sum(parameters(ours).values()) == config.num_parameters()
    assert sum(leaf.size for leaf in jax.tree.leaves(abstract_params(config))) == config.num_parameters()


@pytest.mark.parametrize("family", runnable_families())
def test_rows_that_run_have_only_what_the_blocks_compute(family):
    row = FAMILIES[family]
    fixed = row.running.must_equal
    off = lambda switch: switch is False or (isinstance(switch, str) and fixed.get(switch) is False)
    assert [switch for switch in (row.o_bias, row.ffn_bias, row.head_bias, row.norm_biases) if not off(switch)] == []
    assert row.qkv_bias is True or off(row.qkv_bias)
    assert row.qk_norm in ("none", "head")
    assert (row.norms_per_layer, row.gated_ffn, row.experts, row.latent) == (2, True, None, False)
    assert (row.learned_sinks, row.learned_positions, row.embedding_norm) == (False, None, False)
    if row.windows is not None:
        assert fixed.get(row.windows.enabled or "sliding_window", True) in (False, None)
    assert fixed["hidden_act"] == "silu"
    assert {"rms_norm_eps", "rope_theta", "max_position_embeddings"} <= set(row.defaults)


def test_a_configuration_is_written_as_the_first_family_that_computes_it():
    find = lambda **changes: family_for(dataclasses.replace(CONFIG, **changes)).name
    assert (find(), find(qkv_bias=True), find(qk_norm=True)) == ("llama", "qwen2", "qwen3")
    with pytest.raises(NotImplementedError, match="no known family has layers with q, k, v, o, gate"):
        find(qk_norm=True, qkv_bias=True)
    with pytest.raises(NotImplementedError, match="choice_router"):
        family_for(MIXED)


def test_an_architecture_has_the_fields_of_every_kind_of_block():
    found = architecture_of(MIXED)
    assert (found.num_moe_layers, found.num_experts, found.intermediate_size) == (2, 3, 7)
    assert found.vectors_per_layer == pytest.approx(2 * 12 / 5)
    assert (found.num_heads, found.num_kv_heads, found.head_dim, found.num_layers) == (4, 2, 6, 5)
    assert all(isinstance(leaf, float) for leaf in jax.tree.leaves(found))


def test_the_window_that_mistral_has_unless_it_says_otherwise_is_refused(tmp_path):
    golden = Path(__file__).parents[2] / "golden" / "hf" / "mistral_whole"
    raw = json.loads((golden / "config.json").read_text())
    assert raw["sliding_window"] is None
    decoder_config(raw)
    del raw["sliding_window"]
    with pytest.raises(
        NotImplementedError, match="mistral with sliding_window = 4096 is not modelled; allowed is null"
    ):
        decoder_config(raw)
    shutil.copytree(golden, tmp_path / "copy")
    assert load_directory(tmp_path / "copy").family is FAMILIES["mistral"]
