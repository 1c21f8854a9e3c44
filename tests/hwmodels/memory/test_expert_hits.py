"""Rules of hits: what every rule keeps, cases by hand, an LRU cache that is run."""

import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import Routing, step_operators, uniform_weight_bits
from hwmodels.memory import zipf_popularity
from hwmodels.memory.expert_hits import HIT_RULES, CharacteristicTime, EvenHits, PowerLawHits
from hwmodels.network.operators import StepShape
from hwmodels.network.routing import pooled_choices

pytestmark = pytest.mark.device_matrix

RULES = {name: kind(0.4, 0.3) if kind is PowerLawHits else kind() for name, kind in HIT_RULES.items()}


@pytest.fixture
def reads(small):
    """Of a network with 20 experts, 3 for each token, some of them preferred."""
    mixture = small.replace(num_moe_layers=2.0, num_experts=20.0, experts_per_token=3.0, expert_intermediate_size=9.0)

    def build(routing=None, **changes):
        routing = Routing(zipf_popularity(0.9, num_items=20)) if routing is None else routing
        step = {"tokens": 1.0, "batch": 2.0, "context_tokens": 5.0, "kv_bits": 16.0} | changes
        shape = StepShape(weight_bits=uniform_weight_bits(8.5), **step)
        found = step_operators(mixture, shape, routing).experts
        assert found is not None
        return found

    return build


@pytest.mark.parametrize("name", RULES)
def test_what_every_rule_keeps(name, reads, check_gradient):
    rule = RULES[name]
    along = np.array([rule.hit_share(reads(), cached) for cached in (0.0, 0.5, 3.0, 11.0, 19.9, 20.0, 31.0)])
    assert np.all(np.diff(along) >= -1e-6)
    assert (along[0], along[-1], along[-2]) == pytest.approx((0.0, 1.0, 1.0))
    assert np.all((along >= 0) & (along <= 1))
    # Never worse than chance, and a larger batch hits no more often.
    assert float(rule.hit_share(reads(), 6.0)) >= 0.3 - 1e-6
    batches = np.array([rule.hit_share(reads(batch=b), 6.0) for b in (1.0, 2.0, 9.0, 80.0)])
    assert np.all(np.diff(batches) <= 1e-6)
    # A cache that holds a draft's pool never misses; one that holds a part of it does.
    assert float(rule.hit_share(reads(pool_experts=6.0), 6.0)) == pytest.approx(1.0, abs=1e-5)
    assert float(rule.hit_share(reads(pool_experts=6.5), 5.0)) < 1.0
    # A network without experts misses nothing.
    assert float(rule.hit_share(reads().replace(num_experts=0.0, pool=0.0, per_token=0.0), 0.0)) == 1.0
    check_gradient(
        lambda x: rule.hit_share(reads(batch=x[0], tokens=x[1], pool_experts=x[2]), x[3]), (2.3, 1.7, 17.4, 5.6)
    )


def test_power_laws_by_hand(reads):
    assert float(EvenHits().hit_share(reads(), 5.0)) == pytest.approx(0.25)
    assert float(PowerLawHits(0.5).hit_share(reads(batch=7.0), 5.0)) == pytest.approx(0.5)  # (1/4)^(1/2)
    # Sixteen sequences: 1 - (1 - 0.5) / 16^(1/2) = 7/8.
    found = PowerLawHits(0.5, fading=0.5).hit_share(reads(batch=16.0), 5.0)
    assert float(found) == pytest.approx(0.25**0.875, rel=1e-5)


def test_a_pool_is_a_network_of_its_own_experts(reads):
    # Experts outside of the pool are neither asked for nor found, however popular they are elsewhere.
    pooled = reads(pool_experts=8.0)
    inside = pooled_choices(pooled.routing, 20.0, 3.0, 8.0).probability[:8]
    alone = pooled.replace(num_experts=8.0, pool=8.0, routing=Routing(inside / jnp.sum(inside)))
    for cached in (1.0, 3.5, 7.0):
        shares = [float(CharacteristicTime().hit_share(one, cached)) for one in (pooled, alone)]
        assert shares[0] == pytest.approx(shares[1], rel=1e-4)


def test_characteristic_time_against_a_cache_that_is_run(reads):
    """Least recently used experts make room; what a step needs is looked up before it begins."""
    rng, experts, chosen, capacity = np.random.default_rng(0), 20, 3, 9
    order = np.argsort(rng.exponential(size=(30_000, experts)) * np.arange(1, experts + 1) ** 0.9, axis=1)[:, :chosen]
    popularity = np.bincount(order.ravel(), minlength=experts) / order.size
    for batch in (1, 3):
        last, hits, requests = np.zeros(experts), 0, 0
        for step, tokens in enumerate(order.reshape(-1, batch * chosen), start=1):
            wanted = np.unique(tokens)
            held = np.argsort(-last, kind="stable")[:capacity]
            hits, requests = hits + np.isin(wanted, held).sum(), requests + wanted.size
            last[wanted] = step
        step_reads = reads(batch=float(batch), routing=Routing(jnp.asarray(popularity)))
        found = CharacteristicTime().hit_share(step_reads, float(capacity))
        assert float(found) == pytest.approx(hits / requests, abs=0.02)
