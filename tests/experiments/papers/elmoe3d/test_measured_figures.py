"""Axes of elastic drafts: what is read, and how large a draft is, by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.papers.elmoe3d.details import steepening
from experiments.papers.elmoe3d.measured_figures import (
    READINGS,
    Measured,
    cache_hits,
    draft_bytes,
    pool_sizes_of,
    read_network,
)
from hwmodels.networks import ExpertSizes
from jaxspec.models.blocks import Experts
from jaxspec.models.config import DecoderConfig
from jaxspec.models.kv_cache import KVCache
from jaxspec.speculate.acceptance import TargetText
from jaxspec.speculate.hotness import RETENTION

pytestmark = pytest.mark.paper

CONFIG = DecoderConfig(
    vocab_size=5,
    hidden_size=32,
    intermediate_size=4,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    head_dim=4,
    experts=ExpertSizes(num_experts=6, per_token=2, inner_size=32),
    feed_forward=(Experts(),),
)
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def network():
    shapes = {kind: (2, *CONFIG.matrix_shape(kind)) for kind in CONFIG.matrix_kinds}
    layers = {kind: jnp.asarray(RNG.standard_normal(shape), jnp.float32) for kind, shape in shapes.items()}
    chosen = np.stack([RNG.permutation(6)[:2] for _ in range(3 * 9 * 2)]).reshape(3, 9, 2, 2)
    text = TargetText(jnp.zeros((3, 10), jnp.int32), jnp.zeros((3, 6, 32)))
    params = {"layers": layers}
    return Measured(CONFIG, params, params, text, KVCache(key=(), value=()), jnp.asarray(chosen, jnp.int32))


def test_augmentation_reads_closest_and_dedicated_scales_need_no_clipping(network):
    stored = network.stored
    for bits in (2, 4, 6):
        error = {}
        for reading in READINGS:
            draft = read_network(reading, bits, stored, network.target, CONFIG)["layers"]
            error[reading] = float(jnp.mean((draft["expert_up"] - stored["layers"]["expert_up"]) ** 2))
        assert error["augmentation"] < 0.5 * error["truncation"]
    steps = np.asarray(read_network("dedicated", 3, stored, stored, CONFIG)["layers"]["q"])[0, 0]
    assert len(np.unique(np.abs(steps))) <= 4  # 0 to 3 times the scale


def test_sizes_and_bytes_by_hand(network):
    assert pool_sizes_of(network) == [2, 3, 4, 5, 6]
    # Of each layer q and o 8 x 32, k and v 4 x 32 weights, three matrices of 32 x 32 for each of two experts; embedding, head,
    # five norms and two routers in 16 bits.
    matrices, rest = 2 * (2 * 256 + 2 * 128 + 2 * 3 * 1024), 2 * 160 + (2 * 2 + 1) * 32 + 2 * 192
    assert draft_bytes(network, 2, 4) == matrices * 4.5 / 8 + rest * 2


def test_hits_of_small_caches_are_those_of_a_plain_count(network):
    chosen, first = np.asarray(network.chosen), network.text.first
    counted = np.zeros(3)
    for text, layer, query in np.ndindex(3, 2, network.text.hidden.shape[1]):
        at = first + query
        heat = np.zeros(6)
        for token in range(at):
            heat[chosen[text, token, layer]] += RETENTION ** (at - 1 - token)
        order = list(np.argsort(-heat, kind="stable"))
        for expert in chosen[text, at, layer]:
            counted += order.index(expert) < np.arange(1, 4)
    choices = 3 * 2 * network.text.hidden.shape[1] * 2
    rows = cache_hits(network)
    assert [row["cached"] for row in rows] == [1, 2, 3]
    assert [row["hits"] for row in rows] == pytest.approx(list(counted / choices))
    for row in rows:
        assert row["share"] ** row["exponent"] == pytest.approx(row["hits"])


def test_a_power_law_does_not_steepen():
    shares = np.array([0.1, 0.2, 0.4])
    hits = lambda exponents: [{"share": f, "exponent": b} for f, b in zip(shares, exponents, strict=True)]
    assert steepening(hits([0.3] * 3)) == pytest.approx(0.0, abs=1e-12)
    assert steepening(hits(0.3 * shares**-0.15)) == pytest.approx(0.15)
