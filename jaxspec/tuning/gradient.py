"""Ascent over knobs by balancing marginal returns: the same rule for a uniform pair and for every matrix its own.

At the best draft each knob of each matrix gains, moved a little further, as much time as it loses in acceptance. Both marginal
returns of all knobs come from one forward and one backward pass through the soft network, on a few thousand tokens. The error
that a knob makes grows about exponentially along it (each bit cut quadruples it), so a move by log(gain / loss) over the rate
of that growth would balance a knob at once, if its loss had no noise. It has: the loss of one matrix among two hundred takes
more tokens than a pass has. So losses are shrunk toward those of all matrices of the kind, and the t-th move goes 1/t of the
way, which averages what all passes say.

Source: Shoham & Gersho 1988, doi:10.1109/29.90373 (equal slopes); Robbins & Monro 1951, doi:10.1214/aoms/1177729586 (1/t).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.interpreters.partial_eval import dce_jaxpr
from jaxtyping import Array, Float, Int

from hwmodels import Case, SpeculationResult
from hwmodels.numerics import smooth_maximum
from jaxspec.compress.footprint import limited_draft_bits
from jaxspec.compress.knobs import Knobs
from jaxspec.compress.schemes import Scheme
from jaxspec.models.mesh import filled_rows, on_host
from jaxspec.settings.knobs import KnobSpec
from jaxspec.speculate.sampling import SAMPLING
from jaxspec.tuning.calibration import Calibration
from jaxspec.tuning.objective import DraftMeasurement, ObjectiveName, measure, price

#: Temperature of masks and blends while tuning.
_SOFT_TEMPERATURE = 0.1

#: Temperature of the smooth roofline while tuning; reports use the exact one.
_ROOFLINE_TEMPERATURE = 0.05

#: How fast the marginal loss of a knob grows along its whole range, in nats: of bits each quadruples the squared error; of
#: shares of a row, whose smallest values go first, it grows with their square.
_GROWTH_PER_BIT, _GROWTH = math.log(4.0), 5.0

#: How much of the difference between a matrix and its kind is believed, in logarithms: of 2,000 tokens about a third is not
#: noise, of ten passes four fifths.
_BELIEVED = 0.6

#: Marginal losses beyond these factors of their kind's, and kinds beyond these of all, are noise.
_MATRIX_FACTOR, _KIND_FACTOR = 20.0, 10.0

#: Log speedups of draft lengths that are this much below the best one count e times less.
_LENGTH_TEMPERATURE = 0.02

#: Largest log ratio of gain to loss that one move believes.
_LARGEST = 2.0

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
        windows_per_step: windows of calibration text in a pass.
        max_kl: nats per token; max_bits_per_byte; draft_bits: mean bits per weight. None is no constraint. An objective that
            is quality alone needs draft_bits, which it keeps to.
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
        learning_rate: first move, as a share of the one that would balance each knob.
        tied: knobs of matrices, and of experts, are the same for all of them, the head has its own, and knobs of layers stay as
            they start; otherwise each matrix and each layer has its own.
    """

    steps: int
    learning_rate: float
    seed: int
    tied: bool


class Limit(NamedTuple):
    """A measured number that a goal limits.

    Attributes:
        gradient: of the number, in the coordinates.
    """

    value: Float[Array, ""]
    gradient: Coordinates


class Returns(NamedTuple):
    """Marginal returns of all knobs; larger coordinates compress more or less, as the knob is.

    Attributes:
        places: coordinates that they were measured at.
        quality: derivative of the objective by way of what the draft says.
        cost: derivative by way of what it reads: of the log speedup, or of bits per weight where quality is the objective.
        bits, others: limited bits per weight; KL and bits per byte, where they are limited.
        numbers: a row of the history.
    """

    places: Coordinates
    quality: Coordinates
    cost: Coordinates
    bits: list[Limit]
    others: list[Limit]
    numbers: Float[Array, " metric"]


class Ascended(NamedTuple):
    """Soft knobs after each step.

    Attributes:
        path: leaves "step ...".
        history: "step metric" over `HISTORY`.
    """

    path: dict[str, np.ndarray]
    history: np.ndarray


#: Columns of an ascent's history, one row per step.
HISTORY = ("objective", "speedup", "kl")


