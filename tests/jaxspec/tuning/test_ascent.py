"""Ascents by marginal returns: moves worked by hand, known optima, limits, and going on after a stop."""

from functools import partial
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
from jaxspec.tuning.gradient import (
    Ascent,
    Goal,
    Limit,
    Returns,
    ascend,
    between_whole,
    marginal_returns,
    move,
    to_coordinates,
)

CONFIG = DecoderConfig(
    vocab_size=8, hidden_size=8, intermediate_size=8, num_layers=2, num_heads=1, num_kv_heads=1, head_dim=8
)
STEPS = 8
START = uniform_knobs(DEFAULT_SCHEME, CONFIG, {"weight_prune": 0.3, "weight_cut_bits": 3.0})
CUT = 7 * np.log(4)  # growth of losses over the whole range
GOAL = Goal(windows_per_step=1)


class Kept:
    """States of an ascent in memory."""

    def __init__(self):
        self.state = None

    def last(self, like):
        assert self.state is None or jax.tree.structure(self.state) == jax.tree.structure(like)
        return self.state

    def save(self, step, state):
        self.state = jax.tree.map(np.array, state)


def ascent(**changes):
    return Ascent(**({"steps": STEPS, "learning_rate": 1.0, "seed": 0, "tied": False} | changes))


def returns_of(places, loss, gain, bits=(), others=()):
    """Returns where knobs without numbers gain and lose nothing."""
    none = {name: np.zeros_like(place) for name, place in places.items()}
    loss = {name: -np.broadcast_to(value, none[name].shape) for name, value in loss.items()}
    gain = {name: np.broadcast_to(value, none[name].shape) for name, value in gain.items()}
    return Returns(places, none | loss, none | gain, list(bits), list(others), np.zeros(3))


def separable(optimum, noise=0.0, seed=0):
    """Returns of an objective whose losses grow exponentially, with noise, and balance at an optimum of weight_cut_bits."""
    rng = np.random.default_rng(seed)

    def measured(knobs, *_, **others):
        places = jax.tree.map(np.asarray, between_whole(to_coordinates(knobs), DEFAULT_SCHEME))
        loss = np.exp(CUT * (places["weight_cut_bits"] - optimum)) * np.exp(noise * rng.standard_normal(optimum.shape))
        return returns_of(places, {"weight_cut_bits": loss}, {"weight_cut_bits": 1.0})

    return measured


def test_a_move_by_hand():
    places = jax.tree.map(np.asarray, between_whole(to_coordinates(START), DEFAULT_SCHEME))
    np.testing.assert_allclose(places["weight_cut_bits"], 3.5 / 7, rtol=1e-6)
    # A kind loses twice what it gains, another half of it, both alike in all layers; the rest lose what they gain.
    loss = np.ones((2, len(CONFIG.matrix_kinds)))
    loss[:, 0], loss[:, 1] = 2.0, 0.5
    coordinates = jax.tree.map(np.asarray, to_coordinates(START))
    moved = move(
        coordinates,
        returns_of(places, {"weight_prune": loss}, {"weight_prune": 1.0}),
        0.5,
        ascent(),
        GOAL,
        DEFAULT_SCHEME,
    )
    start = 0.3 / 0.95
    np.testing.assert_allclose(moved["weight_prune"][:, 0], start - 0.5 * np.log(2) / 5, rtol=1e-5)
    np.testing.assert_allclose(moved["weight_prune"][:, 1], start + 0.5 * np.log(2) / 5, rtol=1e-5)
    np.testing.assert_allclose(moved["weight_prune"][:, 2:], start, rtol=1e-5)
    np.testing.assert_array_equal(moved["kv_prune"], coordinates["kv_prune"])


def test_one_matrix_moves_less_than_its_noise_says():
    places = jax.tree.map(np.asarray, to_coordinates(START))
    loss = np.ones((2, len(CONFIG.matrix_kinds)))
    loss[0, 3] = 1e6  # beyond what is believed
    after = lambda loss: move(
        places, returns_of(places, loss, {"weight_prune": 1.0}), 1.0, ascent(), GOAL, DEFAULT_SCHEME
    )
    moved = after({"weight_prune": loss})["weight_prune"]
    assert np.all(moved >= places["weight_prune"] - gradient._LARGEST / 5 - 1e-6)
    negative = after({"weight_prune": -loss})["weight_prune"]
    assert np.all(np.isfinite(negative))
    assert np.all(negative >= places["weight_prune"])


