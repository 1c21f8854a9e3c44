"""Rows of the one table of families: a new row is all that a family with known blocks needs."""

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file
from test_blocks import MIXED

from hwmodels import catalog
from hwmodels.network.architecture import parameters
from hwmodels.networks import FAMILIES, Family, Running, Setting, runnable_families
from jaxspec.models import decoder
from jaxspec.models.architecture import architecture_of, spec_of
from jaxspec.models.config import DecoderConfig, decoder_config
from jaxspec.models.decoder import abstract_params
from jaxspec.models.hf_export import config_json, family_for, save_directory
from jaxspec.models.hf_load import load_directory

CONFIG = DecoderConfig(
    vocab_size=11, hidden_size=12, intermediate_size=20, num_layers=3, num_heads=2, num_kv_heads=1, head_dim=6
)

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


@pytest.mark.network
def test_a_row_is_all_that_a_new_family_needs(monkeypatch, tmp_path):
    params, tokens = random_params(CONFIG), np.arange(8).reshape(2, 4)
    save_directory(params, CONFIG, tmp_path / "llama", max_positions=64)
    monkeypatch.setitem(FAMILIES, "novel", NOVEL)
    save_directory(params, CONFIG, tmp_path / "novel", max_positions=64, family=NOVEL)
    raw = json.loads((tmp_path / "novel" / "config.json").read_text())
    assert (raw["model_type"], raw["architectures"], raw["novelty"]) == ("novel", ["NovelForCausalLM"], 1)
    assert raw["width"] == 12
    assert "hidden_size" not in raw

    ours, llama = load_directory(tmp_path / "novel"), load_directory(tmp_path / "llama")
    assert ours.family is NOVEL
    assert ours.config == llama.config == CONFIG
    run = jax.jit(decoder.forward_text, static_argnums=1)
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


def config_of(family, **changes):
    """The configuration of `SHAPES` as networks of a family have it."""
    row, config = FAMILIES[family], dataclasses.replace(CONFIG, **changes)
    raw = {
        **{"model_type": family, "vocab_size": config.vocab_size, "num_hidden_layers": config.num_layers},
        **{"num_attention_heads": config.num_heads, "tie_word_embeddings": config.tie_embeddings},
        **{"intermediate_size": config.intermediate_size, "hidden_size": config.hidden_size},
    }
    if row.experts is not None:
        raw |= {"num_experts_per_tok": 2} | ({"num_experts": 4} if row.defaults["num_experts"] == 1 else {})
    if family == "granitemoehybrid":
        raw |= {
            "layer_types": ["attention"] * config.num_layers,
            "num_local_experts": 0,
            "position_embedding_type": "rope",
        }
    if "rope_theta" in row.defaults and row.defaults["rope_theta"] is None:
        raw["rope_theta"] = 20_000.0
    if row.linear:  # the last layer attends
        kinds = ["conv" if row.convolutions else "linear_attention"] * (config.num_layers - 1) + ["full_attention"]
        raw["layer_types"] = kinds
    if row.grouped_queries:
        raw |= {"num_key_value_heads": config.num_kv_heads}
        # Two numbers of a head are too few to rotate a part of them.
        raw |= {"head_dim": config.head_dim} if row.free_head_dim else {"partial_rotary_factor": 1.0}
    return decoder_config({row.spellings.get(key, (key,))[-1]: value for key, value in raw.items()})


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("family", runnable_families())
def test_the_network_and_the_catalog_read_one_architecture(family, shape):
    config = config_of(family, **SHAPES[shape])
    assert (config.num_layers, config.num_heads) == (
        SHAPES[shape].get("num_layers", 3),
        SHAPES[shape].get("num_heads", 2),
    )
    for switched in (config, biased(family, config)):
        raw = config_json(switched, max_positions=77, family=FAMILIES[family])
        assert decoder_config(raw) == switched
        ours, catalogs = architecture_of(switched), catalog.architecture_from_config(raw)
        assert ours == catalogs
        assert sum(parameters(ours).values()) == switched.num_parameters()
        assert sum(leaf.size for leaf in jax.tree.leaves(abstract_params(switched))) == switched.num_parameters()


def biased(family, config):
    """The same network with every switch of its row turned."""
    row = FAMILIES[family]
    switches = {"qkv_bias": row.qkv_bias, "o_bias": row.o_bias, "ffn_bias": row.ffn_bias}
    turned = {name: not getattr(config, name) for name, switch in switches.items() if isinstance(switch, str)}
    return dataclasses.replace(config, **turned)


