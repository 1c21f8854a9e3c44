"""Gradient ascent over knobs: one definition for a uniform pair and for every matrix its own, with optax and checkpoints.

Knobs are scaled to the unit box and projected back into it after each step. The temperature of masks and blends falls
geometrically, so that the last soft networks are nearly hard.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import struct
from jaxtyping import Array, Float, Int

from jaxspec.compress.footprint import PrunedExponents
from jaxspec.compress.knobs import RANGES, Knobs
from jaxspec.tune.calibration import Calibration
from jaxspec.tune.objective import DraftMeasurement, ObjectiveName, Pricing, expected_log_speedup, measure, price

#: Temperature of masks and blends, first and last step.
_TEMPERATURES = (0.3, 0.05)

#: Temperature of the smooth roofline while tuning; reports use the exact one.
_ROOFLINE_TEMPERATURE = 0.05

#: Weight of a violated constraint, relative to its limit, against a log speedup.
_PENALTY = 20.0

_CHECKPOINT_EVERY = 5

Coordinates = dict[str, Array]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How to climb; static.

    Attributes:
        what: "uniform" moves one pruning ratio and one number of cut bits for all matrices (KV as it starts);
            "every" moves each matrix's two knobs and each layer's two KV knobs.
        max_kl: nats per token; max_bits_per_byte; draft_bits: mean bits per weight. None is no constraint.
        bytes_per_token: of the calibration text.
        decode_temperature: of the smooth acceptance.
    """

    what: Literal["uniform", "every"]
    steps: int
    learning_rate: float
    windows_per_step: int
    seed: int
    objective: ObjectiveName = "speedup"
    max_kl: float | None = None
    max_bits_per_byte: float | None = None
    draft_bits: float | None = None
    bytes_per_token: float = 1.0
    decode_temperature: float = 1.0
    pruned_exponents: PrunedExponents = "raw"


@struct.dataclass
class AscentState:
    """Everything a resumed ascent needs.

    Attributes:
        history: "step metric": objective, soft speedup, KL, temperature, of the steps done.
    """

    coordinates: Coordinates
    opt_state: Any
    step: Int[Array, ""]
    history: Float[Array, "step metric"]


HISTORY = ("objective", "speedup", "kl", "temperature")


def to_coordinates(knobs: Knobs, recipe: Recipe) -> Coordinates:
    """Knobs in the unit box; a uniform recipe takes the means."""
    scaled = {name: (getattr(knobs, name) - low) / (high - low) for name, (low, high) in RANGES.items()}
    if recipe.what == "uniform":
        scaled = {name: jnp.mean(scaled[name]) for name in ("weight_prune", "weight_cut_bits")}
    return scaled | {"draft_length_logits": jnp.zeros_like(knobs.draft_length_logits)}


def from_coordinates(coordinates: Coordinates, start: Knobs) -> Knobs:
    """Inverse of `to_coordinates`; what is not among the coordinates stays as it started."""
    fields = {"draft_length_logits": coordinates["draft_length_logits"]}
    for name, (low, high) in RANGES.items():
        if name in coordinates:
            value = low + (high - low) * coordinates[name]
            fields[name] = jnp.broadcast_to(value, getattr(start, name).shape)
    return dataclasses.replace(start, **fields)


def project(coordinates: Coordinates) -> Coordinates:
    """Back into the unit box; draft-length preferences are free."""
    boxed = {name: value for name, value in coordinates.items() if name in RANGES}
    zeros, ones = optax.tree.zeros_like(boxed), optax.tree.ones_like(boxed)
    return coordinates | optax.projections.projection_box(boxed, zeros, ones)


def optimizer(recipe: Recipe) -> optax.GradientTransformation:
    """Adam with a cosine decay to a tenth."""
    return optax.adam(optax.cosine_decay_schedule(recipe.learning_rate, recipe.steps, alpha=0.1), b2=0.95)


def temperature_at(step: Int[Array, ""], recipe: Recipe) -> Float[Array, ""]:
    """Geometric from the first to the last temperature."""
    first, last = _TEMPERATURES
    return first * (last / first) ** (step / max(recipe.steps - 1, 1))


