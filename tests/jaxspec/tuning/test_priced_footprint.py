"""Bits of projections of linear attention count for those of attention, by their weights in the priced architecture."""

import jax.numpy as jnp
import pytest

from hwmodels import Footprint, catalog, parameters
from jaxspec.tuning.objective import priced_footprint

HYBRID = {
    "q": 4.0,
    "k": 5.0,
    "v": 6.0,
    "o": 7.0,
    "in_qkv": 8.0,
    "in_z": 9.0,
    "out": 10.0,
    "gate": 3.0,
    "up": 3.5,
    "down": 3.25,
}


def measured(bits, layers=2):
    of_layers = {kind: jnp.full(layers if kind in "q k v o" else 3 * layers, value) for kind, value in bits.items()}
    more = {kind: value + 1 for kind, value in of_layers.items()}
    return Footprint(of_layers, more, jnp.array([6.0]), jnp.array([16.0]))


def test_a_hybrid_by_hand():
    priced = catalog.architecture("qwen3.5-27b")
    found = priced_footprint(measured(HYBRID), priced)
    # 16 layers with 24 queries of 256 and as many gates, 4 keys and values; 48 with 16 keys and 48 values of 128, 2 x 48 rates.
    rows = {"query": 2 * 24 * 256, "key": 4 * 256, "keys": 16 * 128, "values": 48 * 128}
    queries = 16 * rows["query"] * 4.0 + 48 * (rows["keys"] * 8.0 + rows["values"] * 9.0 + 96 * 16.0)
    weights = 16 * rows["query"] + 48 * (rows["keys"] + rows["values"] + 96)
    assert float(found.draft_weight_bits["q"]) == pytest.approx(queries / weights, rel=1e-6)
    assert weights * 5120 == parameters(priced)["q"]
    keys = (16 * rows["key"] * 5.0 + 48 * rows["keys"] * 8.0) / (16 * rows["key"] + 48 * rows["keys"])
    assert float(found.draft_weight_bits["k"]) == pytest.approx(keys, rel=1e-6)
    values = (16 * rows["key"] * 6.0 + 48 * rows["values"] * 8.0) / (16 * rows["key"] + 48 * rows["values"])
    assert float(found.draft_weight_bits["v"]) == pytest.approx(values, rel=1e-6)
    # All rows of these are as long: 24 heads of 256 or 48 of 128.
    assert float(found.draft_weight_bits["o"]) == pytest.approx((16 * 7.0 + 48 * 10.0) / 64, rel=1e-6)
    assert float(found.target_weight_bits["o"]) == pytest.approx((16 * 8.0 + 48 * 11.0) / 64, rel=1e-6)
    assert (found.draft_weight_bits["gate"], found.draft_weight_bits["down"]) == (3.0, 3.25)
