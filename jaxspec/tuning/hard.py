"""Hard drafts on calibration text: the score by which grid points and tuned drafts are chosen."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from hwmodels import Case
from hwmodels.numerics.fast_compile import jit_fast_compile
from jaxspec.checks import check_count, check_sampling
from jaxspec.compress.knobs import Knobs, uniform_knobs
from jaxspec.compress.schemes import Scheme
from jaxspec.models.config import DecoderConfig
from jaxspec.models.mesh import on_host, rows_that_split
from jaxspec.speculate.sampling import Decoding
from jaxspec.tuning.calibration import Calibration, windows_per_pass
from jaxspec.tuning.objective import DraftMeasurement, measure, price


@jax.jit
def measured_windows(
    calibration: Calibration,
    knobs: Knobs,
    windows: Int[Array, " batch"],
    decoding: Decoding,
    offset: Int[Array, ""] | int = 0,
    counted: Float[Array, " batch"] | None = None,
) -> DraftMeasurement:
    """One pass of the bit-exact draft over some windows of calibration text.

    Args:
        counted: whether a window counts, 0 or 1; None: all do.
    """
    options = {"windows": windows, "offset": offset, "soft_temperature": None, "decoding": decoding}
    return measure(calibration, knobs, **options, counted=counted)


def measure_hard(
    calibration: Calibration, knobs: Knobs, decoding: Decoding, *, offset: int = 0, windows: int | None = None
) -> DraftMeasurement:
    """One pass of the bit-exact draft over calibration windows; in parts, where activations would not be small.

    Bits of the KV cache are the mean over the parts, each coded on its own. A mesh has the parts of one device, each split over
    its data axis, so that it finds the same. One program serves all parts, and all calibrations of equal shape, however many of
    their windows count.

    Args:
        offset: shifts the roots of cycles (see `block_pass`), 0 to the longest draft length less one.
        windows: that count, from the first on; None: all.
    Raises:
        ValueError: when sampling, a number out of its range; none or too many windows.
    """
    check_sampling(decoding)
    there = calibration.num_windows
    count = there if windows is None else windows
    check_count("windows", count, most=there)
    decoding = dataclasses.replace(decoding, temperature=jnp.asarray(decoding.temperature, jnp.float32)).for_program()
    size = windows_per_pass(calibration.config, calibration.text.tokens.shape[1])
    number = -(-there // size)
    # What the data axis does not divide would be whole on each device.
    width = rows_that_split(calibration.mesh, -(-there // number))
    parts = [part for part in np.array_split(np.arange(there), number) if part[0] < count]
    place = jnp.asarray(offset, jnp.int32)
    measurements, shares = [], []
    for part in parts:
        # A part that is shorter than the program has its last window again, and counts it once.
        full = np.minimum(part[0] + np.arange(width), part[-1])
        counted = ((np.arange(width) < len(part)) & (full < count)).astype(np.float32)
        given = calibration, knobs, jnp.asarray(full), decoding, place, jnp.asarray(counted)
        measurements.append(on_host(measured_windows(*given)))
        shares.append(float(counted.sum()) / count)
    return measurements[0] if len(measurements) == 1 else mean_measurement(measurements, shares)


def mean_measurement(measurements: Sequence[DraftMeasurement], shares: Sequence[float]) -> DraftMeasurement:
    """What one draft does, from measurements of parts of the text and their shares of it."""
    return jax.tree.map(
        lambda *leaves: sum(share * leaf for share, leaf in zip(shares, leaves, strict=True)), *measurements
    )


price_exactly = jit_fast_compile(price)


def best_length(pricing: Case, measured: DraftMeasurement) -> tuple[int, float]:
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


def token_acceptance(survival: Float[Array | np.ndarray, " depth"], draft_length: int) -> float:
    """alpha_token of a chain: accepted draft tokens over draft tokens reached; on the host, as a program for each length would
    take longer to compile than all else that a grid needs."""
    accepted = np.asarray(survival)[:draft_length]
    return float(accepted.sum() / (1 + accepted[:-1].sum()))
