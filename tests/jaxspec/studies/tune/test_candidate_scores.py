"""Candidates are scored on validation text, at several offsets of cycles."""

import dataclasses
import importlib
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.compress import DEFAULT_SCHEME, uniform_knobs
from jaxspec.models import DecoderConfig
from jaxspec.runs import Reporter
from jaxspec.runs.directory import RunDirectory
from jaxspec.settings import build_config
from jaxspec.studies.measured.run_context import begin_run
from jaxspec.studies.tune.config import TuneConfig
from jaxspec.studies.tune.run import CandidateScorer, ScoredCandidate, tune_drafts, tuning_windows, validation_drafts
from jaxspec.tuning.calibration import calibration_pass
from jaxspec.tuning.compression_objective import measured_windows

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
        return self.measurement(self.numbers[self._ratio(knobs)])

    def measured_at(self, knobs, offsets):
        assert offsets > 1
        self.asked.append(self._ratio(knobs))
        return self.measured(knobs)

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


@pytest.mark.study
def test_validation_windows_lie_between_tuning_windows(tiny_model, small, some_text, tmp_path):
    config = build_config(TuneConfig, small | {"model": str(tiny_model), "text": str(some_text), "prompt_tokens": 8})
    with RunDirectory("tune", config, inputs={}, out=tmp_path / "run") as directory:
        work = begin_run(config, directory, Reporter())
        drafts = tune_drafts(config, work)
        validation = validation_drafts(config, drafts)
        texts = [
            b"".join(bytes(row.astype(np.uint8)) for row in each.work.setup.calibration_prompts)
            for each in (drafts, validation)
        ]
        assert len(validation.work.setup.calibration_prompts) == config.calibration_prompts - 1
        # Every line of the text is numbered, so that no three of its tokens in a row with a number are twice there.
        lines = [set(re.findall(rb"line \d+:", text)) for text in texts]
        assert all(lines)
        assert not lines[0] & lines[1]
        on_tuning = drafts.measure(knobs := uniform_knobs(DEFAULT_SCHEME, drafts.work.setup.config))
        programs = [program._cache_size() for program in (calibration_pass, measured_windows)]
        on_validation = validation.measured_at(knobs, 2)
        # One window fewer is measured by the programs of as many, and alike.
        assert [program._cache_size() for program in (calibration_pass, measured_windows)] == programs
        assert validation.calibration.num_windows == drafts.calibration.num_windows
        of_fewer = dataclasses.replace(validation, padded_windows=None).measured_at(knobs, 2)
        again = [program._cache_size() for program in (calibration_pass, measured_windows)]
        assert again == [count + 1 for count in programs]
        for found, expected in zip(jax.tree.leaves(on_validation), jax.tree.leaves(of_fewer), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5)
        assert float(on_validation.kl) != float(on_tuning.kl)
        assert validation.calibration.prepared is drafts.calibration.prepared
        assert not np.array_equal(validation.text, drafts.text[:-1])
        np.testing.assert_array_equal(tuning_windows(config, drafts), np.arange(config.calibration_prompts))
        # A text that is too short for windows between: every third validates, and passes see the others.
        many = dataclasses.replace(config, calibration_prompts=60)
        np.testing.assert_array_equal(tuning_windows(many, drafts), [0, 1, 3])
        own = drafts.work.setup.calibration_prompts
        np.testing.assert_array_equal(validation_drafts(many, drafts).work.setup.calibration_prompts, own[2:3])
