"""An ascent's bookkeeping, with steps that only move: the mean of its last quarter, its history, and going on after a stop."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh

from jaxspec.compress import DEFAULT_SCHEME
from jaxspec.compress.knobs import uniform_knobs
from jaxspec.models import DecoderConfig
from jaxspec.models.mesh import AXES
from jaxspec.tuning import gradient
from jaxspec.tuning.gradient import Ascent, Goal, ascend, ascend_once, first_state

CONFIG = DecoderConfig(
    vocab_size=8, hidden_size=8, intermediate_size=8, num_layers=2, num_heads=1, num_kv_heads=1, head_dim=8
)
STEPS = 22


class Kept:
    """States of an ascent in memory."""

    def __init__(self):
        self.state = None

    def last(self, like):
        assert self.state is None or jax.tree.structure(self.state) == jax.tree.structure(like)
        return self.state

    def save(self, step, state):
        self.state = jax.tree.map(np.asarray, state)


@pytest.fixture(autouse=True)
def moving(monkeypatch):
    """After step n every number stands at n / STEPS."""

    def step_once(state, *_):
        place = (state.step + 1) / STEPS
        moved = jax.tree.map(lambda leaf: jnp.full_like(leaf, place), state.coordinates)
        return dataclasses.replace(state, coordinates=moved, step=state.step + 1), jnp.full(4, place)

    monkeypatch.setattr(gradient, "ascend_once", step_once)


def climbed(progress=None, on_step=lambda step, speedup: None):
    start = uniform_knobs(DEFAULT_SCHEME, CONFIG)
    ascent = Ascent(steps=STEPS, learning_rate=0.1, seed=0, tied=False)
    return ascend(None, None, start, Goal(windows_per_step=1), ascent, progress=progress, on_step=on_step)


def places(knobs):
    return [np.unique((knobs.values[s.name] - s.low) / (s.high - s.low)) for s in DEFAULT_SCHEME.knob_specs]


def test_the_mean_is_that_of_the_last_quarter():
    found = climbed()
    for last, mean in zip(places(found.last), places(found.mean), strict=True):
        np.testing.assert_allclose(last, [1.0], rtol=1e-6)
        np.testing.assert_allclose(mean, [np.mean(np.arange(17, 23)) / STEPS], rtol=1e-6)
    np.testing.assert_allclose(found.history[:, 0], np.arange(1, STEPS + 1) / STEPS, rtol=1e-6)


@pytest.mark.parametrize("stop", [3, 12, 21])  # before a state was kept, before the last quarter, within it
def test_an_ascent_that_was_stopped_goes_on_to_the_same_end(stop):
    kept, steps = Kept(), []

    def stopping(step, _):
        if step == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        climbed(kept, stopping)
    again, whole = climbed(kept, lambda step, _: steps.append(step)), climbed()
    assert steps[0] == (stop - 1) // 5 * 5 + 1
    jax.tree.map(np.testing.assert_array_equal, tuple(again), tuple(whole))


def test_a_step_fills_up_windows_that_a_mesh_does_not_split(monkeypatch):
    """Of seven windows a step takes four; two more have places on three devices along data, and do not count."""

    class ToldError(Exception):
        pass

    def measured(*_, windows, counted, **others):
        raise ToldError(windows, counted)

    def told(mesh):
        calibration, numbers = SimpleNamespace(num_windows=7, mesh=mesh), map(jnp.asarray, (3, 0.1, 0.5, False))
        state, goal = first_state(uniform_knobs(DEFAULT_SCHEME, CONFIG)), Goal(windows_per_step=4)
        with pytest.raises(ToldError) as stopped:
            ascend_once.__wrapped__(state, calibration, None, *numbers, goal, DEFAULT_SCHEME)
        return stopped.value.args

    monkeypatch.setattr(gradient, "measure", measured)
    (alone, all_count), (windows, counted) = told(None), told(AbstractMesh((3, 2), AXES))
    assert all_count is None
    assert len(set(alone.tolist())) == 4
    np.testing.assert_array_equal(windows, [*alone, alone[3], alone[3]])
    np.testing.assert_array_equal(counted, [1, 1, 1, 1, 0, 0])
