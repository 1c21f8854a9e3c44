import dataclasses
import json

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jaxspec.errors import InputError
from jaxspec.formats.container import open_checkpoint
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import abstract_params
from jaxspec.models.hf_export import save_directory
from jaxspec.models.hf_load import load_directory
from jaxspec.models.sizes import RopeScaling

LLAMA = DecoderConfig(
    vocab_size=11,
    hidden_size=12,
    intermediate_size=10,
    num_layers=3,
    num_heads=3,
    num_kv_heads=1,
    head_dim=6,
    rope_theta=3000.0,
    rope_scaling=RopeScaling(8.0, 1.0, 4.0, 128),
    norm_eps=3e-6,
)
QWEN3_TIED = dataclasses.replace(LLAMA, qk_norm=True, tie_embeddings=True, rope_scaling=None, num_heads=2)


def same_bits(a, b):
    return jax.tree.map(lambda x, y: x.dtype == y.dtype and np.asarray(x).tobytes() == np.asarray(y).tobytes(), a, b)


def bfloat16_params(config, seed=0):
    # From NumPy: `init_params` compiles a generator for every shape.
    rng = np.random.default_rng(seed)
    draw = lambda leaf: jnp.asarray(rng.standard_normal(leaf.shape).astype(ml_dtypes.bfloat16))
    return jax.tree.map(draw, abstract_params(config))


@pytest.fixture
def directory(tmp_path):
    """A small Llama directory, to be damaged."""
    save_directory(bfloat16_params(LLAMA), LLAMA, tmp_path, max_positions=99)
    return tmp_path


def edit_config(directory, **changes):
    path = directory / "config.json"
    raw = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in raw.items() if value != "absent"}))


def edit_tensors(directory, edit):
    tensors = load_file(directory / "model.safetensors")
    edit(tensors)
    save_file(tensors, directory / "model.safetensors")


def shard(directory):
    """Split model.safetensors in two, with an index; returns the weight map."""
    tensors = load_file(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    names = sorted(tensors)
    files = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in files.items():
        save_file({name: tensors[name] for name in part}, directory / file)
    weight_map = {name: file for file, part in files.items() for name in part}
    write_index(directory, weight_map)
    return weight_map


def write_index(directory, weight_map):
    content = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(content))


@pytest.mark.parametrize("config", [LLAMA, QWEN3_TIED], ids=["llama", "qwen3-tied"])
def test_what_was_saved_is_loaded_bit_for_bit(config, tmp_path):
    params = bfloat16_params(config)
    save_directory(params, config, tmp_path, max_positions=99)
    model = load_directory(tmp_path)
    assert model.config == config
    assert all(jax.tree.leaves(same_bits(model.params, params)))
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(model.params))


def test_every_bfloat16_pattern_survives(tmp_path):
    config = dataclasses.replace(LLAMA, vocab_size=1024, hidden_size=64)
    params = bfloat16_params(config)
    patterns = np.arange(2**16, dtype=np.uint16)
    params["embed"] = jnp.asarray(patterns.view(ml_dtypes.bfloat16).reshape(1024, 64))
    save_directory(params, config, tmp_path, max_positions=99)
    loaded = np.asarray(load_directory(tmp_path).params["embed"])
    np.testing.assert_array_equal(loaded.reshape(-1).view(np.uint16), patterns)


@pytest.mark.parametrize("config", [LLAMA, QWEN3_TIED], ids=["llama", "qwen3-tied"])
def test_parameters_have_the_shapes_of_the_network(config, tmp_path):
    save_directory(bfloat16_params(config), config, tmp_path, max_positions=99)
    loaded = jax.tree.map(jnp.shape, load_directory(tmp_path).params)
    assert loaded == jax.tree.map(lambda leaf: leaf.shape, abstract_params(config))


@pytest.mark.parametrize("stored", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_the_stored_number_format_is_kept(stored, directory):
    edit_tensors(directory, lambda t: t.update({name: value.astype(stored) for name, value in t.items()}))
    assert {leaf.dtype for leaf in jax.tree.leaves(load_directory(directory).params)} == {np.dtype(stored)}


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16, "float32"])
def test_an_explicit_dtype_converts_all(dtype, directory):
    kept, converted = load_directory(directory), load_directory(directory, dtype=dtype)
    expected = jax.tree.map(lambda leaf: leaf.astype(dtype), kept.params)
    assert all(jax.tree.leaves(same_bits(converted.params, expected)))


