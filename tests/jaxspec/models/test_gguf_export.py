"""Networks written as GGUF files: they come back bit for bit, in the library's blocks, with the same words."""

import dataclasses
import json
import shutil
from pathlib import Path

import gguf
import jax
import ml_dtypes
import numpy as np
import pytest
from gguf_cases import QUANTIZATION, checkpoint, write_gguf
from test_gguf import CASES
from test_gguf_tokenizers import RELEASED, TEXTS, trained
from tokenizers import Tokenizer

from jaxspec.errors import InputError
from jaxspec.models import load_directory, load_model
from jaxspec.models.embedded import model_place
from jaxspec.models.gguf.tokenizers import tokenizer_files, tokenizer_metadata
from jaxspec.models.gguf_export import _same
from jaxspec.models.gguf_export import write_gguf as write_network

HF = Path(__file__).parents[2] / "golden" / "hf"


@pytest.fixture
def released(tmp_path):
    """A golden network as llama.cpp can have it."""

    def write(name):
        folder = shutil.copytree(HF / name, tmp_path / name)
        config = json.loads((folder / "config.json").read_text()) | CASES.get(name, {})
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    return write


def narrow(params):
    return jax.tree.map(lambda leaf: np.asarray(leaf).astype(ml_dtypes.bfloat16).view(np.uint16), params)


#: Networks whose layers are not all of one kind are not in these files.
WRITTEN = sorted({*CASES, "llama_scaled_tied", "qwen3_vl_multimodal", "mistral3_multimodal"} - {"qwen3_moe_sparse"})


@pytest.mark.parametrize("name", WRITTEN)
def test_a_written_network_comes_back(released, tmp_path, name):
    write_network(tmp_path / "a.gguf", released(name), "bf16")
    found, expected = load_directory(tmp_path / "a.gguf"), load_directory(tmp_path / name)
    # A network in float16 is written in bfloat16 here.
    assert _same(dataclasses.replace(found.config, stored_dtype=expected.config.stored_dtype), expected.config, 40)
    jax.tree.map(np.testing.assert_array_equal, narrow(found.params), narrow(expected.params))


@pytest.mark.parametrize("name", ["llama_dynamic_biased", "mistral_window", "deepseek_v3_grouped", "opt_learned"])
def test_what_no_architecture_says_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="that no architecture of GGUF files known here computes"):
        write_network(tmp_path / "a.gguf", HF / name, "bf16")


@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
def test_blocks_are_those_of_the_library(tmp_path, kind):
    write_network(tmp_path / "ours.gguf", model_place("embedded"), kind)
    config, tensors = checkpoint(model_place("embedded"))
    config["rope_parameters"] = {"rope_theta": config["rope_theta"], "rope_type": "default"}
    theirs = write_gguf(tmp_path / "theirs.gguf", config, tensors, QUANTIZATION[kind.upper()])
    found, expected = (
        {tensor.name: tensor for tensor in gguf.GGUFReader(file).tensors} for file in (tmp_path / "ours.gguf", theirs)
    )
    assert found.keys() == expected.keys()
    ends = {"token_embd.weight", "output.weight"}
    for name, tensor in found.items():
        if name not in ends:
            np.testing.assert_array_equal(tensor.data, expected[name].data, err_msg=name)
    assert {found[name].tensor_type.name for name in ends} == {"Q8_0"}


def test_a_gguf_file_is_written_again(tmp_path):
    write_network(tmp_path / "a.gguf", model_place("embedded"), "f16")
    write_network(tmp_path / "b.gguf", tmp_path / "a.gguf", "q8_0")
    write_network(tmp_path / "c.gguf", model_place("embedded"), "q8_0")
    assert (tmp_path / "b.gguf").read_bytes()[-100_000:] == (tmp_path / "c.gguf").read_bytes()[-100_000:]
    again, whole = load_model(tmp_path / "b.gguf"), load_model(tmp_path / "c.gguf")
    jax.tree.map(np.testing.assert_array_equal, again.params, whole.params)
    assert again.tokenizer.encode("Two words").tolist() == list(b"Two words")


