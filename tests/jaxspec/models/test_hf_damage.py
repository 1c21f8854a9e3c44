"""Directories that cannot be used, each said in one line."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hf_directories import LLAMA, bfloat16_params, edit_config, edit_tensors, shard, write_index
from safetensors.numpy import load_file, save_file

from jaxspec.errors import InputError
from jaxspec.formats.container import open_checkpoint
from jaxspec.models.hf_export import save_directory
from jaxspec.models.hf_load import load_directory


@pytest.fixture
def directory(tmp_path):
    """A small Llama directory, to be damaged."""
    save_directory(bfloat16_params(LLAMA), LLAMA, tmp_path, max_positions=99)
    return tmp_path


def drop(name):
    return lambda directory: edit_tensors(directory, lambda tensors: tensors.pop(name))


def put(name, array):
    return lambda directory: edit_tensors(directory, lambda tensors: tensors.update({name: array}))


def rewrite(file, content):
    return lambda directory: (directory / file).write_text(content)


def sharded(edit):
    def damage(directory):
        weight_map = shard(directory)
        edit(directory, weight_map)

    return damage


def reindex(**changes):
    return sharded(lambda directory, weight_map: write_index(directory, weight_map | changes))


def only_pickles(directory):
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")


def both_shards_hold_one_tensor(directory, weight_map):
    tensors = load_file(directory / "b.safetensors")
    name = next(name for name, file in weight_map.items() if file == "a.safetensors")
    save_file(tensors | {name: np.ones(1, np.float32)}, directory / "b.safetensors")


def without_index_line(directory, weight_map):
    write_index(directory, {name: file for name, file in weight_map.items() if name != UP})


def without_shard_in_index(directory, weight_map):
    # With the network that the other shard alone would be: nothing is missing, and all of it is another network.
    listed = dict.fromkeys(weight_map, "a.safetensors")
    tensors = load_file(directory / "a.safetensors") | load_file(directory / "b.safetensors")
    save_file(tensors, directory / "a.safetensors")
    write_index(directory, listed)


def extra_tensor_in_a_shard(directory, weight_map):
    save_file(load_file(directory / "b.safetensors") | {"model.more": np.ones(1)}, directory / "b.safetensors")


UP = "model.layers.2.mlp.up_proj.weight"
#: What is done to a good directory, and what the message must name.
DAMAGES = {
    "no config": (lambda d: (d / "config.json").unlink(), r"config\.json does not exist"),
    "config is a folder": (lambda d: ((d / "config.json").unlink(), (d / "config.json").mkdir()), r"config\.json"),
    "config is no JSON": (rewrite("config.json", "{"), r"config\.json is no readable JSON"),
    "config is empty": (rewrite("config.json", ""), r"config\.json is no readable JSON"),
    "config is a list": (rewrite("config.json", "[]"), r"config\.json holds a JSON list"),
    "config is nested deeply": (rewrite("config.json", "[" * 100_000), r"config\.json is no readable JSON"),
    "config is not UTF-8": (
        lambda d: (d / "config.json").write_bytes(b'{"\xff"}'),
        r"config\.json is no readable JSON",
    ),
    "config without sizes": (lambda d: edit_config(d, hidden_size="absent"), r"hidden_size is None; it must be"),
    "unknown family": (
        lambda d: edit_config(d, model_type="mamba"),
        r"'mamba' is not modelled; known: .*llama, minimax_m2",
    ),
    "no family": (lambda d: edit_config(d, model_type="absent"), r"None is not modelled"),
    "unknown variant": (lambda d: edit_config(d, hidden_act="laplace"), r"hidden_act = 'laplace' is not modelled"),
    "biases that are not there": (lambda d: edit_config(d, attention_bias=True), r"has no tensor '.*q_proj\.bias'"),
    "unknown scaling": (lambda d: edit_config(d, rope_scaling={"rope_type": "axial"}), r"'axial' is not modelled"),
    "scaling per layer": (lambda d: edit_config(d, rope_parameters={"a\nb": {}}, rope_scaling=None), r"per layer type"),
    "quantised": (lambda d: edit_config(d, quantization_config={"bits": 4}), r"quantization_config is not modelled"),
    "heads do not fit": (lambda d: edit_config(d, num_key_value_heads=2), r"3 query heads cannot share 2"),
    "more layers than stored": (
        lambda d: edit_config(d, num_hidden_layers=10**12),
        r"'model\.layers\.3\.input_layernorm",
    ),
    "fewer layers than stored": (
        lambda d: edit_config(d, num_hidden_layers=2),
        r"'model\.layers\.2\.input_layernorm\.weight' and 8 more",
    ),
    "another vocabulary": (lambda d: edit_config(d, vocab_size=10**30), r"embed_tokens.*\(11, 12\)"),
    "no weights": (lambda d: (d / "model.safetensors").unlink(), r"has no weights; allowed are model\.safetensors"),
    "only pickles": (only_pickles, r"pytorch_model\.bin.*convert"),
    "missing tensor": (drop(UP), rf"no tensor '{UP}'"),
    "missing head": (drop("lm_head.weight"), r"no tensor 'lm_head\.weight'"),
    "extra tensor": (
        put("model.layers.0.self_attn.q_proj.bias", np.ones(18, np.float32)),
        r"q_proj\.bias'.*not compute",
    ),
    "extra name with a line break": (put("a\nb", np.ones(1, np.float32)), r"'a\\nb'"),
    "wrong shape": (put(UP, np.ones((12, 10), ml_dtypes.bfloat16)), rf"'{UP}'.*\(12, 10\).*needs \(10, 12\)"),
    "wrong rank": (put(UP, np.ones(120, ml_dtypes.bfloat16)), rf"'{UP}'.*\(120,\).*needs \(10, 12\)"),
    "float64": (put(UP, np.ones((10, 12))), rf"'{UP}'.*F64; allowed are F32, F16, BF16"),
    "integers": (put(UP, np.ones((10, 12), np.int8)), rf"'{UP}'.*I8; allowed are"),
    "float8": (put(UP, np.ones((10, 12), ml_dtypes.float8_e4m3fn)), rf"'{UP}'.*F8_E4M3; allowed are"),
    "not safetensors": (
        rewrite("model.safetensors", "version https://git-lfs.github.com/spec/v1"),
        r"no whole safetensors",
    ),
    "empty weights": (rewrite("model.safetensors", ""), r"no whole safetensors"),
    "index is no JSON": (
        sharded(lambda d, _: rewrite("model.safetensors.index.json", "x")(d)),
        r"index\.json is no read",
    ),
    "index is a number": (
        sharded(lambda d, _: rewrite("model.safetensors.index.json", "3")(d)),
        r"index\.json holds a JSON int",
    ),
    "index without map": (sharded(lambda d, _: rewrite("model.safetensors.index.json", "{}")(d)), r"has no weight_map"),
    "index with an empty map": (sharded(lambda d, _: write_index(d, {})), r"has no weight_map"),
    "index leads outside": (reindex(**{UP: "../a.safetensors"}), r"'\.\./a\.safetensors'; allowed is the plain name"),
    "index names a control character": (
        reindex(**{UP: "a\0.safetensors"}),
        r"'a\\x00\.safetensors'; allowed is the plain",
    ),
    "index names a surrogate": (
        reindex(**{UP: "\ud800.safetensors"}),
        r"ud800\.safetensors'; allowed is the plain name",
    ),
    "index names no string": (reindex(**{UP: 3}), r" 3; allowed is the plain name"),
    "index names a pickle": (reindex(**{UP: "a.bin"}), r"'a\.bin'; allowed is the plain name"),
    "index names an absent tensor": (reindex(absent="a.safetensors"), r"'absent' in a\.safetensors, which lacks it"),
    "index names the wrong shard": (reindex(**{UP: "a.safetensors"}), rf"'{UP}' in a\.safetensors, which lacks it"),
    "index lacks a tensor": (sharded(without_index_line), rf"holds tensor '{UP}', which .*index\.json does not list"),
    "index lacks a shard": (
        sharded(without_shard_in_index),
        r"holds 'b\.safetensors', which .*index\.json does not list; .* or move the file",
    ),
    "a shard of another download": (
        sharded(lambda d, _: save_file({"other": np.ones(1)}, d / "model-00002-of-00003.safetensors")),
        r"holds 'model-00002-of-00003\.safetensors', which .* does not list",
    ),
    "a tensor that only a shard has": (
        sharded(extra_tensor_in_a_shard),
        r"b\.safetensors holds tensor 'model\.more', which .* does not list",
    ),
    "shard missing": (sharded(lambda d, _: (d / "b.safetensors").unlink()), r"b\.safetensors does not exist"),
    "shard damaged": (
        sharded(lambda d, _: rewrite("b.safetensors", "b")(d)),
        r"b\.safetensors is no whole safetensors",
    ),
    "a tensor in two shards": (
        sharded(both_shards_hold_one_tensor),
        r"is in both .*a\.safetensors and .*b\.safetensors",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_directory_is_one_line(damage, directory):
    apply, message = DAMAGES[damage]
    load_directory(directory)
    apply(directory)
    with pytest.raises(InputError, match=message) as caught:
        load_directory(directory)
    assert len(str(caught.value).splitlines()) == 1


def test_packing_goes_by_the_same_index(directory):
    weight_map = shard(directory)
    write_index(directory, {name: file for name, file in weight_map.items() if name != UP})
    with pytest.raises(InputError, match=rf"holds tensor '{UP}', which .* does not list"):
        open_checkpoint(directory)
    write_index(directory, weight_map | {UP: "a.safetensors" if weight_map[UP] == "b.safetensors" else "b.safetensors"})
    with pytest.raises(InputError, match=rf"'{UP}' in ..safetensors, which lacks it"):
        open_checkpoint(directory)
    write_index(directory, weight_map)
    assert len(list(open_checkpoint(directory).tensors())) == len(weight_map)
    save_file({UP: np.ones(1)}, directory / "left-over.safetensors")
    with pytest.raises(InputError, match=r"holds 'left-over\.safetensors', which .* does not list"):
        open_checkpoint(directory)


def test_the_path_must_be_a_directory(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "absent", tmp_path / "file", "a" * 10_000, "a\0b", "a\nb"):
        with pytest.raises(InputError, match="does not exist; needed is a folder") as caught:
            load_directory(path)
        assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("dtype", ["float64", "int8", "nonsense", jnp.float8_e4m3fn, 3])
def test_other_dtypes_are_refused(dtype, directory):
    with pytest.raises(InputError, match="allowed are float32, float16, bfloat16"):
        load_directory(directory, dtype=dtype)


def test_the_tokenizer_is_opened_only_when_asked_for(directory):
    model = load_directory(directory)
    with pytest.raises(InputError, match=r"no tokenizer\.json and a vocabulary of 11"):
        _ = model.tokenizer