def test_formats_may_differ_between_kinds_but_within_one_only_with_an_explicit_dtype(directory):
    widen = lambda name: lambda tensors: tensors.update({name: tensors[name].astype(np.float32)})
    edit_tensors(directory, widen("model.norm.weight"))
    params = load_directory(directory).params
    assert (params["final_norm"].dtype, params["embed"].dtype) == (np.float32, ml_dtypes.bfloat16)
    edit_tensors(directory, widen("model.layers.1.mlp.up_proj.weight"))
    with pytest.raises(InputError, match=r"model\.layers\.1\.mlp\.up_proj\.weight.*F32.*BF16.*explicit dtype"):
        load_directory(directory)
    assert load_directory(directory, dtype=jnp.float32).params["layers"]["up"].dtype == np.float32


def test_layers_are_stacked_in_the_order_of_their_numbers(tmp_path):
    # More than ten layers: "10" sorts before "2" as a string.
    config = dataclasses.replace(LLAMA, num_layers=12)
    params = bfloat16_params(config)
    params["layers"]["mlp_norm"] = jnp.arange(12.0, dtype=jnp.bfloat16)[:, None] * jnp.ones((12, 12), jnp.bfloat16)
    save_directory(params, config, tmp_path, max_positions=99)
    np.testing.assert_array_equal(load_directory(tmp_path).params["layers"]["mlp_norm"][:, 0], np.arange(12))


def test_shards_hold_what_one_file_held(directory):
    whole = load_directory(directory).params
    shard(directory)
    assert all(jax.tree.leaves(same_bits(load_directory(directory).params, whole)))


def test_one_file_counts_before_an_index(directory):
    before = load_directory(directory).params
    (directory / "model.safetensors.index.json").write_text("damaged")
    assert all(jax.tree.leaves(same_bits(load_directory(directory).params, before)))


def test_stored_rotary_frequencies_are_ignored(directory):
    before = load_directory(directory).params
    frequencies = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(3, np.float32)}
    edit_tensors(directory, lambda tensors: tensors.update(frequencies))
    assert all(jax.tree.leaves(same_bits(load_directory(directory).params, before)))


def test_a_copy_of_a_tied_head_is_dropped_and_another_head_refused(tmp_path):
    save_directory(bfloat16_params(QWEN3_TIED), QWEN3_TIED, tmp_path, max_positions=99)
    edit_tensors(tmp_path, lambda tensors: tensors.update({"lm_head.weight": tensors["model.embed_tokens.weight"]}))
    assert "lm_head" not in load_directory(tmp_path).params
    edit_tensors(tmp_path, lambda tensors: tensors.update({"lm_head.weight": -tensors["lm_head.weight"]}))
    with pytest.raises(InputError, match="tie_word_embeddings"):
        load_directory(tmp_path)
    edit_tensors(tmp_path, lambda tensors: tensors.update({"lm_head.weight": np.ones((), np.int8)}))
    with pytest.raises(InputError, match="tie_word_embeddings"):
        load_directory(tmp_path)


def test_overflow_of_an_asked_dtype_is_an_error_and_stored_infinities_are_none(directory):
    def put(value):
        def edit(tensors):
            tensors["model.norm.weight"] = np.full(12, value, ml_dtypes.bfloat16)

        edit_tensors(directory, edit)

    put(1e6)
    with pytest.raises(InputError, match=r"'model\.norm\.weight'.*overflows float16"):
        load_directory(directory, dtype=jnp.float16)
    assert load_directory(directory).params["final_norm"][0] > 9e5
    put(np.inf)
    assert np.isinf(load_directory(directory, dtype=jnp.float16).params["final_norm"]).all()
    put(np.nan)
    assert np.isnan(load_directory(directory, dtype=jnp.float16).params["final_norm"]).all()


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
        r"'mamba' is not modelled; known: llama, mistral",
    ),
    "no family": (lambda d: edit_config(d, model_type="absent"), r"None is not modelled"),
    "unknown variant": (lambda d: edit_config(d, attention_bias=True), r"attention_bias = True is not modelled"),
    "unknown scaling": (lambda d: edit_config(d, rope_scaling={"rope_type": "yarn"}), r"'yarn' is not modelled"),
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
