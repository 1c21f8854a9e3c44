"""The trained networks that ship: what they predict on text that they have never seen, and how their routers spread it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.train_embedded.train import bits_per_byte, load_summary, router_load
from jaxspec.models.embedded import load_model
from jaxspec.text.windows import load_text

pytestmark = pytest.mark.network

#: Bits per byte of the first held-out bytes of the snapshot, which a network must stay below.
BOUNDS = {"embedded": 1.6, "embedded-moe": 2.0}


@pytest.fixture(scope="module")
def model():
    return load_model("embedded-moe", dtype=jnp.float32)


@pytest.fixture(scope="module")
def text(model):
    return load_text("stdlib", model.tokenizer).held_out


def score(params, config, text):
    return bits_per_byte(params, text[:4000], config=config, window=256, stride=128)


@pytest.mark.parametrize("name", BOUNDS)
def test_held_out_text_is_predicted(name, text):
    loaded = load_model(name, dtype=jnp.float32)
    assert score(loaded.params, loaded.config, text) < BOUNDS[name]


def broken(params, name, change):
    return {**params, "layers": {**params["layers"], name: change(params["layers"][name])}}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("expert_down", lambda experts: experts[:, ::-1]),  # experts answer for one another
        ("router", lambda router: router[:, ::-1]),  # and so they do here
        ("shared_down", jnp.zeros_like),
    ],
)
def test_a_broken_network_is_above_the_bound(name, change, model, text):
    assert score(broken(model.params, name, change), model.config, text) > BOUNDS["embedded-moe"]


def test_every_router_is_alive_and_uneven(model, text):
    load = router_load(model.params, text[: 8 * 512], config=model.config, batch=8)
    np.testing.assert_allclose(load.sum(axis=1), model.config.experts.per_token, rtol=1e-5)
    summary = load_summary(load)
    mean = model.config.experts.per_token / model.config.experts.num_experts
    # No expert is dead, none is in everyone's way, and they are not all alike.
    assert np.all(summary.least > 0.1 * mean)
    assert np.all(summary.most < 4 * mean)
    assert np.all(summary.most > 1.2 * mean)
    assert np.all(summary.entropy > 4.5)


def test_a_file_of_at_most_twelve_megabytes(model):
    assert (model.directory / "model.safetensors").stat().st_size <= 12_000_000
    assert sum(leaf.size for leaf in jax.tree.leaves(model.params)) == model.config.num_parameters()