def to_coordinates(knobs: Knobs) -> Coordinates:
    """Knobs in the unit box."""
    return {s.name: (jnp.asarray(knobs.values[s.name]) - s.low) / (s.high - s.low) for s in knobs.scheme.knob_specs}


def from_coordinates(coordinates: Coordinates | dict[str, np.ndarray], like: Knobs) -> Knobs:
    """Inverse of `to_coordinates`, with the draft length of other knobs."""
    specs = like.scheme.knob_specs
    return like.replace_values(**{s.name: s.low + (s.high - s.low) * jnp.asarray(coordinates[s.name]) for s in specs})


def between_whole(coordinates: Coordinates, scheme: Scheme) -> Coordinates:
    """The same with knobs of whole numbers half-way between two of them.

    There the derivative of a blend is the difference of its two ends; near a whole number it is nearly none, as an error's
    square has no slope where the error begins.
    """

    def half(spec: KnobSpec, place: Array) -> Array:
        way = spec.high - spec.low
        low = jnp.clip(jnp.floor(place * way), 0, way - 1)
        return (low + 0.5) / way

    whole = {spec.name: half(spec, coordinates[spec.name]) for spec in scheme.knob_specs if spec.whole}
    return coordinates | whole


@partial(jax.jit, static_argnames="goal")
def marginal_returns(
    knobs: Knobs,
    calibration: Calibration,
    pricing: Case,
    seed: Int[Array, ""],
    step: Int[Array, ""],
    goal: Goal,
    among: Int[Array, " window"] | None = None,
) -> Returns:
    """What all knobs gain and lose, on windows that depend on the seed and the step alone; passes take all windows in turn.

    Args:
        among: windows that may be taken; None: all.
    """
    key, block = jax.random.key(seed), knobs.draft_length_logits.shape[0]
    among = jnp.arange(calibration.num_windows) if among is None else among
    count = min(goal.windows_per_step, len(among))
    windows = jax.random.permutation(key, among)[(step * count + jnp.arange(count)) % len(among)]
    windows, counted = filled_rows(calibration.mesh, windows)
    offset = jax.random.randint(jax.random.fold_in(key, 1 + step), (), 0, block)
    decoding = dataclasses.replace(SAMPLING, temperature=goal.decode_temperature).for_program()

    def draft(places: Coordinates) -> DraftMeasurement:
        return measure(
            calibration,
            from_coordinates(places, knobs),
            windows=windows,
            counted=counted,
            offset=offset,
            soft_temperature=_SOFT_TEMPERATURE,
            decoding=decoding,
        )

    places = between_whole(to_coordinates(knobs), knobs.scheme)
    measured, derivative = jax.linearize(draft, places)
    back = partial(_pull, derivative, places)
    speedup, slopes = jax.value_and_grad(lambda m: _log_speedup(price(pricing, m, _ROOFLINE_TEMPERATURE)))(measured)
    per_nat = 1 / (math.log(2) * goal.bytes_per_token)
    bits_per_byte = measured.cross_entropy * per_nat
    bits = [Limit(value, back(footprint=slope)) for value, slope in _bits(measured)]
    if goal.objective == "speedup":
        # As acceptance at all positions changes, so does survival at every depth: all tokens of the text say how, where
        # survival itself knows those of the first depths alone.
        depth = jnp.arange(1, block + 1, dtype=jnp.float32)
        by_overlap = jnp.sum(slopes.survival * measured.survival * depth) / measured.overlap
        quality = back(overlap=by_overlap)
        cost = back(footprint=slopes.footprint, pool_share=slopes.pool_share)
        objective = speedup
    else:
        by_kl = goal.objective == "kl"
        quality = back(kl=jnp.float32(-1)) if by_kl else back(cross_entropy=jnp.float32(-per_nat))
        cost = jax.tree.map(lambda *slope: -sum(slope), *(limit.gradient for limit in bits))
        objective = -measured.kl if by_kl else -bits_per_byte
    others = []
    if goal.max_kl is not None:
        others.append(Limit(measured.kl, back(kl=jnp.float32(1))))
    if goal.max_bits_per_byte is not None:
        others.append(Limit(bits_per_byte, back(cross_entropy=jnp.float32(per_nat))))
    numbers = jnp.stack([objective, jnp.exp(speedup), measured.kl])
    return Returns(places, quality, cost, bits if goal.draft_bits is not None else [], others, numbers)


