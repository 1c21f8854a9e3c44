"""Whatever a damaged file holds, opening it ends in a right answer or in one line."""

import json

import jax
import numpy as np
import pytest

from jaxspec.errors import InputError
from jaxspec.models.checkpoint_files import CheckpointFiles
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import abstract_params
from jaxspec.models.hf_export import save_directory
from jaxspec.models.hf_load import load_directory

CONFIG = DecoderConfig(
    vocab_size=5, hidden_size=4, intermediate_size=3, num_layers=1, num_heads=1, num_kv_heads=1, head_dim=2
)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    directory = tmp_path_factory.mktemp("good")
    rng = np.random.default_rng(1)
    params = jax.tree.map(lambda leaf: rng.standard_normal(leaf.shape, np.float32), abstract_params(CONFIG))
    save_directory(params, CONFIG, directory, max_positions=9)
    return directory


@pytest.fixture
def scratch(good, tmp_path):
    """A copy of `good`, and the bytes of its weights."""
    weights = (good / "model.safetensors").read_bytes()
    (tmp_path / "config.json").write_bytes((good / "config.json").read_bytes())
    (tmp_path / "model.safetensors").write_bytes(weights)
    return tmp_path, weights


def header_end(weights):
    return 8 + int.from_bytes(weights[:8], "little")


def or_one_line(read, directory):
    """What `read` makes of a directory, or None after one line."""
    try:
        return read(directory)
    except InputError as error:
        message = str(error)
    assert len(message.splitlines()) == 1
    return None


def tensor_bytes(directory):
    files = CheckpointFiles(directory)
    return {name: files.read(name).tobytes() for name in files.tensors}


def test_a_file_cut_anywhere_is_refused(scratch):
    directory, weights = scratch
    for length in range(len(weights)):
        (directory / "model.safetensors").write_bytes(weights[:length])
        with pytest.raises(InputError, match="no whole safetensors file"):
            load_directory(directory)


@pytest.mark.network
def test_a_flipped_bit_of_the_header_is_refused_or_harmless(scratch):
    # Harmless is a flip in the free metadata, or in an insignificant blank. All bits of the length and of every seventh
    # byte, one of each other.
    directory, weights = scratch
    expected = tensor_bytes(directory)
    harmless = 0
    for position in range(header_end(weights)):
        for bit in range(8) if position < 8 or position % 7 == 0 else [5 * position % 8]:
            flipped = bytearray(weights)
            flipped[position] ^= 1 << bit
            (directory / "model.safetensors").write_bytes(flipped)
            tensors = or_one_line(tensor_bytes, directory)
            if tensors is not None and set(tensors) != set(expected):
                # Another name in a well-formed header: the network now lacks a tensor.
                assert or_one_line(load_directory, directory) is None
            elif tensors is not None:
                assert tensors == expected
                harmless += 1
    assert 0 < harmless < 100


@pytest.mark.network
def test_garbage_is_refused(scratch):
    directory, weights = scratch
    rng = np.random.default_rng(5)
    for _ in range(300):
        data = bytearray(weights)
        start = int(rng.integers(header_end(weights)))
        length = int(rng.integers(2, 40))
        data[start : start + length] = rng.bytes(length)
        (directory / "model.safetensors").write_bytes(data)
        or_one_line(load_directory, directory)
        (directory / "model.safetensors").write_bytes(rng.bytes(length * 9))
        assert or_one_line(load_directory, directory) is None


def header_with(weights, edit):
    end = header_end(weights)
    header = json.loads(weights[8:end])
    edit(header)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + weights[end:]


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "BF16", "shape": [5, 4], "data_offsets": [0, 2**63]},
        {"dtype": "BF16", "shape": [5, 4], "data_offsets": [8, 0]},
        {"dtype": "BF16", "shape": [2**40, 2**40], "data_offsets": [0, 40]},
        {"dtype": "BF16", "shape": [-5, -4], "data_offsets": [0, 40]},
        {"dtype": "BF16", "shape": "5", "data_offsets": [0, 40]},
        {"dtype": "BF16", "shape": [5, 4], "data_offsets": [4, 44]},
        {"dtype": "BF17", "shape": [5, 4], "data_offsets": [0, 40]},
        {"shape": [5, 4]},
        [],
        None,
    ],
)
def test_a_lying_header_is_refused(entry, scratch):
    directory, weights = scratch
    lie = header_with(weights, lambda header: header.update({"model.embed_tokens.weight": entry}))
    (directory / "model.safetensors").write_bytes(lie)
    assert or_one_line(load_directory, directory) is None


WEIRD = (None, True, "x", "", [], [1], {}, {"a": {}}, -1, 0, 1.5, 64.0, 1e-400, 10**400, float("nan"), float("inf"))


@pytest.mark.network(1)
@pytest.mark.parametrize("extra", [{}, {"rope_scaling": {"rope_type": "llama3"}}], ids=["plain", "scaled"])
def test_any_value_in_config_json_is_read_or_refused(extra, good, scratch):
    directory, _ = scratch
    raw = json.loads((good / "config.json").read_text()) | extra
    keys = [*raw, "rope_scaling", "rope_parameters", "layer_types", "quantization_config", "partial_rotary_factor"]
    for key in keys:
        for value in WEIRD:
            (directory / "config.json").write_text(json.dumps(raw | {key: value}))
            model = or_one_line(load_directory, directory)
            assert model is None or model.config.hidden_size == 4
