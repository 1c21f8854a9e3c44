"""Quantized releases against their formats' own code: every value bit for bit, logits, and what of such files is refused."""

import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jaxspec.errors import InputError
from jaxspec.formats.codes import Codes
from jaxspec.formats.packed_integers import awq_codes, gptq_codes, nf4_codes, packed_codes, scaled_rows
from jaxspec.models import load_directory, load_model
from jaxspec.models.blocks import StepInput
from jaxspec.models.checkpoint_files import CheckpointFiles
from jaxspec.models.coded import Coded
from jaxspec.models.decoder import causal_mask, forward, forward_text
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
    logits = forward(found.params, found.config, tokens, StepInput(positions, causal_mask(batch, length))).logits
    scale = np.abs(expected["logits"]).max()
    np.testing.assert_allclose(logits, expected["logits"], rtol=0, atol=2e-5 * scale)


def test_groups_may_be_in_any_order():
    codes, scales = np.array([[1, 2, 3]], np.uint8), np.array([[10.0, 0.5]], np.float16)
    found = Codes(codes, scales, np.ones((1, 1), np.uint8), np.array([1, 0, 1]), columns=3)
    np.testing.assert_array_equal(found.values(), [[0.0, 10.0, 1.0]])


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
        ("nf4", {"load_in_4bit": False, "load_in_8bit": True}, "load_in_8bit True"),
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


@pytest.mark.parametrize(
    ("name", "form"),
    [("nf4", "NF4"), ("nf4_double", "NF4"), ("mxfp4_quark", "MXFP4"), ("nvfp4_modelopt", "NVFP4"), ("nvfp4", "NVFP4")],
)
def test_forms_of_four_bits_have_their_names(name, form):
    held = load_directory(QUANTIZED / name)
    assert held.packed == {form}
    assert held.params["layers"]["up"].bits_per_value <= 4.6


@pytest.mark.parametrize("name", CASES)
def test_a_release_is_held_in_codes_with_the_librarys_values(name):
    held, plain = (load_directory(QUANTIZED / name, dtype=dtype) for dtype in (None, "float32"))
    assert held.config.in_codes
    assert not plain.config.in_codes
    expected = np.load(QUANTIZED / name / "expected.npz")
    values = jax.jit(lambda stack: stack.take(1).values())
    for kind in held.config.matrix_kinds:
        stack = held.params["layers"][kind]
        assert isinstance(stack, Coded)
        assert stack.bits_per_value < 8.5
        where = "mlp" if kind in ("gate", "up", "down") else "self_attn"
        library = expected[f"model.layers.1.{where}.{kind}_proj.weight"]
        np.testing.assert_array_equal(values(stack).astype(jnp.float32), library)
    tokens = jnp.asarray(expected["tokens"], jnp.int32)
    logits = [
        jax.jit(forward_text, static_argnums=1)(each.params, each.config, tokens).logits for each in (held, plain)
    ]
    np.testing.assert_allclose(*logits, rtol=0, atol=2e-5 * np.abs(expected["logits"]).max())