def test_values_beyond_float16_are_refused(released, tmp_path):
    from safetensors.numpy import load_file, save_file

    folder = released("llama_bfloat16")
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if "down_proj" in name)
    tensors[name] = tensors[name].copy()
    tensors[name][0, 0] = 1e6
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(InputError, match="beyond float16; write bf16 or q8_0"):
        write_network(tmp_path / "a.gguf", folder, "f16")


def again(content, tmp_path, **more):
    """The tokenizer that comes back, of files beside the weights."""
    files = {"tokenizer.json": content.encode(), **{name: json.dumps(value).encode() for name, value in more.items()}}
    size = len(json.loads(content)["model"]["vocab"]) + len(json.loads(content)["added_tokens"]) + 3
    metadata = tokenizer_metadata(files.get, tmp_path, size)
    assert len(metadata["tokenizer.ggml.tokens"]) == size
    found = tokenizer_files(metadata, tmp_path, size)
    return Tokenizer.from_str(found["tokenizer.json"].decode()), metadata, found


@pytest.mark.parametrize("kind", RELEASED)
def test_words_of_bytes_come_back(tmp_path, kind):
    tokenizer = trained(RELEASED[kind])
    tokenizer.add_special_tokens(["<|end|>"])
    settings = {"eos_token": {"content": "<|end|>"}, "chat_template": "{{ messages }}"}
    form = json.loads(tokenizer.to_str())
    form["model"]["ignore_merges"] = kind == "tekken"  # of this kind released tokenizers all say so
    tokenizer = Tokenizer.from_str(json.dumps(form))
    found, metadata, files = again(json.dumps(form), tmp_path, **{"tokenizer_config.json": settings})
    assert [found.encode(text).ids for text in TEXTS] == [tokenizer.encode(text).ids for text in TEXTS]
    assert metadata["tokenizer.ggml.eos_token_id"] == tokenizer.token_to_id("<|end|>")
    assert metadata["tokenizer.chat_template"] == json.loads(files["tokenizer_config.json"])["chat_template"]


def test_words_of_sentencepiece_come_back(tmp_path):
    words = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁abcde", "ab", "▁ab", "cd", "abcd", "▁abcd"]
    types = [2, 3, *[6] * 256, *[1] * 11]
    scores = [0.0] * 258 + [-99.0] * 6 + [-5.0, -1.0, -2.0, -3.0, -4.0]
    own = {"model": "llama", "tokens": words, "token_type": types, "scores": scores}
    own |= {"bos_token_id": 1, "unknown_token_id": 0, "add_bos_token": True}
    first = tokenizer_files({f"tokenizer.ggml.{key}": value for key, value in own.items()}, tmp_path, len(words))
    files = {"tokenizer_config.json": json.loads(first["tokenizer_config.json"])}
    found, metadata, _ = again(first["tokenizer.json"].decode(), tmp_path, **files)
    expected = Tokenizer.from_str(first["tokenizer.json"].decode())
    texts = ["ab cd", "abcd abcd", "e\u00e9 ab", ""]
    assert [found.encode(text).ids for text in texts] == [expected.encode(text).ids for text in texts]
    kept = [metadata[f"tokenizer.ggml.{key}"] for key in ("model", "add_bos_token", "bos_token_id", "unknown_token_id")]
    assert kept == ["llama", True, 1, 0]
    assert metadata["tokenizer.ggml.token_type"][: len(words)] == types


def test_words_cut_by_other_rules_are_refused(tmp_path):
    form = json.loads(trained(RELEASED["gpt-2"]).to_str())
    form["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, form["pre_tokenizer"]]}
    with pytest.raises(InputError, match="cuts text by rules which no kind of GGUF file known here has"):
        again(json.dumps(form), tmp_path)