@pytest.mark.parametrize("noise", [0.0, 0.8])
def test_an_ascent_ends_at_the_optimum_of_separable_losses(noise):
    rng = np.random.default_rng(3)
    optimum = np.broadcast_to(rng.uniform(0.3, 0.8, len(CONFIG.matrix_kinds)), (2, len(CONFIG.matrix_kinds)))
    found = ascend(None, None, START, GOAL, ascent(steps=30), program=separable(optimum, noise))
    bits = 7 * found.path["weight_cut_bits"][-1]
    wrong = np.abs(bits - 7 * optimum)
    assert wrong.max() < (0.05 if noise == 0 else 0.4)
    assert np.abs(bits - 7 * optimum).mean() < np.abs(3.0 - 7 * optimum).mean() / 3


@pytest.mark.parametrize("objective", ["speedup", "kl"])
def test_limits_of_bits_are_kept_as_far_as_a_pass_tells(objective):
    places = jax.tree.map(np.asarray, to_coordinates(START))
    slope = {name: np.zeros_like(place) for name, place in places.items()}
    slope["weight_prune"] = np.full_like(places["weight_prune"], -0.5)
    limited = returns_of(places, {"weight_prune": 1.0}, {"weight_prune": 1.0}, bits=[Limit(np.float32(6.0), slope)])
    goal = Goal(windows_per_step=1, objective=objective, draft_bits=5.3)
    found = move(places, limited, 1.0, ascent(), goal, DEFAULT_SCHEME)
    change = np.sum(slope["weight_prune"] * (found["weight_prune"] - places["weight_prune"]))
    assert 6.0 + change == pytest.approx(5.3, abs=1e-3)


def test_a_limit_of_kl_moves_knobs_back():
    places = jax.tree.map(np.asarray, to_coordinates(START))
    slope = {name: np.zeros_like(place) for name, place in places.items()}
    slope["weight_prune"] = np.full_like(places["weight_prune"], 0.1)
    limited = returns_of(places, {"weight_prune": 1.0}, {"weight_prune": 1.0}, others=[Limit(np.float32(0.2), slope)])
    found = move(places, limited, 1.0, ascent(), Goal(windows_per_step=1, max_kl=0.1), DEFAULT_SCHEME)
    way = found["weight_prune"] - places["weight_prune"]
    assert 0.2 + np.sum(slope["weight_prune"] * np.expm1(5 * way) / 5) == pytest.approx(0.1, abs=1e-3)
    free = move(places, limited, 1.0, ascent(), Goal(windows_per_step=1, max_kl=0.3), DEFAULT_SCHEME)
    np.testing.assert_allclose(free["weight_prune"], places["weight_prune"], rtol=1e-6)


@pytest.mark.parametrize("stop", [1, 3, 7])
def test_an_ascent_that_was_stopped_goes_on_to_the_same_end(stop):
    program = separable(np.linspace(0.3, 0.8, 14).reshape(2, 7))
    climb = partial(ascend, None, None, START, GOAL, ascent(), program=program)
    kept, steps = Kept(), []

    def stopping(step, _):
        if step == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        climb(progress=kept, on_step=stopping)
    again = climb(progress=kept, on_step=lambda step, _: steps.append(step))
    assert steps[0] == max(stop, 1)
    jax.tree.map(np.testing.assert_array_equal, tuple(again), tuple(climb()))


def test_passes_take_all_windows_in_turn_and_fill_up_a_mesh(monkeypatch):
    """Of seven windows a pass takes four; two more have places on three devices along data, and do not count."""

    class StopError(Exception):
        pass

    def measured(*_, windows, counted, **others):
        raise StopError(windows, counted)

    def windows_of(mesh, step):
        calibration = SimpleNamespace(num_windows=7, mesh=mesh)
        with pytest.raises(StopError) as stopped:
            marginal_returns.__wrapped__(
                START, calibration, None, jnp.asarray(3), jnp.asarray(step), Goal(windows_per_step=4)
            )
        return stopped.value.args

    monkeypatch.setattr(gradient, "measure", measured)
    (alone, all_count), (windows, counted) = windows_of(None, 0), windows_of(AbstractMesh((3, 2), AXES), 0)
    assert all_count is None
    np.testing.assert_array_equal(windows, [*alone, alone[3], alone[3]])
    np.testing.assert_array_equal(counted, [1, 1, 1, 1, 0, 0])
    given = jnp.asarray(3), jnp.asarray(0), Goal(windows_per_step=4), jnp.asarray([1, 4, 6])
    with pytest.raises(StopError) as stopped:
        marginal_returns.__wrapped__(START, SimpleNamespace(num_windows=7, mesh=None), None, *given)
    assert sorted(stopped.value.args[0].tolist()) == [1, 4, 6]
    seen = [int(window) for step in range(7) for window in windows_of(None, step)[0]]
    assert sorted(seen) == sorted([*range(7)] * 4)
