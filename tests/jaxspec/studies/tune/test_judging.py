"""Drafts that come near each other at one offset of cycles are elected at several."""

from types import SimpleNamespace

import jax.numpy as jnp
import pytest

from jaxspec.compress import DEFAULT_SCHEME, uniform_knobs
from jaxspec.models import DecoderConfig
from jaxspec.studies.tune import judging
from jaxspec.studies.tune.judging import Judge, Judged

NETWORK = DecoderConfig(
    vocab_size=256, hidden_size=16, intermediate_size=24, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=6
)


class Drafts:
    """Measurements by pruning ratio: at one offset, and at all of them."""

    def __init__(self, once, everywhere):
        self.once, self.everywhere, self.asked = once, everywhere, []

    work = SimpleNamespace(setup=SimpleNamespace(bytes_per_token=1.0))

    @staticmethod
    def _ratio(knobs):
        return round(float(jnp.mean(knobs.values["weight_prune"])), 3)

    def measured(self, knobs):
        return self.measurement(self.once[self._ratio(knobs)])

    def measured_at(self, knobs, offsets):
        assert offsets > 1
        self.asked.append(self._ratio(knobs))
        return self.measurement(self.everywhere[self._ratio(knobs)])

    @staticmethod
    def measurement(number):
        return SimpleNamespace(kl=number, cross_entropy=1.0, footprint=None, speedup=number)


@pytest.fixture
def elect(monkeypatch):
    monkeypatch.setattr(judging, "best_length", lambda pricing, measured: (3, measured.speedup))
    monkeypatch.setattr(judging, "mean_draft_bits", lambda footprint: 4.0)

    def run(once, everywhere, **limits):
        drafts = Drafts(once, everywhere)
        config = SimpleNamespace(objective="speedup", max_kl=None, max_bits_per_byte=None, draft_bits=None)
        config.__dict__.update(limits)
        candidates = [uniform_knobs(DEFAULT_SCHEME, NETWORK, {"weight_prune": ratio}) for ratio in once]
        return Judge(config, drafts).best(None, candidates), drafts

    return run


def test_near_ones_are_told_apart_everywhere_and_far_ones_are_not_measured_again(elect):
    found, drafts = elect({0.1: 2.00, 0.2: 1.97, 0.3: 1.5}, {0.1: 1.90, 0.2: 1.95, 0.3: 9.0})
    assert isinstance(found, Judged)
    assert Drafts._ratio(found.knobs) == 0.2
    assert found.speedup == 1.95
    assert found.knobs.draft_length == 3
    assert drafts.asked == [0.1, 0.2]


def test_the_first_wins_a_tie(elect):
    found, _ = elect({0.4: 2.0, 0.1: 2.0}, {0.4: 1.9, 0.1: 1.9})
    assert Drafts._ratio(found.knobs) == 0.4


def test_what_oversteps_a_limit_loses(elect):
    """KL is the made-up number: 2.0 is twice the limit, 0.99 within it, 1.015 within the allowance for rounding."""
    found, drafts = elect({0.1: 2.0, 0.2: 0.99, 0.3: 1.015}, {0.1: 2.0, 0.2: 0.99, 0.3: 1.015}, max_kl=1.0)
    assert Drafts._ratio(found.knobs) == 0.3
    assert drafts.asked == [0.2, 0.3]
