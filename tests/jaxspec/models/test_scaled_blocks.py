"""Matrices in FP8 with a scale for each block: by hand, element by element, and what of such files is refused."""

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from hwmodels.networks.packing import Packing
from jaxspec.errors import InputError
from jaxspec.formats.container import open_checkpoint, pack
from jaxspec.formats.packed_integers import scaled_rows
from jaxspec.models.checkpoint_files import CheckpointFiles
from jaxspec.models.config import decoder_config
from jaxspec.models.hf_load import load_container, load_directory
from jaxspec.models.packed_tensors import QuantizedFiles

GOLDEN = Path(__file__).parents[2] / "golden" / "hf" / "kimi_k2_released"
E4M3 = ml_dtypes.float8_e4m3fn
RNG = np.random.default_rng(2)
ELEMENTS = (30 * RNG.standard_normal((7, 11))).astype(E4M3)
SCALES = RNG.uniform(0.01, 3.0, size=(3, 3)).astype(np.float32)  # of blocks of 3 x 4, the last ones cut
BLOCK = (3, 4)
PACKING = Packing("fp8", block=BLOCK)


def scaled_values(elements, scales, block):
    return scaled_rows(elements, scales, block=block).values().astype(ml_dtypes.bfloat16)


def test_every_pattern_under_a_scale_is_rounded_once():
    elements = np.arange(256, dtype=np.uint8).view(E4M3).reshape(1, 256)
    found = scaled_values(elements, np.array([[1 / 3]], np.float32), (128, 256))
    assert found.dtype == ml_dtypes.bfloat16
    # E4M3 by its definition: 2^(e - 7) (1 + m / 8), without the implicit 1 at e = 0; all bits set are NaN.
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    magnitude = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
    magnitude = np.where((exponent == 15) & (mantissa == 7), np.nan, magnitude)
    exact = np.where(code < 128, 1.0, -1.0) * magnitude * np.float64(np.float32(1 / 3))
    rounded = exact.astype(np.float32).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(found[0].astype(np.float64), rounded.astype(np.float64))


def test_a_matrix_and_its_scales_are_read_as_one(tmp_path):
    plain = RNG.standard_normal((2, 3)).astype(np.float32)
    save_file({"a.weight": ELEMENTS, "a.weight_scale_inv": SCALES, "plain": plain}, tmp_path / "model.safetensors")
    files = QuantizedFiles(CheckpointFiles(tmp_path), PACKING)
    assert {name: (place.shape, place.dtype) for name, place in files.tensors.items()} == {
        "a.weight": ((7, 11), "BF16"),
        "plain": ((2, 3), "F32"),
    }
    np.testing.assert_array_equal(files.read("plain"), plain)
    np.testing.assert_array_equal(files.read("a.weight"), scaled_values(ELEMENTS, SCALES, BLOCK))


def tensors_of(folder):
    files = CheckpointFiles(folder)
    return {name: files.read(name) for name in files.tensors}


@pytest.mark.network
def test_a_release_under_another_name_is_the_same_network(tmp_path):
    raw = json.loads((GOLDEN / "config.json").read_text())
    assert raw["model_type"] == "kimi_k2"
    model = load_directory(GOLDEN)
    assert model.family.name == "deepseek_v3"
    assert dataclasses.replace(decoder_config(raw | {"model_type": "deepseek_v3"}), in_codes=True) == model.config
    stored = tensors_of(GOLDEN)
    name = "model.layers.1.mlp.experts.2.up_proj.weight"
    expected = scaled_values(stored[name], stored[name + "_scale_inv"], (2, 6))
    np.testing.assert_array_equal(model.params["layers"]["expert_up"].take(0).take(2).values(), expected)
    # The files of the network in a container are read alike.
    packed = tmp_path / "kimi.jspk"
    pack(open_checkpoint(GOLDEN), packed, "huffman")
    jax.tree.map(np.testing.assert_array_equal, load_container(packed).params, model.params)


def test_without_its_scales_a_release_is_refused(tmp_path):
    shutil.copy(GOLDEN / "config.json", tmp_path)
    stored = tensors_of(GOLDEN)
    save_file(
        {n: t for n, t in stored.items() if "layers.0.self_attn.o_proj.weight_s" not in n},
        tmp_path / "model.safetensors",
    )
    with pytest.raises(InputError, match=r"'model\.layers\.0\.self_attn\.o_proj\.weight' of F8_E4M3 without"):
        load_directory(tmp_path)
