"""GGUF files: converted networks come back bit for bit, blocks as the library reads them, every damage is one line."""

import dataclasses
import json
import shutil
from pathlib import Path

import gguf
import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file
from gguf_cases import QUANTIZATION, checkpoint, write_gguf
from hf_directories import same_bits

from jaxspec.errors import InputError
from jaxspec.models import load_directory, load_model
from jaxspec.models.checkpoint_files import CheckpointFiles
from jaxspec.models.embedded import check_model, model_place
from jaxspec.models.rope_scaling import LongRopeScaling

HF = Path(__file__).parents[2] / "golden" / "hf"

#: Directory -> what a converter does not keep of its config.json, as llama.cpp has it in all networks of the family.
CASES = {
    "llama_bfloat16": {},
    "llama_grouped": {},
    "mistral_whole": {"model_type": "llama"},
    "mixtral_window": {"sliding_window": None},
    "qwen2_biased": {},
    "qwen3_untied": {},
    "qwen3_tied_sharded": {},
    "qwen3_moe_sparse": {"norm_topk_prob": True, "mlp_only_layers": []},
    "gemma2_capped": {"query_pre_attn_scalar": 10},
    "gemma3_local": {"layer_types": None},
    "phi3_longrope": {},
    "phi3_partial": {},
    "olmo2_yarn": {},
    "granite_linear": {},
    "smollm3_unrotated": {"no_rope_layers": None, "no_rope_layer_interval": 4},
    "seed_oss_biased": {},
}


@pytest.fixture
def converted(tmp_path):
    """Write a case's checkpoint, and the GGUF file made of it."""

    def write(name, changes=None, **how):
        config, tensors = checkpoint(HF / name)
        config |= CASES.get(name, {}) | (changes or {})
        if name == "qwen3_moe_sparse":
            # Layers without experts are not converted: theirs are those of other layers.
            dense = [key for key in tensors if ".mlp." in key and "experts" not in key and "mlp.gate.weight" not in key]
            for key in dense:
                del tensors[key]
            of_1 = {key: value for key, value in tensors.items() if "layers.1.mlp" in key}
            tensors |= {key.replace("layers.1", f"layers.{i}"): value for key, value in of_1.items() for i in (0, 3)}
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        save_file(tensors, folder / "model.safetensors")
        return folder, write_gguf(tmp_path / f"{name}.gguf", config, tensors, **how)

    return write


def same_shape(found, expected):
    """Equal, numbers of rotations as float32 has them."""
    single = lambda rope: rope and dataclasses.replace(rope, attention_factor=np.float32(rope.attention_factor))
    with_single = lambda config: (
        dataclasses.replace(config, rope_scaling=single(config.rope_scaling))
        if isinstance(config.rope_scaling, LongRopeScaling)
        else config
    )
    return with_single(found) == with_single(expected)


def rounded_norms(params):
    """Vectors as a target has them, in bfloat16: files keep them in float32."""
    return jax.tree.map(lambda leaf: np.asarray(leaf).astype(ml_dtypes.bfloat16), params)


@pytest.mark.parametrize("name", CASES)
def test_a_converted_network_comes_back(converted, name):
    folder, file = converted(name)
    expected, found = load_directory(folder), load_directory(file)
    assert same_shape(found.config, expected.config)
    assert check_model(file) == found.config
    matrices = lambda params: {key: leaf for key, leaf in params["layers"].items() if leaf.ndim > 2}
    assert all(jax.tree.leaves(same_bits(matrices(found.params), matrices(expected.params))))
    assert all(jax.tree.leaves(same_bits(found.params["embed"], expected.params["embed"])))
    # Of norms that are stored plus 1, float32 keeps what bfloat16 has.
    assert all(jax.tree.leaves(same_bits(rounded_norms(found.params), rounded_norms(expected.params))))


def test_divisors_of_llama_3_1_have_their_name(converted):
    rope = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rope |= {"original_max_position_embeddings": 8192, "rope_theta": 500_000.0}
    folder, file = converted("llama_bfloat16", {"rope_parameters": rope, "max_position_embeddings": 131_072})
    assert load_directory(file).config == load_directory(folder).config


def test_other_divisors_of_frequencies_are_kept(converted):
    folder, file = converted("llama_scaled_tied")
    found, expected = (load_directory(place).config for place in (file, folder))
    assert found.rope_scaling.attention_factor == 1
    for length in (1, 5000):
        by_file, by_settings = (
            np.asarray(config.rope_scaling.frequencies(config.rope_theta, 16, np.array([length]))).reshape(-1)
            for config in (found, expected)
        )
        np.testing.assert_allclose(by_file, by_settings, rtol=1e-6)


BLOCKS = sorted({*gguf.quants._type_traits} - {QUANTIZATION.BF16}, key=lambda kind: kind.name)


@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: kind.name)
def test_blocks_are_the_nearest_bfloat16_values(tmp_path, kind):
    columns, bytes_ = gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(kind.value)
    # Scales in float16 stay finite.
    data = rng.integers(0, 60, (3, 512 // columns * bytes_), dtype=np.uint8)
    config, tensors = checkpoint(HF / "llama_bfloat16")
    tensors = {key: value for key, value in tensors.items() if "embed" not in key}
    add = lambda writer: writer.add_tensor("token_embd.weight", data, raw_dtype=kind)
    files = CheckpointFiles(write_gguf(tmp_path / "a.gguf", config, tensors, more=add))
    exact = CheckpointFiles(tmp_path / "a.gguf", exact=True)
    expected = gguf.quants.dequantize(data, kind)
    assert files.tensors["model.embed_tokens.weight"].shape == expected.shape == (3, 512)
    assert files.quantized == {kind.name}
    read = files.read("model.embed_tokens.weight")
    assert read.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(read, expected.astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(exact.read("model.embed_tokens.weight"), expected)


