"""A network read layer by layer sees what the whole network sees, and reads no weights before their turn."""

import jax
import numpy as np
import pytest

from jaxspec.models import layerwise
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import forward_text
from jaxspec.models.hf_export import save_directory
from jaxspec.models.layerwise import input_squares, open_network

pytestmark = pytest.mark.network

CONFIG = DecoderConfig(
    vocab_size=13,
    hidden_size=12,
    intermediate_size=20,
    num_layers=3,
    num_heads=3,
    num_kv_heads=1,
    head_dim=4,
    qk_norm=True,
    tie_embeddings=True,
)


@pytest.fixture(scope="module")
def stored(tmp_path_factory, random_network):
    params, out = random_network(CONFIG, 5), tmp_path_factory.mktemp("stored")
    save_directory(params, CONFIG, out, max_positions=32)
    return params, out


def test_squares_are_those_of_the_whole_network(stored, monkeypatch):
    params, folder = stored
    tokens = np.random.default_rng(2).integers(13, size=(7, 9)).astype(np.int32)
    whole = jax.jit(lambda tokens: forward_text(params, CONFIG, tokens, keep_activations=lambda x: x).activations)
    expected = {name: np.sum(np.square(np.asarray(x, float)), axis=(1, 2)) for name, x in whole(tokens).items()}
    monkeypatch.setattr(layerwise, "_HIDDEN_BYTES", 4 * 9 * 12 * 5)  # five texts at once, then two
    monkeypatch.setattr(layerwise, "_TEXTS_PER_CALL", 2)
    found = input_squares(open_network(folder), tokens)
    assert set(found) == set(expected)
    for name, squares in found.items():
        assert squares.dtype == np.float64
        np.testing.assert_allclose(squares, expected[name], rtol=2e-6)