def _pull(derivative: Callable[[Coordinates], Any], places: Coordinates, **slopes: Any) -> Coordinates:
    """Derivatives by the coordinates, of those by some parts of a measurement.

    `jax.vjp` would go back through all layers for what a draft reads, with zeros: it keeps a loop whole. So what these parts do
    not depend on leaves the linear program before it is transposed.

    Args:
        derivative: of a measurement by the coordinates, as `jax.linearize` gives it.
        slopes: by name of the part; None: of a part that there is not.
    """
    parts = lambda at: jax.tree.leaves({name: getattr(derivative(at), name) for name in slopes})
    traced = jax.make_jaxpr(parts)(places)
    needed, _ = dce_jaxpr(traced.jaxpr, [True] * len(traced.jaxpr.outvars), instantiate=True)
    linear = lambda at: jaxpr_as_fun(ClosedJaxpr(needed, traced.consts))(*jax.tree.leaves(at))
    return jax.linear_transpose(linear, places)(jax.tree.leaves(slopes))[0]


def _log_speedup(result: SpeculationResult) -> Float[Array, ""]:
    """Over 16-bit decoding, smoothly the best of draft lengths from 1 on; not to speculate is an answer given at the end."""
    return jnp.log(smooth_maximum(result.speedup_vs_bf16_ar[1:], _LENGTH_TEMPERATURE))


def _bits(measured: DraftMeasurement) -> list[tuple[Array, Any]]:
    """Limited bits per weight, each with its derivative by the footprint."""
    count = len(limited_draft_bits(measured.footprint))
    of = lambda place: jax.value_and_grad(lambda footprint: limited_draft_bits(footprint)[place])(measured.footprint)
    return [of(place) for place in range(count)]


def move(
    coordinates: dict[str, np.ndarray], returns: Returns, share: float, ascent: Ascent, goal: Goal, scheme: Scheme
) -> dict[str, np.ndarray]:
    """Coordinates after one move (host side): so much of the way to where this pass alone would balance all knobs.

    Where limits are overstepped, as far as this pass tells, all knobs move alike in log ratio until they are kept.
    """
    moving = [spec for spec in scheme.knob_specs if not (ascent.tied and spec.per == "layer")]
    ways = {spec.name: _Way(spec, returns, tied=ascent.tied) for spec in moving}
    shifts = dict.fromkeys(ways, 0.0)

    def keep(limit: Limit, most: float, *, exactly: bool, sign: float) -> None:
        """Shift the log ratios of the knobs that a limited number depends on."""
        own = [name for name in ways if np.any(limit.gradient[name])]
        at = lambda shift: (
            float(limit.value)
            + sum(ways[name].change(limit.gradient[name], shifts[name] + sign * shift, curved=sign < 0) for name in own)
        )
        low, high = (-20.0 if exactly else 0.0), 20.0
        if at(low) <= most:
            shifts.update({name: shifts[name] + sign * low for name in own})
            return
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if at(middle) > most else (low, middle)
        shifts.update({name: shifts[name] + sign * high for name in own})

    for limit in returns.bits:
        keep(limit, goal.draft_bits or 0.0, exactly=goal.objective != "speedup", sign=1.0)
    for limit, most in zip(
        returns.others, [m for m in (goal.max_kl, goal.max_bits_per_byte) if m is not None], strict=True
    ):
        keep(limit, most, exactly=False, sign=-1.0)
    wanted = {name: way.target(shifts[name]) for name, way in ways.items()}
    moved = {name: np.clip(coordinates[name] + share * (wanted[name] - coordinates[name]), 0, 1) for name in ways}
    return coordinates | {name: place.astype(np.float32) for name, place in moved.items()}


class _Way:
    """Where one knob of all matrices would go, by one pass."""

    def __init__(self, spec: KnobSpec, returns: Returns, *, tied: bool):
        self._at = np.asarray(returns.places[spec.name], float)
        self._growth = (spec.high - spec.low) * _GROWTH_PER_BIT if spec.whole else _GROWTH
        loss, gain = (np.asarray(tree[spec.name], float) for tree in (returns.quality, returns.cost))
        self._sign = 1.0 if spec.reads_less else -1.0
        self._ratio = _log_ratio(-self._sign * loss, self._sign * gain, tied=tied)

    def target(self, shift: float) -> np.ndarray:
        """Coordinates where gain and loss balance, the log ratio being shifted."""
        ratio = np.clip(self._ratio, -_LARGEST, _LARGEST) + shift
        return np.clip(self._at + self._sign * ratio / self._growth, 0, 1)

    def change(self, gradient: Array, shift: float, *, curved: bool) -> float:
        """Of a number with this derivative on the way there; linear, or growing as losses do."""
        way, growth = self.target(shift) - self._at, self._sign * self._growth
        return float(np.sum(np.asarray(gradient, float) * (np.expm1(growth * way) / growth if curved else way)))


