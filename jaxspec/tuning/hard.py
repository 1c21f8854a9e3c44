"""Hard drafts on calibration text: the score by which grid points and tuned drafts are chosen."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from hwmodels.numerics.quick_jit import quick_jit
from jaxspec.checks import check_sampling
from jaxspec.compress.knobs import Knobs, uniform_knobs
from jaxspec.compress.schemes import Scheme
from jaxspec.models.config import DecoderConfig
from jaxspec.models.mesh import on_host
from jaxspec.speculate.sampling import Decoding
from jaxspec.tuning.calibration import Calibration, windows_per_pass
from jaxspec.tuning.objective import DraftMeasurement, Pricing, measure, price


@jax.jit
def measured_windows(
    calibration: Calibration,
    knobs: Knobs,
    windows: Int[Array, " batch"],
    decoding: Decoding,
    offset: Int[Array, ""] | int = 0,
) -> DraftMeasurement:
    """One pass of the bit-exact draft over some windows of calibration text."""
    return measure(calibration, knobs, windows=windows, offset=offset, soft_temperature=None, decoding=decoding)


def measure_hard(calibration: Calibration, knobs: Knobs, decoding: Decoding, *, offset: int = 0) -> DraftMeasurement:
    """One pass of the bit-exact draft over all calibration windows; in parts, where activations would not be small.

    Bits of the KV cache are the mean over the parts, each coded on its own.

    Args:
        offset: shifts the roots of cycles (see `block_pass`), 0 to the longest draft length less one.
    Raises:
        ValueError: when sampling, a number out of its range.
    """
    check_sampling(decoding)
    decoding = dataclasses.replace(decoding, temperature=jnp.asarray(decoding.temperature, jnp.float32)).for_program()
    size = windows_per_pass(calibration.config, calibration.text.tokens.shape[1])
    parts = np.array_split(np.arange(calibration.num_windows), -(-calibration.num_windows // size))
    place = jnp.asarray(offset, jnp.int32)
    found = [on_host(measured_windows(calibration, knobs, jnp.asarray(part), decoding, place)) for part in parts]
    return mean_measurement(found, [len(part) / calibration.num_windows for part in parts])


def mean_measurement(found: Sequence[DraftMeasurement], shares: Sequence[float]) -> DraftMeasurement:
    """What one draft does, from measurements of parts of the text and their shares of it."""
    return jax.tree.map(lambda *leaves: sum(share * leaf for share, leaf in zip(shares, leaves, strict=True)), *found)


price_exactly = quick_jit(price)


def best_length(pricing: Pricing, measured: DraftMeasurement) -> tuple[int, float]:
    """The draft length of 1 or more with the highest speedup, and that speedup (over 16-bit decoding)."""
    speedup = price_exactly(pricing, measured).speedup_vs_bf16_ar[1:]
    return int(jnp.argmax(speedup)) + 1, float(jnp.max(speedup))


def grid_points(scheme: Scheme) -> list[dict[str, float]]:
    """The uniform grid of a scheme: every combination of its knobs' grid values, the first knob outermost."""
    gridded = [spec for spec in scheme.knob_specs if spec.grid]
    return [
        dict(zip((spec.name for spec in gridded), point, strict=True))
        for point in itertools.product(*(spec.grid for spec in gridded))
    ]


def grid_knobs(scheme: Scheme, config: DecoderConfig) -> list[Knobs]:
    """The grid's points as knobs; what has no grid keeps its default."""
    return [uniform_knobs(scheme, config, point) for point in grid_points(scheme.of_dtype(config.stored_dtype))]


def token_acceptance(survival: Float[Array, " depth"], draft_length: int) -> Float[Array, ""]:
    """alpha_token of a chain: accepted draft tokens over draft tokens reached."""
    reached = jnp.concatenate([jnp.ones(1, survival.dtype), survival[: draft_length - 1]])
    return jnp.sum(survival[:draft_length]) / jnp.sum(reached)
