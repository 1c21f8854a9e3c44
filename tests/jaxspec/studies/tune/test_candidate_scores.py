"""Candidates are scored on validation text, at several offsets of cycles."""

import importlib
from types import SimpleNamespace

import jax.numpy as jnp
import pytest

from jaxspec.compress import DEFAULT_SCHEME, uniform_knobs
from jaxspec.models import DecoderConfig
from jaxspec.studies.tune.run import CandidateScorer, ScoredCandidate

NETWORK = DecoderConfig(
    vocab_size=256, hidden_size=16, intermediate_size=24, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=6
)

tuning = importlib.import_module("jaxspec.studies.tune.run")  # the package's `tune` is the function


class Drafts:
    """Measurements by pruning ratio."""

    def __init__(self, numbers):
        self.numbers, self.asked = numbers, []

    work = SimpleNamespace(setup=SimpleNamespace(bytes_per_token=1.0))

    @staticmethod
    def _ratio(knobs):
        return round(float(jnp.mean(knobs.values["weight_prune"])), 3)

    def measured(self, knobs):
        self.asked.append(self._ratio(knobs))
        return self.measurement(self.numbers[self._ratio(knobs)])

    @staticmethod
    def measurement(number):
        return SimpleNamespace(kl=number, cross_entropy=1.0, footprint=None, speedup=number)


@pytest.fixture
def choose(monkeypatch):
    monkeypatch.setattr(tuning, "best_length", lambda pricing, measured: (3, measured.speedup))
    monkeypatch.setattr(tuning, "limited_draft_bits", lambda footprint: [4.0])
    monkeypatch.setattr(tuning, "mean_draft_bits", lambda footprint: 4.0)

    def run(once, elsewhere, **limits):
        validation = Drafts(elsewhere)
        config = SimpleNamespace(objective="speedup", max_kl=None, max_bits_per_byte=None, draft_bits=None)
        config.__dict__.update(limits)
        candidates = [uniform_knobs(DEFAULT_SCHEME, NETWORK, {"weight_prune": ratio}) for ratio in once]
        scorer = CandidateScorer(config, Drafts(once), validation)
        return tuning.best_of([scorer.score(None, knobs) for knobs in candidates]), validation

    return run


def test_validation_text_decides(choose):
    found, drafts = choose({0.1: 2.00, 0.2: 1.90, 0.3: 1.5}, {0.1: 1.90, 0.2: 1.95, 0.3: 1.2})
    assert isinstance(found, ScoredCandidate)
    assert Drafts._ratio(found.knobs) == 0.2
    assert found.speedup == 1.95
    assert found.knobs.draft_length == 3
    assert drafts.asked == [0.1, 0.2, 0.3]


def test_what_oversteps_a_limit_loses(choose):
    """KL is the made-up number: 2.0 is twice the limit, 0.99 within it, 1.015 within the allowance for rounding; validation
    text has no limit."""
    found, drafts = choose({0.1: 2.0, 0.2: 0.99, 0.3: 1.015}, {0.1: 1.0, 0.2: 3.0, 0.3: 3.1}, max_kl=1.0)
    assert Drafts._ratio(found.knobs) == 0.3
    assert drafts.asked == [0.1, 0.2, 0.3]
