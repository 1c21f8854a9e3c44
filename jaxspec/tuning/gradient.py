"""Gradient ascent over knobs: one definition for a uniform pair and for every matrix its own, with optax and checkpoints.

Knobs are scaled to the unit box and projected back into it after each step. The temperature of masks and blends falls
geometrically, so that the last soft networks are nearly hard. Steps, rates and temperatures are traced, and a uniform pair is
the same program with its knobs tied: one compilation serves every ascent of a run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from jaxspec.compress.footprint import limited_draft_bits
from jaxspec.compress.knobs import Knobs
from jaxspec.compress.schemes import Scheme
from jaxspec.models.mesh import filled_rows, on_host
from jaxspec.speculate.sampling import SAMPLING
from jaxspec.tuning.calibration import Calibration
from jaxspec.tuning.objective import DraftMeasurement, ObjectiveName, Pricing, mean_log_speedup, measure, price

#: Temperature of masks and blends, first and last step.
_TEMPERATURES = (0.3, 0.05)

#: Temperature of the smooth roofline while tuning; reports use the exact one.
_ROOFLINE_TEMPERATURE = 0.05

#: Weight of a violated constraint, relative to its limit, against a log speedup.
_PENALTY = 20.0

_CHECKPOINT_EVERY = 5

#: Share of the steps, the last ones, whose places are averaged.
_MEAN_SHARE = 0.25

Coordinates = dict[str, Array]


class Progress(Protocol):
    """Where an ascent saves its states."""

    def last(self, like: Any) -> Any | None:
        """The last one, in the form of another; None: there is none."""
        ...

    def save(self, step: int, state: Any) -> None:
        """Save one after so many steps."""
        ...


@dataclasses.dataclass(frozen=True)
class Goal:
    """What to climb; static.

    Attributes:
        max_kl: nats per token; max_bits_per_byte; draft_bits: mean bits per weight. None is no constraint.
        bytes_per_token: of the calibration text.
        decode_temperature: of the smooth acceptance.
    """

    windows_per_step: int
    objective: ObjectiveName = "speedup"
    max_kl: float | None = None
    max_bits_per_byte: float | None = None
    draft_bits: float | None = None
    bytes_per_token: float = 1.0
    decode_temperature: float = 1.0


@dataclasses.dataclass(frozen=True)
class Ascent:
    """How to climb.

    Attributes:
        tied: knobs of matrices, and of experts, are the same for all of them, the head has its own, and knobs of layers stay as
            they start; otherwise each matrix and each layer has its own.
    """

    steps: int
    learning_rate: float
    seed: int
    tied: bool


@struct.dataclass
class AscentState:
    """Everything a resumed ascent needs."""

    coordinates: Coordinates
    opt_state: Any
    step: Int[Array, ""]


class Ascended(NamedTuple):
    """Soft knobs where an ascent ended.

    Attributes:
        mean: of its last quarter of steps.
        history: "step metric" over `HISTORY`.
    """

    last: Knobs
    mean: Knobs
    history: np.ndarray


#: Columns of an ascent's history, one row per step.
HISTORY = ("objective", "speedup", "kl", "temperature")

_ADAM = optax.scale_by_adam(b2=0.95)


_LENGTHS = "draft_length_logits"


def to_coordinates(knobs: Knobs) -> Coordinates:
    """Knobs in the unit box, draft lengths with equal preference."""
    specs = knobs.scheme.knob_specs
    scaled = {s.name: (knobs.values[s.name] - s.low) / (s.high - s.low) for s in specs}
    return scaled | {_LENGTHS: jnp.zeros_like(knobs.draft_length_logits)}


def from_coordinates(coordinates: Coordinates, scheme: Scheme) -> Knobs:
    """Inverse of `to_coordinates`."""
    values = {s.name: s.low + (s.high - s.low) * coordinates[s.name] for s in scheme.knob_specs}
    return Knobs(values=values, draft_length_logits=coordinates[_LENGTHS], scheme=scheme)


def first_state(start: Knobs) -> AscentState:
    """Before the first step."""
    coordinates = to_coordinates(start)
    return AscentState(coordinates=coordinates, opt_state=_ADAM.init(coordinates), step=jnp.asarray(0))


def project(coordinates: Coordinates) -> Coordinates:
    """Back into the unit box; draft-length preferences are free."""
    boxed = {name: value for name, value in coordinates.items() if name != _LENGTHS}
    zeros, ones = optax.tree.zeros_like(boxed), optax.tree.ones_like(boxed)
    return coordinates | optax.projections.projection_box(boxed, zeros, ones)


def tie(gradient: Coordinates, scheme: Scheme) -> Coordinates:
    """The gradient of knobs that move together: the mean for all matrices, and for the experts of all layers; none for knobs of
    layers (the KV cache)."""

    def tied(value: Array, per: str) -> Array:
        return jnp.zeros_like(value) if per == "layer" else jnp.full_like(value, value.mean())

    return gradient | {spec.name: tied(gradient[spec.name], spec.per) for spec in scheme.knob_specs}


def learning_rate_at(step: int, ascent: Ascent) -> float:
    """Cosine decay to a tenth."""
    return float(np.asarray(optax.cosine_decay_schedule(ascent.learning_rate, ascent.steps, alpha=0.1)(step)))


def temperature_at(step: int, ascent: Ascent) -> float:
    """Geometric from the first to the last temperature."""
    first, last = _TEMPERATURES
    return first * (last / first) ** (step / max(ascent.steps - 1, 1))


def objective_value(
    measured: DraftMeasurement, knobs: Knobs, pricing: Pricing, goal: Goal
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """What is climbed (larger is better, constraints as quadratic penalties), and the log speedup beside it."""
    log_speedup = mean_log_speedup(price(pricing, measured, _ROOFLINE_TEMPERATURE), knobs.draft_length_logits)
    bits_per_byte = measured.cross_entropy / (jnp.log(2.0) * goal.bytes_per_token)
    gain = {"speedup": log_speedup, "kl": -measured.kl, "bits_per_byte": -bits_per_byte}[goal.objective]
    limits = (
        (measured.kl, goal.max_kl),
        (bits_per_byte, goal.max_bits_per_byte),
        *((bits, goal.draft_bits) for bits in limited_draft_bits(measured.footprint)),
    )
    for value, limit in limits:
        if limit is not None:
            gain = gain - _PENALTY * jnp.square(jnp.maximum(value / limit - 1.0, 0.0))
    return gain, log_speedup


@partial(jax.jit, static_argnames=("goal", "scheme"))
def ascend_once(
    state: AscentState,
    calibration: Calibration,
    pricing: Pricing,
    seed: Int[Array, ""],
    learning_rate: Float[Array, ""],
    temperature: Float[Array, ""],
    tied: Bool[Array, ""],
    goal: Goal,
    scheme: Scheme,
) -> tuple[AscentState, Float[Array, " metric"]]:
    """One step, and its row of the history; which windows it sees depends on the seed and the step alone."""
    key = jax.random.fold_in(jax.random.key(seed), state.step)
    count = min(goal.windows_per_step, calibration.num_windows)
    windows = jax.random.permutation(key, calibration.num_windows)[:count]
    windows, counted = filled_rows(calibration.mesh, windows)
    block = state.coordinates["draft_length_logits"].shape[0]
    offset = jax.random.randint(jax.random.fold_in(key, 1), (), 0, block)

    def loss(coordinates):
        knobs = from_coordinates(coordinates, scheme)
        measured = measure(
            calibration,
            knobs,
            windows=windows,
            counted=counted,
            offset=offset,
            soft_temperature=temperature,
            decoding=dataclasses.replace(SAMPLING, temperature=goal.decode_temperature).for_program(),
        )
        gain, log_speedup = objective_value(measured, knobs, pricing, goal)
        return -gain, (log_speedup, measured.kl)

    (value, (log_speedup, kl)), gradient = jax.value_and_grad(loss, has_aux=True)(state.coordinates)
    gradient = jax.tree.map(partial(jnp.where, tied), tie(gradient, scheme), gradient)
    direction, opt_state = _ADAM.update(gradient, state.opt_state)
    updates = optax.tree.scale(-learning_rate, direction)
    moved = AscentState(
        coordinates=project(cast(Coordinates, optax.apply_updates(state.coordinates, updates))),
        opt_state=opt_state,
        step=state.step + 1,
    )
    return moved, jnp.stack([-value, jnp.exp(log_speedup), kl, temperature])


def ascend(
    calibration: Calibration,
    pricing: Pricing,
    start: Knobs,
    goal: Goal,
    ascent: Ascent,
    *,
    progress: Progress | None = None,
    on_step: Callable[[int, float], None] = lambda step, speedup: None,
) -> Ascended:
    """Climb from `start`.

    Args:
        progress: where to save states and resume from.
        on_step: told the steps done and the current soft speedup.
    Source of the mean: Polyak & Juditsky 1992, doi:10.1137/0330046; each step sees some of the windows alone, and a mean of
        places errs less than the last of them.
    """
    state = first_state(start)
    history = np.zeros((ascent.steps, len(HISTORY)), np.float32)
    sums = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), state.coordinates)
    first = ascent.steps - max(1, round(_MEAN_SHARE * ascent.steps))  # of the steps whose places are averaged
    kept = None if progress is None else progress.last({"state": state, "history": history, "sums": sums})
    if kept is not None:
        state = jax.tree.map(jnp.asarray, cast(AscentState, kept["state"]))
        history, sums = np.array(kept["history"]), jax.tree.map(np.array, kept["sums"])
    tied, seed = jnp.asarray(ascent.tied), jnp.asarray(ascent.seed)
    for step in range(int(state.step), ascent.steps):
        rate, temperature = jnp.asarray(learning_rate_at(step, ascent)), jnp.asarray(temperature_at(step, ascent))
        state, row = ascend_once(state, calibration, pricing, seed, rate, temperature, tied, goal, start.scheme)
        history[step] = on_host(row)
        if step >= first:
            sums = jax.tree.map(np.add, sums, on_host(state.coordinates))
        on_step(step + 1, float(history[step, HISTORY.index("speedup")]))
        if progress is not None and (step + 1) % _CHECKPOINT_EVERY == 0 and step + 1 < ascent.steps:
            progress.save(step + 1, {"state": state, "history": history, "sums": sums})
    mean = jax.tree.map(lambda total: total / np.float32(ascent.steps - first), sums)
    last, mean = (from_coordinates(places, start.scheme) for places in (on_host(state.coordinates), mean))
    return Ascended(last, mean, history)
