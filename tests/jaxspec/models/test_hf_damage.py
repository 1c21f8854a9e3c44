"""Directories that cannot be used, each said in one line."""

import re

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hf_directories import LLAMA, bfloat16_params, edit_config, edit_tensors, shard, write_index
from safetensors.numpy import load_file, save_file

from jaxspec.errors import InputError
from jaxspec.formats.container import open_checkpoint, pack, weight_notes
from jaxspec.models.hf_export import save_directory
from jaxspec.models.hf_load import load_container, load_directory


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


def adapter_alone(directory):
    (directory / "config.json").unlink()
    adapter_without_weights(directory)


def adapter_without_weights(directory):
    (directory / "model.safetensors").rename(directory / "adapter_model.safetensors")
    (directory / "adapter_config.json").write_text('{"base_model_name_or_path": "org/base"}')


def second_copy(directory, weight_map):
    save_file({"tok_embeddings.weight": np.ones((2, 3), np.float32)}, directory / "consolidated.safetensors")
    save_file({"lora.weight": np.ones((2, 3), np.float32)}, directory / "adapter_model.safetensors")


def copy_in_one_file(directory, weight_map):
    tensors = load_file(directory / "a.safetensors") | load_file(directory / "b.safetensors")
    save_file({name: 2 * value for name, value in tensors.items()}, directory / "model.safetensors")


def own_layer_for_further_tokens(directory, weight_map):
    further = {"model.mtp_layers.0.input_proj.weight": np.ones((3, 6), np.float32), "mtp.fc.weight": np.ones(2)}
    save_file(load_file(directory / "b.safetensors") | further, directory / "b.safetensors")
    write_index(directory, weight_map | dict.fromkeys(further, "b.safetensors"))


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
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
    "config without sizes": (lambda d: edit_config(d, hidden_size="absent"), r"hidden_size is missing"),
    "unknown family": (
        lambda d: edit_config(d, model_type="mamba"),
        r"'mamba' is not modelled; known: .*llama, .*minimax_m2",
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
        r"num_hidden_layers is 10+; it must be a whole number",
    ),
    "fewer layers than stored": (
        lambda d: edit_config(d, num_hidden_layers=2),
        r"'model\.layers\.2\.input_layernorm\.weight' and 8 more",
    ),
    "another vocabulary": (
        lambda d: edit_config(d, vocab_size=10**30),
        r"vocab_size is 10+; it must be a whole number",
    ),
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
    "not safetensors": (rewrite("model.safetensors", "version 1"), r"no whole safetensors"),
    "a pointer of git-lfs": (
        rewrite("model.safetensors", POINTER),
        r"safetensors is a pointer of git-lfs.*git lfs pull",
    ),
    "config is a pointer": (rewrite("config.json", POINTER), r"config\.json is a pointer of git-lfs"),
    "tokenizer is a pointer": (rewrite("tokenizer.json", POINTER), r"tokenizer\.json is a pointer of git-lfs"),
    "an adapter": (adapter_alone, r"is an adapter \(LoRA\) of 'org/base', by its adapter_config\.json.*merge"),
    "an adapter with its base's config": (adapter_without_weights, r"is an adapter \(LoRA\) of 'org/base'"),
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
    "index names the wrong shard": (reindex(**{UP: "a.safetensors"}), rf"'{UP}' in a\.safetensors, which lacks it"),
    "index lacks a tensor": (sharded(without_index_line), rf"holds tensor '{UP}', which .*index\.json does not list"),
    "shard missing": (
        sharded(lambda d, _: (d / "b.safetensors").unlink()),
        r"lacks b\.safetensors, which its index names",
    ),
    "shard damaged": (
        sharded(lambda d, _: rewrite("b.safetensors", "b")(d)),
        r"b\.safetensors is no whole safetensors",
    ),
}


#: What lies beside a sharded network that is read all the same, and what the notes name.
UNREAD = {
    "a second copy and an adapter": (
        second_copy,
        r"'adapter_model\.safetensors' and 1 more in .* is not read: .*index\.json does not list it",
    ),
    "a whole copy under the usual name": (copy_in_one_file, r"'model\.safetensors' in .* is not read"),
    "a shard that the index passes over": (without_shard_in_index, r"'b\.safetensors' in .* is not read"),
    "a tensor that only a shard has": (extra_tensor_in_a_shard, r"tensor 'model\.more' in .* is not read"),
    "a tensor in two shards": (
        both_shards_hold_one_tensor,
        r"tensor '.*' in .* is not read: .* does not list it there",
    ),
    "an absent tensor": (
        lambda d, weight_map: write_index(d, weight_map | {"mtp.fc.weight": "a.safetensors"}),
        r"index\.json lists tensor 'mtp\.fc\.weight', which its file lacks",
    ),
    "a layer for further tokens": (
        own_layer_for_further_tokens,
        r"tensor 'model\.mtp_layers\.0\.input_proj\.weight' and 1 more in .* is not read: layers that predict further",
    ),
}


@pytest.mark.parametrize("case", UNREAD)
def test_the_index_chooses_what_is_read_and_notes_name_the_rest(case, directory):
    change, message = UNREAD[case]
    expected = load_directory(directory).params
    weight_map = shard(directory)
    assert weight_notes(directory) == []
    change(directory, weight_map)
    jax.tree.map(np.testing.assert_array_equal, load_directory(directory).params, expected)
    (note,) = weight_notes(directory)
    assert re.search(message, note)
    assert note.isprintable()


@pytest.mark.parametrize("case", sorted(UNREAD.keys() - {"a tensor in two shards"}))
def test_what_an_index_leaves_out_is_not_read_from_a_container(case, directory, tmp_path):
    expected = load_directory(directory).params
    UNREAD[case][0](directory, shard(directory))
    pack(open_checkpoint(directory), directory / "all.jspk", "huffman")
    jax.tree.map(np.testing.assert_array_equal, load_container(directory / "all.jspk").params, expected)


def test_a_leftover_index_does_not_hide_a_whole_checkpoint(directory):
    expected = load_directory(directory).params
    write_index(directory, {UP: "model-00001-of-00002.safetensors"})
    jax.tree.map(np.testing.assert_array_equal, load_directory(directory).params, expected)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_directory_is_one_line(damage, directory):
    apply, message = DAMAGES[damage]
    load_directory(directory)
    apply(directory)
    with pytest.raises(InputError, match=message) as caught:
        load_directory(directory)
    assert len(str(caught.value).splitlines()) == 1


def test_packing_takes_the_files_of_the_index_whole(directory):
    weight_map = shard(directory)
    for other in ({}, {UP: "b.safetensors"}, {"absent": "a.safetensors"}):
        write_index(directory, {name: file for name, file in weight_map.items() if name != UP} | other)
        assert {form.name for _, form in open_checkpoint(directory).tensors()} == set(weight_map)
    save_file({UP: np.ones(1)}, directory / "left-over.safetensors")
    assert [file.path.name for file in open_checkpoint(directory).files] == ["a.safetensors", "b.safetensors"]
    lacking, beside = weight_notes(directory, packed=True)[::-1]
    assert "lists tensor 'absent', which its file lacks" in lacking
    assert re.search(r"'left-over\.safetensors' in .* is left out", beside)
    both_shards_hold_one_tensor(directory, weight_map)
    with pytest.raises(InputError, match=r"is in both .*a\.safetensors and .*b\.safetensors"):
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