def words_of(codes, bits, order=None):
    """Codes along the first axis in words of 32 bits, by the definition: code i begins at bit `bits` i of the stream."""
    rows = []
    for column in codes.T:
        if order is not None:
            column = column.reshape(-1, 8)[:, order].reshape(-1)
        stream = sum(int(code) << (bits * place) for place, code in enumerate(column))
        rows.append([stream >> (32 * word) & 0xFFFFFFFF for word in range(-(-bits * len(column) // 32))])
    return np.array(rows, np.uint32).T.view(np.int32)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("form", ["gptq", "gptq_v2", "gptq ordered", "awq", "packed"])
def test_values_follow_from_the_definition_of_a_packing(form, symmetric):
    rng = np.random.default_rng(len(form) + symmetric)
    rows, columns, size = 16, 24, 8
    codes = rng.integers(0, 16, (rows, columns))
    zeros = np.full((rows, columns // size), 8) if symmetric else rng.integers(1, 16, (rows, columns // size))
    scales = rng.uniform(0.001, 2.0, zeros.shape).astype(np.float16)
    groups = rng.permutation(np.arange(columns) // size) if form == "gptq ordered" else np.arange(columns) // size
    if form == "awq":
        order = [0, 2, 4, 6, 1, 3, 5, 7]  # channel of each nibble, the lowest one first
        found = awq_codes(words_of(codes, 4, order).T, words_of(zeros, 4, order).T, scales.T)
    elif form == "packed":
        own = None if symmetric else words_of(zeros, 4)
        found = packed_codes(words_of(codes.T, 4).T, scales, columns, bits=4, zeros=own)
    else:
        offset = int(form != "gptq_v2")  # stored one too small, modulo 16
        own = words_of((zeros - offset) % 16, 4).T
        found = gptq_codes(words_of(codes.T, 4), own, scales.T, 4, groups=groups.astype(np.int32), offset=offset)
    expected = np.empty((rows, columns), np.float16)
    for row, column in np.ndindex(codes.shape):
        group = groups[column]
        step = np.float64(scales[row, group])
        expected[row, column] = np.float16((int(codes[row, column]) - int(zeros[row, group])) * step)
    np.testing.assert_array_equal(found.values().astype(np.float16), expected)
    held = Coded(found, np.float16)
    assert held.codes.codes.size == rows * columns // 2
    np.testing.assert_array_equal(jax.jit(lambda held: held.values())(held), expected)
    x = rng.standard_normal((3, columns)).astype(np.float32)
    np.testing.assert_allclose(held.dot(x), x @ expected.astype(np.float32).T, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("stored", [np.uint8, ml_dtypes.bfloat16])
@pytest.mark.parametrize("columns", [384, 88])
def test_blocks_of_scales_go_on_from_row_to_row(columns, stored):
    """Double quantization of bitsandbytes: 256 scales share one, and a row has 6; or blocks of 64 end within rows of 88."""
    rng = np.random.default_rng(0)
    rows, size = 130, 64
    codes = rng.integers(0, 16, (rows, columns), dtype=np.uint8)
    parts = {
        "weight": (codes[:, ::2] << 4 | codes[:, 1::2]).reshape(-1, 1).view(np.uint8).reshape(-1).view(stored),
        "absmax": rng.integers(0, 256, -(-rows * columns // size), dtype=np.uint8),
        "quant_map": rng.standard_normal(16, np.float32),
        "nested_absmax": rng.uniform(0.5, 2, -(-rows * columns // (256 * size))).astype(np.float32),
        "nested_quant_map": rng.standard_normal(256, np.float32),
    }
    state = {"shape": [rows, columns], "blocksize": size, "nested_blocksize": 256, "nested_offset": 0.3}
    found = nf4_codes(parts.get, state)
    inner = np.repeat(parts["nested_absmax"], 256)[: parts["absmax"].size]
    scales = parts["nested_quant_map"][parts["absmax"]] * inner + np.float32(0.3)
    expected = parts["quant_map"][codes] * np.repeat(scales, size)[: codes.size].reshape(codes.shape)
    np.testing.assert_array_equal(found.values(), expected)
    held = jax.tree.map(jnp.asarray, Coded(found, np.float32))
    np.testing.assert_array_equal(jax.jit(lambda held: held.values())(held), expected)
    np.testing.assert_array_equal(held.take(jnp.array([77, 3])).values(), expected[[77, 3]])
    with pytest.raises(ValueError, match="reshape"):
        nf4_codes(parts.get, state | {"shape": [131, columns]})


def test_scales_of_blocks_may_be_powers_of_two_in_a_byte():
    elements = np.arange(1, 113, dtype=np.uint8).reshape(8, 14).view(ml_dtypes.float8_e4m3fn)
    codes = np.array([[120, 127, 130], [131, 126, 124]], np.uint8)
    made = scaled_rows(elements, codes, block=(5, 6))
    each = np.repeat(np.repeat(2.0 ** (codes.astype(np.float64) - 127), 5, axis=0), 6, axis=1)[:8, :14]
    np.testing.assert_array_equal(made.values(), elements.astype(np.float64) * each)
    np.testing.assert_array_equal(Coded(jax.tree.map(jnp.asarray, made), np.float32).values(), made.values())


def test_every_e4m3_pattern_is_widened_exactly():
    elements = np.arange(256, dtype=np.uint8).reshape(2, 128).view(ml_dtypes.float8_e4m3fn)
    found = scaled_rows(elements, np.ones((1, 1), np.float32))
    held = jax.jit(lambda held: held.values())(Coded(found, np.float32))
    np.testing.assert_array_equal(held, elements.astype(np.float32))
    assert not found.surely_within(np.dtype(np.float32))  # two patterns are NaN


def test_codes_that_stand_for_no_number_are_refused(changed):
    def damage(tensors):
        tensors["model.layers.1.mlp.up_proj.weight_scale"][...] = np.inf

    with pytest.raises(InputError, match=r"up_proj.weight' .* holds NaN or infinities"):
        load_model(changed("int8_rows", tensors=damage))
