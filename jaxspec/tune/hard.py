"""Hard drafts on calibration text: the score by which grid points and tuned drafts are chosen."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxspec.checks import check_temperature
from jaxspec.compress.footprint import PrunedExponents
from jaxspec.compress.knobs import Knobs, harden, uniform_knobs
from jaxspec.models.config import DecoderConfig
from jaxspec.tune.calibration import Calibration
from jaxspec.tune.objective import DraftMeasurement, Pricing, measure, price

#: The uniform grid of the paper (Cassandra, VII-B.2): pruning 30 to 60 % in steps of 10, truncation 0 to 5 bits. The KV
#: cache stays at the default, 0 % and 4 bits.
GRID_PRUNE = (0.3, 0.4, 0.5, 0.6)
GRID_CUT_BITS = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)


class Decoding(NamedTuple):
    """How tokens are chosen."""

    greedy: bool
    temperature: float


@partial(jax.jit, static_argnames=("greedy", "pruned_exponents"))
def _measure_hard(
    calibration: Calibration, knobs: Knobs, temperature: Array, greedy: bool, pruned_exponents: PrunedExponents
) -> DraftMeasurement:
    return measure(
        calibration,
        knobs,
        windows=jnp.arange(calibration.num_windows),
        offset=0,
        soft_temperature=None,
        decode_temperature=temperature,
        greedy=greedy,
        pruned_exponents=pruned_exponents,
    )


def measure_hard(
    calibration: Calibration, knobs: Knobs, decoding: Decoding, pruned_exponents: PrunedExponents
) -> DraftMeasurement:
    """One pass of the bit-exact draft over all calibration windows.

    Raises:
        ValueError: when sampling, a temperature that is not finite and above 0.
    """
    check_temperature(decoding.temperature, decoding.greedy)
    temperature = jnp.asarray(max(decoding.temperature, 1e-6), jnp.float32)
    return _measure_hard(calibration, knobs, temperature, decoding.greedy, pruned_exponents)


price_exactly = jax.jit(price)


def best_length(pricing: Pricing, measured: DraftMeasurement) -> tuple[int, float]:
    """The draft length of 1 or more with the highest speedup, and that speedup (over 16-bit decoding)."""
    speedup = price_exactly(pricing, measured).speedup_vs_bf16_ar[1:]
    return int(jnp.argmax(speedup)) + 1, float(jnp.max(speedup))


def grid_knobs(config: DecoderConfig) -> list[Knobs]:
    """The grid's points, pruning outermost."""
    return [
        uniform_knobs(config, weight_prune=prune, weight_cut_bits=cut) for prune in GRID_PRUNE for cut in GRID_CUT_BITS
    ]


def token_acceptance(survival: Float[Array, " depth"], draft_length: int) -> Float[Array, ""]:
    """alpha_token of a chain: accepted draft tokens over draft tokens reached."""
    reached = jnp.concatenate([jnp.ones(1, survival.dtype), survival[: draft_length - 1]])
    return jnp.sum(survival[:draft_length]) / jnp.sum(reached)


def with_best_length(
    calibration: Calibration, knobs: Knobs, pricing: Pricing, decoding: Decoding, pruned_exponents: PrunedExponents
) -> tuple[Knobs, float]:
    """Hard knobs with the draft length that pays best on calibration text, and the speedup predicted there."""
    knobs = harden(knobs)
    length, speedup = best_length(pricing, measure_hard(calibration, knobs, decoding, pruned_exponents))
    return harden(knobs, draft_length=length), speedup
