"""Steps of this machine, predicted and timed: any dense network, weights as it decodes."""

import json
from importlib import resources

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import host_steps
from jaxspec.errors import InputError
from jaxspec.runs.progress import Reporter
from jaxspec.studies.calibrate.programs import dense_config, random_params
from jaxspec.studies.calibrate.run import dense_network

SHAPE = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
}


@pytest.fixture
def shape(tmp_path):
    """A config.json."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SHAPE), encoding="utf-8")
    return str(path)


def test_large_networks_are_drawn_in_the_format_that_they_are_held_in(shape):
    network = dense_network(shape)
    config = dense_config(network, 2, 96)
    drawn = random_params(config, "bfloat16")
    assert {leaf.dtype.itemsize for leaf in jax.tree.leaves(drawn)} == {2}
    values = jnp.asarray(drawn["layers"]["down"].values(), jnp.float32)
    assert np.std(values) == pytest.approx(48**-0.5, rel=0.1)  # rows of unit gain
    np.testing.assert_array_equal(np.asarray(drawn["layers"]["mlp_norm"].values(), np.float32), 1.0)
    assert not np.array_equal(values[0], values[1])  # no layer is another's copy


@pytest.mark.device_matrix
@pytest.mark.parametrize(("most_weights", "bits"), [(1 << 26, 32.0), (1000, 16.0)])
def test_steps_of_any_dense_network(monkeypatch, tmp_path, shape, most_weights, bits):
    monkeypatch.setattr(host_steps, "SMALL", most_weights)
    monkeypatch.setattr(host_steps, "BATCHES", (2,))
    monkeypatch.setattr(host_steps, "WIDTHS", (1, 3))
    out = tmp_path / "steps.json"
    device = resources.files("hwmodels") / "catalog/devices/rtx-4090.toml"
    found = host_steps.run(str(device), 3, out, Reporter(), name=shape, with_cycles=False)
    assert found["weight_bits"] == bits
    assert [(row["batch"], row["width"]) for row in found["rows"]] == [(2, 1), (2, 3)]
    assert all(row["measured_s"] > 0 and row["cycle_s"] is None for row in found["rows"])
    before = json.loads(out.read_text(encoding="utf-8"))["rows"]  # written before the clock ran
    assert [row["predicted_s"] for row in before] == [row["predicted_s"] for row in found["rows"]]
    assert not any("measured_s" in row for row in before)


def test_networks_of_other_layers_are_refused(tmp_path):
    with pytest.raises(InputError, match="dense networks"):
        host_steps.run(str(tmp_path / "none.toml"), 3, None, Reporter(), name="qwen3-30b-a3b")
    assert not list(tmp_path.iterdir())
