"""What large networks need, forced upon a small one: layers computed again, blocks of rows, pieces of tokens and vocabulary."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1_CODED
from jaxspec.models.config import DecoderConfig
from jaxspec.models.matrix import stack_of
from jaxspec.speculate.sampling import Decoding
from jaxspec.tuning.calibration import calibrate, target_params
from jaxspec.tuning.compression_objective import measure_hard
from jaxspec.tuning.objective import measure

pytestmark = pytest.mark.network

# A prime vocabulary, and matrices of 18, 12, 6 and 27 rows, which divide into blocks of unequal numbers.
CONFIG = DecoderConfig(
    vocab_size=23, hidden_size=18, intermediate_size=27, num_layers=3, num_heads=2, num_kv_heads=1, head_dim=6
)
FIRST, WINDOWS = 3, jnp.array([2, 0])

#: Every limit of a size, so low that the small network is a large one.
LIMITS = {
    "jaxspec.tuning.objective._KEPT_BYTES": 0,
    "jaxspec.compress.rematerialised._BLOCK": 60,
    "jaxspec.speculate.acceptance._LOGITS": 23 * 5,
    "jaxspec.models.matrix._PIECE": 18 * 4,
    "jaxspec.models.matrix._FEW_ROWS_PIECE": 18 * 4,
    "jaxspec.tuning.calibration._PASS_BYTES": 4 * 36 * 24 * 2,
}


@pytest.fixture(scope="module")
def calibration(random_network):
    tokens = np.random.default_rng(1).integers(23, size=(3, 24)).astype(np.int32)
    params = target_params(random_network(CONFIG, 0, sharpness=2.0))
    return calibrate(params, CONFIG, tokens, scheme=CASSANDRA1_CODED, first=FIRST)


@pytest.fixture(scope="module")
def knobs():
    return uniform_knobs(
        CASSANDRA1_CODED, CONFIG, weight_prune=0.37, weight_cut_bits=3.4, kv_prune=0.3, kv_cut_bits=2.3
    )


def gradient(calibration, knobs):
    def loss(values):
        found = measure(calibration, knobs.replace_values(**values), windows=WINDOWS, offset=1, soft_temperature=0.2)
        bits = jax.tree.leaves(found.footprint)
        return jnp.sum(found.survival) - found.kl - found.cross_entropy - 0.1 * sum(map(jnp.mean, bits)), found

    # A function of its own, so that nothing is taken from another test's compilation.
    return jax.jit(lambda values: jax.value_and_grad(loss, has_aux=True)(values))(knobs.values)


def assert_near(one, other, rtol=2e-5):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * max(float(np.max(np.abs(b))), 1e-3))


def test_a_step_of_tuning_finds_the_same_in_little_memory(monkeypatch, calibration, knobs):
    plain = gradient(calibration, knobs)
    for name, limit in LIMITS.items():
        monkeypatch.setattr(name, limit)
    assert_near(gradient(calibration, knobs), plain)


def test_hard_drafts_are_measured_alike_in_parts(monkeypatch, calibration, knobs):
    decoding = Decoding(greedy=True, temperature=1.0)
    plain = measure_hard(calibration, knobs, decoding)
    monkeypatch.setattr("jaxspec.tuning.calibration._PASS_BYTES", LIMITS["jaxspec.tuning.calibration._PASS_BYTES"])
    parts = measure_hard(calibration, knobs, decoding)
    for name in ("survival", "kl", "cross_entropy"):
        assert_near(getattr(parts, name), getattr(plain, name))
    assert_near(parts.footprint.draft_weight_bits, plain.footprint.draft_weight_bits)
    # Each part's KV has a codebook of its own.
    assert np.all(np.asarray(parts.footprint.draft_kv_bits) >= np.asarray(plain.footprint.draft_kv_bits) - 1e-5)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_a_product_in_pieces_and_its_gradient(monkeypatch, dtype):
    rng = np.random.default_rng(3)
    x, w = jnp.asarray(rng.standard_normal((2, 5, 18)), jnp.float32), jnp.asarray(rng.standard_normal((23, 18)), dtype)
    weight = jnp.asarray(rng.standard_normal((2, 5, 23)), jnp.float32)
    wide = lambda x: x @ w.astype(jnp.float32).T
    monkeypatch.setattr("jaxspec.models.matrix._FEW_ROWS_PIECE", 18 * 4)
    np.testing.assert_allclose(stack_of(w).dot(x), wide(x), rtol=1e-5, atol=1e-5)
    ours, plain = (
        jax.grad(lambda x, dot=dot: jnp.sum(weight * dot(x)))(x) for dot in (lambda x: stack_of(w).dot(x), wide)
    )
    np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-5)
