"""Targets that share exponents in blocks, in the objective: the gradient in every knob, and drafts that stay their part."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import Case, Workload, catalog
from jaxspec.compress.knobs import Knobs
from jaxspec.compress.schemes import SCHEMES
from jaxspec.compress.weights import target_network
from jaxspec.models.config import DecoderConfig
from jaxspec.models.stored import as_stored
from jaxspec.tuning.calibration import calibrate
from jaxspec.tuning.objective import mean_log_speedup, measure, price

pytestmark = pytest.mark.network

SCHEME = SCHEMES["cassandra2"]
CONFIG = DecoderConfig(
    vocab_size=11,
    hidden_size=18,
    intermediate_size=26,
    num_layers=2,
    num_heads=3,
    num_kv_heads=1,
    head_dim=6,
    shared_kv_exponents=SCHEME.facts.shared_exponents,
)
COLUMNS = np.array([CONFIG.matrix_shape(kind)[1] for kind in CONFIG.matrix_kinds])
MATRICES = (CONFIG.num_layers, len(CONFIG.matrix_kinds))


def knobs_at(seed):
    """Ratios away from half-way values of a row, widths away from whole numbers and half-integers."""
    rng = np.random.default_rng(seed)
    offset = lambda shape: rng.uniform(0.1, 0.4, shape) * rng.choice([-1, 1], shape)
    width = lambda shape: jnp.asarray(rng.integers(1, 7, shape) + offset(shape))
    values = {
        "weight_prune": jnp.asarray((rng.integers(1, np.floor(0.9 * COLUMNS), MATRICES) + offset(MATRICES)) / COLUMNS),
        "weight_cut_bits": width(MATRICES),
        "kv_prune": jnp.asarray((rng.integers(1, 5, 2) + offset(2)) / 6),
        "kv_cut_bits": width(2),
    }
    return Knobs(values=values, draft_length_logits=jnp.asarray(rng.standard_normal(3)), scheme=SCHEME)


@pytest.mark.usefixtures("x64")
def test_gradient_in_every_knob(gradient_check, random_network):
    network = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), random_network(CONFIG, 0, sharpness=2.0))
    tokens = np.random.default_rng(1).integers(11, size=(3, 22)).astype(np.int32)
    calibration = calibrate(target_network(SCHEME, as_stored(network)), CONFIG, tokens, scheme=SCHEME, first=4)
    wide = jax.tree.map(lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x, calibration)
    pricing = Case(
        catalog.device("jetson-agx-orin"),
        catalog.architecture("llama-3.1-8b"),
        Workload(batch=2.0, context_tokens=900.0),
    )

    def loss(knobs, temperature):
        found = measure(wide, knobs, windows=jnp.array([2, 0]), offset=1, soft_temperature=temperature)
        return -mean_log_speedup(price(pricing, found, 0.05), knobs.draft_length_logits)

    check = gradient_check(loss, step=1e-5)
    for seed, temperature in ((0, 0.3), (1, 0.1)):
        gradient = check(knobs_at(seed), jnp.asarray(temperature))
        for name, value in (gradient.values | {"draft_length_logits": gradient.draft_length_logits}).items():
            assert np.all(np.abs(value) > 1e-9), f"{name} is not felt"
