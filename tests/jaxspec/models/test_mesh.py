"""A network on a mesh of devices is the same network, to the last accepted token."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxspec.models import DecoderConfig, init_params, save_directory
from jaxspec.studies.measured.memory import STORED, parameter_sizes

pytestmark = pytest.mark.network

CONFIG = DecoderConfig(
    vocab_size=40, hidden_size=16, intermediate_size=24, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=6
)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "tiny"
    save_directory(init_params(CONFIG, jax.random.key(3)), CONFIG, directory, max_positions=128)
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8"  # compiles as quickly as the tests do
    process = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "on_devices.py"), str(directory)],
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def assert_near(ours, theirs):
    """Equal to rounding."""
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), ours, theirs)


def test_matrices_are_split_by_heads_and_channels(found):
    assert set(found["devices"].values()) == {8}
    # Half of the outputs of the first, of the inputs of the last; norms are whole.
    assert [found["parts"][name] for name in ("q", "k", "gate")] == [[2, 12, 16], [2, 6, 16], [2, 12, 16]]
    assert [found["parts"][name] for name in ("o", "down")] == [[2, 16, 12], [2, 16, 12]]
    assert found["parts"]["attention_norm"] == [2, 16]


def test_tokens_are_the_same_on_one_device_and_on_eight(found):
    one, eight = found["one"], found["eight"]
    for name in ("tokens", "cycles", "accepted_at"):
        assert one[name] == eight[name], name
    for name in ("kl", "survival", "bits", "norms"):
        assert_near(eight[name], one[name])


def test_hard_drafts_are_measured_in_the_parts_of_one_device_each_split(found):
    """Three devices along data would each measure all windows of a part of four, which they do not divide."""
    one, six = (found["measured_in_parts"][name] for name in ("one", "six"))
    assert one["rows"] == [4, 4]
    assert six["rows"] == [6, 6]
    assert_near(six["measured"], one["measured"])


def test_each_device_makes_logits_of_its_own_texts(found):
    """Of a piece with two places of each of six texts a device has two texts; it made the logits of all twelve places."""
    assert found["logits"] == 2 * 2


def test_tokens_of_a_mixture_are_the_same_on_one_device_and_on_eight(found):
    assert found["mixture"]["one"] == found["mixture"]["eight"]


def test_each_device_holds_what_is_counted_before_a_run(found):
    """With 2 KV heads attention is split over 2 devices, and whole on each of 4."""
    for tensor, held in found["held"].items():
        assert held == STORED * parameter_sizes(CONFIG, int(tensor))
    attention = 2 * 16 * 6 * (2 * 4 + 2 * 2)
    whole = attention + 5 * 16
    assert parameter_sizes(CONFIG, 4) == whole + (parameter_sizes(CONFIG) - whole) // 4