@pytest.mark.parametrize("family", runnable_families())
def test_rows_that_run_have_only_what_the_blocks_compute(family):
    row = FAMILIES[family]
    fields = {field.name for field in dataclasses.fields(DecoderConfig)}
    assert (row.head_bias, row.embedding_norm) == (False, False)
    config = config_of(family)
    assert (row.latent, row.learned_sinks) == (config.latent is not None, config.attention_sinks)
    assert (row.linear, row.attention_gate) == (config.linear is not None, config.attention_gate)
    assert (row.experts is None) == (row.running.router is None)
    assert row.qk_norm in ("none", "head", "all", "optional_head", "optional_all")
    assert spec_of(config).norms_per_layer == len(config.block_norms)
    assert set(row.running.computation) <= fields
    settings = {how.key for how in row.running.computation.values() if isinstance(how, Setting)}
    rotary = set() if row.running.rotary is None else {"rope_theta"}
    assert settings | rotary | {"max_position_embeddings"} <= set(row.defaults)
    assert {"norm_eps", "activation"} <= set(row.running.computation)


def test_a_configuration_is_written_as_the_first_family_that_computes_it():
    find = lambda **changes: family_for(dataclasses.replace(CONFIG, **changes)).name
    assert (find(), find(qkv_bias=True), find(qk_norm=True)) == ("llama", "qwen2", "qwen3")
    assert find(qkv_bias=True, o_bias=True, ffn_bias=True) == "llama"
    assert find(windows=(8,)) == "mistral"
    assert find(qk_norm=True, qkv_bias=True, o_bias=True) == "qwen3"
    with pytest.raises(NotImplementedError, match="no known family has layers with q, k, v, o, gate"):
        find(qk_norm=True, qkv_bias=True)
    with pytest.raises(NotImplementedError, match="of the family qwen3 do not compute this configuration"):
        config_json(dataclasses.replace(CONFIG, qkv_bias=True), max_positions=9, family=FAMILIES["qwen3"])
    with pytest.raises(NotImplementedError, match="choice_router"):
        family_for(MIXED)


def test_an_architecture_has_the_fields_of_every_kind_of_block():
    found = architecture_of(MIXED)
    assert (found.num_moe_layers, found.num_experts, found.intermediate_size) == (2, 3, 7)
    assert found.vectors_per_layer == pytest.approx(2 * 12 / 5)
    assert (found.num_heads, found.num_kv_heads, found.head_dim, found.num_layers) == (4, 2, 6, 5)
    assert all(isinstance(leaf, float) for leaf in jax.tree.leaves(found))


def test_the_window_that_mistral_has_unless_it_says_otherwise_is_heeded(tmp_path):
    golden = Path(__file__).parents[2] / "golden" / "hf" / "mistral_whole"
    raw = json.loads((golden / "config.json").read_text())
    assert raw["sliding_window"] is None
    assert decoder_config(raw).windows == (None,)
    del raw["sliding_window"]
    assert decoder_config(raw).windows == (4096,)
    shutil.copytree(golden, tmp_path / "copy")
    assert load_directory(tmp_path / "copy").family is FAMILIES["mistral"]


def test_fused_tensors_are_read_and_written_as_slices(tmp_path):
    golden = Path(__file__).parents[2] / "golden" / "hf" / "phi3_partial"
    model = load_directory(golden)
    save_directory(model.params, model.config, tmp_path, max_positions=64, family=model.family)
    theirs, ours = (load_file(folder / "model.safetensors") for folder in (golden, tmp_path))
    fused = theirs["model.layers.1.self_attn.qkv_proj.weight"]
    assert fused.shape == (36 + 2 * 12, 36)
    np.testing.assert_array_equal(model.params["layers"]["k"][1], fused[36:48])
    assert theirs.keys() == ours.keys()
    for name, tensor in theirs.items():
        np.testing.assert_array_equal(tensor, ours[name])
    assert load_directory(tmp_path).config == model.config


def test_what_is_stored_as_float16_stays_float16(tmp_path):
    golden = Path(__file__).parents[2] / "golden" / "hf" / "phi3_longrope"
    stored, read = load_file(golden / "model.safetensors"), load_directory(golden).params
    fused = stored["model.layers.0.mlp.gate_up_proj.weight"]
    assert fused.dtype == read["layers"]["up"].dtype == np.float16
    np.testing.assert_array_equal(read["layers"]["up"][0].view(np.uint16), fused[22:].view(np.uint16))


def test_experts_in_one_tensor_are_read_of_a_layer_with_a_name_of_its_own():
    row = FAMILIES["glm4_moe"].running
    (joined, _), own = row.stacked, "mtp.layers.0.mlp.experts.gate_up_proj"
    moved = dataclasses.replace(row, stacked={own: row.stacked[joined]})
    assert moved.as_stored(["mtp.layers.0.mlp.experts.0.up_proj.weight"]) is moved
    assert moved.as_stored([own]).tensors["expert_up"] == own