def _log_ratio(loss: np.ndarray, gain: np.ndarray, *, tied: bool) -> np.ndarray:
    """log(gain / loss) of each matrix, shrunk toward its kind.

    A matrix that gains nothing turns back: a bitmap takes more than pruning a few values saves. Where none gains, none moves.
    """
    gains = gain > 0
    if tied:
        loss, gain = (np.broadcast_to(part.sum(), part.shape) for part in (loss, gain))
        gains = gain > 0
    if not gains.any():
        return np.zeros_like(gain)
    mean = lambda **axes: np.sum(loss * gains, **axes) / np.maximum(np.sum(gain * gains, **axes), np.finfo(float).tiny)
    of_all = np.clip(mean(), np.exp(-_LARGEST), np.exp(_LARGEST))
    of_kind = np.clip(mean(axis=0) if gain.ndim else of_all, of_all / _KIND_FACTOR, of_all * _KIND_FACTOR)
    own = np.clip(loss / np.where(gains, gain, 1), of_kind / _MATRIX_FACTOR, of_kind * _MATRIX_FACTOR)
    ratio = -((1 - _BELIEVED) * np.log(of_kind) + _BELIEVED * np.log(own))
    return np.where(gains, ratio, -_LARGEST)


#: `marginal_returns` compiled for one goal; called without it.
Program = Callable[..., Returns]


def compile_returns(
    knobs: Knobs, calibration: Calibration, pricing: Case, goal: Goal, among: Int[np.ndarray, " window"]
) -> Program:
    """`marginal_returns` for arguments of these shapes, be it in a thread: compiling takes as long as many passes."""
    number = jnp.asarray(0)
    given = from_coordinates(to_coordinates(knobs), knobs), calibration, pricing, number, number
    return marginal_returns.lower(*given, goal=goal, among=jnp.asarray(among)).compile()


def ascend(
    calibration: Calibration,
    pricing: Case,
    start: Knobs,
    goal: Goal,
    ascent: Ascent,
    *,
    among: Int[np.ndarray, " window"] | None = None,
    program: Program | None = None,
    progress: Progress | None = None,
    on_step: Callable[[int, float], None] = lambda step, speedup: None,
) -> Ascended:
    """Climb from `start`.

    Args:
        among: windows of calibration text that passes may take; None: all.
        program: of `compile_returns` with the same goal and as many windows; None: compiled with the first step.
        progress: where to save states and resume from.
        on_step: gets the steps done and the current soft speedup.
    """
    program = program or partial(marginal_returns, goal=goal)
    coordinates = {name: np.asarray(on_host(place)) for name, place in to_coordinates(start).items()}
    path = {name: np.zeros((ascent.steps, *place.shape), np.float32) for name, place in coordinates.items()}
    history = np.zeros((ascent.steps, len(HISTORY)), np.float32)
    kept = None if progress is None else progress.last({"step": np.asarray(0), "path": path, "history": history})
    first = 0
    if kept is not None:
        first, history = int(kept["step"]), np.array(kept["history"])
        path = {name: np.array(places) for name, places in kept["path"].items()}
        coordinates = {name: places[first - 1] for name, places in path.items()}
    seed, windows = jnp.asarray(ascent.seed), None if among is None else jnp.asarray(among)
    for step in range(first, ascent.steps):
        knobs = from_coordinates(coordinates, start)
        returns = on_host(program(knobs, calibration, pricing, seed, jnp.asarray(step), among=windows))
        coordinates = move(coordinates, returns, ascent.learning_rate / (step + 1), ascent, goal, start.scheme)
        history[step] = returns.numbers
        for name, place in coordinates.items():
            path[name][step] = place
        on_step(step + 1, float(history[step, HISTORY.index("speedup")]))
        if progress is not None and step + 1 < ascent.steps:
            progress.save(step + 1, {"step": np.asarray(step + 1), "path": path, "history": history})
    return Ascended(path, history)
