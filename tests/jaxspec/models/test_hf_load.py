import dataclasses

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hf_directories import LLAMA, QWEN3_TIED, bfloat16_params, edit_tensors, same_bits

from jaxspec.errors import InputError
from jaxspec.models.decoder import abstract_params
from jaxspec.models.hf_export import save_directory
from jaxspec.models.hf_load import load_directory


@pytest.fixture
def directory(tmp_path):
    """A small Llama directory, to be damaged."""
    save_directory(bfloat16_params(LLAMA), LLAMA, tmp_path, max_positions=99)
    return tmp_path


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


def test_formats_may_differ_between_kinds_but_within_one_only_with_an_explicit_dtype(directory):
    widen = lambda name: lambda tensors: tensors.update({name: tensors[name].astype(np.float32)})
    edit_tensors(directory, widen("model.norm.weight"))
    params = load_directory(directory).params
    assert (params["final_norm"].dtype, params["embed"].dtype) == (np.float32, ml_dtypes.bfloat16)
    edit_tensors(directory, widen("model.layers.1.mlp.up_proj.weight"))
    with pytest.raises(
        InputError, match=r"layers\.1\.mlp\.up_proj.*F32.*BF16.*: convert the checkpoint, or .*explicit dtype"
    ):
        load_directory(directory)
    assert load_directory(directory, dtype=jnp.float32).params["layers"]["up"].dtype == np.float32


def test_layers_are_stacked_in_the_order_of_their_numbers(tmp_path):
    # More than ten layers: "10" sorts before "2" as a string.
    config = dataclasses.replace(LLAMA, num_layers=12)
    params = bfloat16_params(config)
    params["layers"]["mlp_norm"] = jnp.arange(12.0, dtype=jnp.bfloat16)[:, None] * jnp.ones((12, 12), jnp.bfloat16)
    save_directory(params, config, tmp_path, max_positions=99)
    np.testing.assert_array_equal(load_directory(tmp_path).params["layers"]["mlp_norm"][:, 0], np.arange(12))


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
