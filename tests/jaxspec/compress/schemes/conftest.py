"""A small network with odd sizes, its calibration and its cache: what schemes are tried on."""

import jax.numpy as jnp
import numpy as np
import pytest
from scheme_network import CONFIG

from jaxspec.compress.kv import round_kv
from jaxspec.models.kv_cache import KVCache


@pytest.fixture(scope="module")
def target(random_network):
    return random_network(CONFIG, 0)


@pytest.fixture(scope="module")
def norms():
    rng = np.random.default_rng(4)
    sizes = {"qkv": 18, "o": 18, "gate_up": 18, "down": 26}
    found = {name: jnp.asarray(rng.uniform(0.3, 3, (2, size)), jnp.float32) for name, size in sizes.items()}
    return found | {"lm_head": jnp.asarray(rng.uniform(0.3, 3, 18), jnp.float32)}


@pytest.fixture(scope="module")
def cache():
    rng = np.random.default_rng(5)

    def rows():
        """Six magnitudes in any order, so far apart that no coding makes two of a token equal."""
        magnitude = rng.permuted(np.tile(0.4 + 0.35 * np.arange(6), (2, 3, 1, 5, 1)), axis=-1)
        return magnitude * rng.choice([-1, 1], magnitude.shape) + rng.uniform(-0.1, 0.1, magnitude.shape)

    stored = lambda values: round_kv(jnp.asarray(values, jnp.float32))
    return KVCache(key=stored(rows().swapaxes(-1, -2)), value=stored(rows()))