def objective_value(
    measured: DraftMeasurement, knobs: Knobs, pricing: Pricing, recipe: Recipe
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """What is climbed (larger is better, constraints as quadratic penalties), and the log speedup beside it."""
    log_speedup = expected_log_speedup(price(pricing, measured, _ROOFLINE_TEMPERATURE), knobs.draft_length_logits)
    bits_per_byte = measured.cross_entropy / (jnp.log(2.0) * recipe.bytes_per_token)
    gain = {"speedup": log_speedup, "kl": -measured.kl, "bits_per_byte": -bits_per_byte}[recipe.objective]
    limits = (
        (measured.kl, recipe.max_kl),
        (bits_per_byte, recipe.max_bits_per_byte),
        (jnp.mean(measured.weight_bits.draft), recipe.draft_bits),
    )
    for value, limit in limits:
        if limit is not None:
            gain = gain - _PENALTY * jnp.square(jnp.maximum(value / limit - 1.0, 0.0))
    return gain, log_speedup


@partial(jax.jit, static_argnames="recipe")
def ascend_once(
    state: AscentState, calibration: Calibration, pricing: Pricing, start: Knobs, recipe: Recipe
) -> AscentState:
    """One step; which windows it sees depends on the seed and the step alone."""
    key = jax.random.fold_in(jax.random.key(recipe.seed), state.step)
    count = min(recipe.windows_per_step, calibration.num_windows)
    windows = jax.random.permutation(key, calibration.num_windows)[:count]
    offset = jax.random.randint(jax.random.fold_in(key, 1), (), 0, start.draft_length_logits.shape[0])
    temperature = temperature_at(state.step, recipe)

    def loss(coordinates):
        knobs = from_coordinates(coordinates, start)
        measured = measure(
            calibration,
            knobs,
            windows=windows,
            offset=offset,
            soft_temperature=temperature,
            decode_temperature=recipe.decode_temperature,
            pruned_exponents=recipe.pruned_exponents,
        )
        gain, log_speedup = objective_value(measured, knobs, pricing, recipe)
        return -gain, (log_speedup, measured.kl)

    (value, (log_speedup, kl)), gradient = jax.value_and_grad(loss, has_aux=True)(state.coordinates)
    updates, opt_state = optimizer(recipe).update(gradient, state.opt_state, state.coordinates)
    row = jnp.stack([-value, jnp.exp(log_speedup), kl, temperature])
    return AscentState(
        coordinates=project(cast(Coordinates, optax.apply_updates(state.coordinates, updates))),
        opt_state=opt_state,
        step=state.step + 1,
        history=state.history.at[state.step].set(row),
    )


def ascend(
    calibration: Calibration,
    pricing: Pricing,
    start: Knobs,
    recipe: Recipe,
    *,
    manager: ocp.CheckpointManager | None = None,
    on_step: Callable[[int, float], None] = lambda step, speedup: None,
) -> tuple[Knobs, np.ndarray]:
    """Climb from `start`.

    Args:
        manager: where to save progress and resume from.
        on_step: told the steps done and the current soft speedup.
    Returns:
        Soft knobs, and the history (`HISTORY` columns).
    """
    coordinates = to_coordinates(start, recipe)
    state = AscentState(
        coordinates=coordinates,
        opt_state=optimizer(recipe).init(coordinates),
        step=jnp.asarray(0),
        history=jnp.zeros((recipe.steps, len(HISTORY))),
    )
    if manager is not None and manager.latest_step() is not None:
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
        restored = manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(abstract))
        state = cast(AscentState, restored)
    for step in range(int(state.step), recipe.steps):
        state = ascend_once(state, calibration, pricing, start, recipe)
        on_step(step + 1, float(state.history[step, HISTORY.index("speedup")]))
        if manager is not None and (step + 1) % _CHECKPOINT_EVERY == 0 and step + 1 < recipe.steps:
            manager.save(step + 1, args=ocp.args.StandardSave(state))
    return from_coordinates(state.coordinates, start), np.asarray(state.history)
