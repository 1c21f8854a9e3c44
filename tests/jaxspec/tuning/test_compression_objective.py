"""Cassandra's objective J and its search, against plain counting and a made-up network."""

import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import Case, Footprint, Workload, catalog, kv_elements_per_token, parameters
from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.models.config import DecoderConfig
from jaxspec.tuning.compression_objective import left_bits, num_candidates, objective_j, relative_j, two_stages
from jaxspec.tuning.objective import DraftMeasurement

CONFIG = DecoderConfig(
    vocab_size=11, hidden_size=18, intermediate_size=26, num_layers=2, num_heads=3, num_kv_heads=1, head_dim=6
)
ARCHITECTURE = catalog.architecture("llama-3.1-8b")
#: Of Llama 3.1 8B: 32 layers of 4096, 14336 and 1024 columns; 65536 elements of KV for each token.
WEIGHTS, KV_PER_TOKEN = 32 * (4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336), 65536


def pricing(batch=2.0, context=900.0):
    device = catalog.device("jetson-agx-orin")
    return Case(device, ARCHITECTURE, Workload(batch=batch, context_tokens=context))


def accepted(survival):
    """A measurement of which J looks at nothing but survival."""
    zero = jnp.zeros(())
    return DraftMeasurement(jnp.asarray(survival, jnp.float32), zero, zero, zero, Footprint({}, {}, zero, zero))


def test_sizes_are_those_of_the_network():
    elements = parameters(ARCHITECTURE)
    assert sum(float(elements[kind]) for kind in ("q", "k", "v", "o", "gate", "up", "down")) == WEIGHTS
    assert float(kv_elements_per_token(ARCHITECTURE)) == KV_PER_TOKEN


def test_bits_by_hand():
    # 1000 weights of which 40 % are pruned, 4 of 16 bits cut: 7200 bits; 50 values of the cache, half pruned, 2 cut: 350.
    terms = [(1000.0, left_bits(0.4, 4.0)), (50.0, left_bits(0.5, 2.0))]
    assert float(objective_j(0.9, terms)) == pytest.approx(0.9 / 7550)


def test_by_hand():
    knobs = uniform_knobs(CASSANDRA1, CONFIG, weight_prune=0.4, weight_cut_bits=4, kv_prune=0.25, kv_cut_bits=2)
    # Beyond five drafted tokens nothing counts.
    found = relative_j(pricing(), accepted([0.9, 0.8, 0.7, 0.6, 0.5, 0.1, 0.1, 0.1]), knobs, CONFIG)
    kv = 2 * 900 * KV_PER_TOKEN
    left = WEIGHTS * 0.6 * 12 + kv * 0.75 * 14
    assert float(found) == pytest.approx(0.7 * 16 * (WEIGHTS + kv) / left, rel=1e-5)


@pytest.mark.network
@pytest.mark.parametrize(("batch", "weights_first"), [(1.0, True), (400.0, False)])
def test_the_larger_term_is_searched_first(batch, weights_first):
    priced, seen = pricing(batch=batch, context=4000.0), []

    def measure(knobs):
        row = {name: round(float(value.ravel()[0]), 3) for name, value in knobs.values.items()}
        seen.append(row)
        # Acceptance falls off beyond 50 % and 3 bits of either, steeply enough to stop both searches there.
        beyond = sum(
            max(row[f"{what}_prune"] - 0.5, 0) * 20 + max(row[f"{what}_cut_bits"] - 3, 0) for what in ("weight", "kv")
        )
        return accepted(np.full(8, np.exp(-2 * beyond)))

    score = lambda knobs: float(relative_j(priced, measure(knobs), knobs, CONFIG))
    best = two_stages(CASSANDRA1, CONFIG, priced, score)
    first, other = ("weight", "kv") if weights_first else ("kv", "weight")
    chosen = {f"{what}_{knob}": value for what in (first, other) for knob, value in (("prune", 0.5), ("cut_bits", 3.0))}
    for name, value in chosen.items():
        np.testing.assert_array_equal(best.values[name], value)
    assert len(seen) == num_candidates() == 48
    grid = {(prune, float(cut)) for prune in (0.3, 0.4, 0.5, 0.6) for cut in range(6)}
    defaults = {spec.name: spec.default for spec in CASSANDRA1.knob_specs}
    for rows, moving, still, held in ((seen[:24], first, other, defaults), (seen[24:], other, first, chosen)):
        assert {(row[f"{moving}_prune"], row[f"{moving}_cut_bits"]) for row in rows} == grid
        for knob in ("prune", "cut_bits"):
            assert {row[f"{still}_{knob}"] for row in rows} == {held[f"{still}_{knob}"]}
