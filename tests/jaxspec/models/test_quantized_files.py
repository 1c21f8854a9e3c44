"""Quantized releases against their formats' own code: every value bit for bit, logits, and what of such files is refused."""

import json
import shutil
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from hwmodels.networks.packing import Packing, packing_of
from jaxspec.errors import InputError
from jaxspec.formats.packed_integers import codes_of_words, grouped_values, scaled_rows
from jaxspec.models import load_directory, load_model
from jaxspec.models.checkpoint_files import CheckpointFiles
from jaxspec.models.decoder import causal_mask, forward
from jaxspec.models.described import described_in
from jaxspec.models.embedded import check_model

QUANTIZED = Path(__file__).parents[2] / "golden" / "quantized"
CASES = sorted(path.name for path in QUANTIZED.iterdir())


@pytest.mark.parametrize("name", CASES)
def test_matrices_have_the_librarys_values(name):
    files = described_in(QUANTIZED / name).tensors(CheckpointFiles(QUANTIZED / name), QUANTIZED / name).files
    expected = np.load(QUANTIZED / name / "expected.npz")
    matrices = [key for key in expected.files if key.endswith(".weight")]
    assert len(matrices) == 7
    for key in matrices:
        np.testing.assert_array_equal(files.read(key).astype(np.float32), expected[key], err_msg=key)


@pytest.mark.parametrize("name", CASES)
def test_a_quantized_network_says_what_transformers_says(name):
    found = load_model(QUANTIZED / name, dtype=jnp.float32)
    expected = np.load(QUANTIZED / name / "expected.npz")
    tokens = jnp.asarray(expected["tokens"], jnp.int32)
    batch, length = tokens.shape
    positions = jnp.broadcast_to(jnp.arange(length), (batch, length))
    logits = forward(
        found.params, found.config, tokens=tokens, positions=positions, mask=causal_mask(batch, length)
    ).logits
    scale = np.abs(expected["logits"]).max()
    np.testing.assert_allclose(logits, expected["logits"], rtol=0, atol=2e-5 * scale)


def test_codes_may_span_words():
    codes = np.random.default_rng(0).integers(0, 8, (3, 43))
    stream = sum(codes[:, i].astype(object) << (3 * i) for i in range(43))
    words = np.array([[(int(row) >> (32 * i)) & 0xFFFFFFFF for i in range(5)] for row in stream], np.uint32)
    np.testing.assert_array_equal(codes_of_words(words.view(np.int32), 3, 43), codes)


def test_groups_may_be_in_any_order():
    codes, scales = np.array([[1, 2, 3]]), np.array([[10.0, 0.5]], np.float16)
    np.testing.assert_array_equal(grouped_values(codes, scales, 1, np.array([1, 0, 1])), [[0.0, 10.0, 1.0]])


def test_last_blocks_may_be_cut():
    found = scaled_rows(np.ones((3, 5), np.int8), np.arange(1.0, 7).reshape(2, 3), block=(2, 2))
    np.testing.assert_array_equal(found, [[1, 1, 2, 2, 3], [1, 1, 2, 2, 3], [4, 4, 5, 5, 6]])


@pytest.fixture
def changed(tmp_path):
    """A case with other settings or tensors."""

    def write(name, settings=None, tensors=None):
        folder = shutil.copytree(QUANTIZED / name, tmp_path / name)
        config = json.loads((folder / "config.json").read_text())
        config["quantization_config"] |= settings or {}
        (folder / "config.json").write_text(json.dumps(config))
        if tensors is not None:
            found = load_file(folder / "model.safetensors")
            tensors(found)
            save_file(found, folder / "model.safetensors")
        return folder

    return write


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("gptq", {"bits": 5}, "quant_method 'gptq' with bits 5"),
        ("gptq", {"checkpoint_format": "marlin"}, "checkpoint_format 'marlin'"),
        ("awq", {"version": "gemv"}, "version 'gemv'"),
        ("awq", {"quant_method": "aqlm"}, "quant_method 'aqlm'"),
        ("int4_groups", {"format": "marlin-24"}, "format 'marlin-24' of compressed-tensors"),
        ("fp8_rows", {"quant_method": "fp8", "fmt": "e5m2"}, "fmt 'e5m2'"),
        ("fp8_rows", {"quant_method": "fp8", "weight_block_size": [128]}, r"weight_block_size \[128\]"),
        ("fp8_rows", {"quant_method": "fp8", "weight_block_size": [128, True]}, r"weight_block_size \[128, True\]"),
        ("fp8_rows", {"format": ["float-quantized"]}, r"format \['float-quantized'\] of compressed-tensors"),
        ("gptq", {"bits": 4.0}, "quant_method 'gptq' with bits 4.0"),
    ],
)
def test_an_unread_form_is_named(changed, name, settings, said):
    folder = changed(name, settings)
    with pytest.raises(InputError, match=said) as found:
        check_model(folder)
    assert "\n" not in str(found.value)


def _without(ending):
    def remove(tensors):
        for name in [name for name in tensors if name.endswith(ending)][:1]:
            del tensors[name]

    return remove


@pytest.mark.parametrize(
    ("name", "ending", "said"),
    [
        ("gptq", "qzeros", "no qzeros"),
        ("gptq", "q_proj.scales", "no scales"),
        ("int4_groups", "weight_scale", "no scales"),
        ("int8_rows", "weight_scale", "without the others of its matrix"),
        ("int8_rows", "q_proj.weight", "without the others of its matrix"),
    ],
)
def test_a_missing_part_is_named(changed, name, ending, said):
    with pytest.raises(InputError, match=said):
        check_model(changed(name, tensors=_without(ending)))


def test_scales_of_inputs_and_keys_are_read_over(changed):
    def add(tensors):
        tensors["model.layers.0.self_attn.k_scale"] = np.ones(1, np.float32)
        tensors["model.layers.0.self_attn.q_proj.input_scale"] = np.ones(1, np.float32)

    assert load_directory(changed("int8_rows", tensors=add)).packed == {"INT8"}


def test_forms_of_whole_matrices_have_no_block():
    assert packing_of({"quant_method": "fp8"}) == Packing("fp8")
    assert packing_of({"quant_method": "modelopt", "quant_algo": "FP8"}) == Packing("modelopt")
    assert packing_of({"quant_method": "fp8", "weight_block_size": [128, 64]}).block == (128, 64)
