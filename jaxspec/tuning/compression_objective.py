"""Cassandra's objective J: acceptance for each bit that a draft leaves in its weights and KV cache, and the search by it.

J knows neither a device nor what pruning and coding cost: no bitmap, no exponent code, no verification. It stands beside
predicted speedups, to show where the two disagree.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from hwmodels import ALL_LAYER_MATRICES, Architecture, Case
from hwmodels.network.architecture import UNCOMPRESSED_BITS, Footprint, cached_rows, kv_elements_per_token, parameters
from hwmodels.numerics.fast_compile import jit_fast_compile
from hwmodels.numerics.scalars import Leaf, Number, as_float
from jaxspec.checks import check_count, check_sampling
from jaxspec.compress.footprint import measured_footprint
from jaxspec.compress.knobs import Knobs, uniform_knobs
from jaxspec.compress.schemes import Scheme
from jaxspec.formats.patterns import BitsRead
from jaxspec.models.config import DecoderConfig
from jaxspec.models.mesh import on_host, rows_that_split
from jaxspec.settings.knobs import CUT_AND_PRUNE, KnobSpec
from jaxspec.speculate.sampling import Decoding
from jaxspec.tuning.calibration import Calibration, windows_per_pass
from jaxspec.tuning.objective import DraftMeasurement, measure, price, priced_footprint

__all__ = [
    "J_LENGTH",
    "best_length",
    "compiled_j",
    "grid_knobs",
    "grid_points",
    "left_bits",
    "measure_hard",
    "measured_windows",
    "num_candidates",
    "objective_j",
    "relative_j",
    "token_acceptance",
    "two_stages",
]

# Hard drafts on calibration text: the score by which grid points and tuned drafts are chosen.


@jax.jit
def measured_windows(
    calibration: Calibration,
    knobs: Knobs,
    windows: Int[Array, " batch"],
    decoding: Decoding,
    counted: Float[Array, " batch"] | None = None,
) -> DraftMeasurement:
    """One pass of the bit-exact draft over some windows of calibration text.

    Args:
        counted: whether a window counts, 0 or 1; None: all do.
    """
    options = {"windows": windows, "offset": 0, "soft_temperature": None, "decoding": decoding}
    return measure(calibration, knobs, **options, counted=counted)


#: Windows of one pass, at most: as many as a grid is measured on, so that these and all windows share a program.
_AT_ONCE = 24


def measure_hard(
    calibration: Calibration, knobs: Knobs, decoding: Decoding, *, windows: int | None = None
) -> DraftMeasurement:
    """One pass of the bit-exact draft over calibration windows; in parts, where activations would not be small.

    Bits of the KV cache are the mean over the parts, each coded on its own. A mesh has the parts of one device, each split over
    its data axis, so that it finds the same. One program serves all parts, and all calibrations of equal shape, unless
    less than half of their windows count.

    Args:
        windows: that count, from the first on; None: all.
    Raises:
        ValueError: when sampling, a number out of its range; none or too many windows.
    """
    check_sampling(decoding)
    there = calibration.num_windows
    count = there if windows is None else windows
    check_count("windows", count, most=there)
    decoding = dataclasses.replace(decoding, temperature=jnp.asarray(decoding.temperature, jnp.float32)).for_program()
    size = min(_AT_ONCE, windows_per_pass(calibration.config, calibration.text.tokens.shape[1]))
    # What does not count takes as long as what does: few windows have a program of their own.
    placed = count if 2 * count <= min(size, there) else there
    number = -(-placed // size)
    # What the data axis does not divide would be whole on each device.
    width = rows_that_split(calibration.mesh, -(-placed // number))
    parts = [part for part in np.array_split(np.arange(placed), number) if part[0] < count]
    measurements, shares = [], []
    for part in parts:
        # A part that is shorter than the program has its last window again, and counts it once.
        full = np.minimum(part[0] + np.arange(width), part[-1])
        counted = ((np.arange(width) < len(part)) & (full < count)).astype(np.float32)
        given = calibration, knobs, jnp.asarray(full), decoding, jnp.asarray(counted)
        # Of NumPy: means of arrays of JAX would be a program for each shape, which wait for whatever else compiles.
        measurements.append(jax.device_get(on_host(measured_windows(*given))))
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
    speedup = np.asarray(price_exactly(pricing, measured).speedup_vs_bf16_ar)[1:]
    return int(np.argmax(speedup)) + 1, float(np.max(speedup))


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


#: Drafted tokens whose accepted share is alpha: those of Cassandra-1 in the paper's table of acceptance rates.
J_LENGTH = 5

_WEIGHTS, _KV = ("weight_prune", "weight_cut_bits"), ("kv_prune", "kv_cut_bits")


def left_bits(pruned: Number, cut: Number) -> Leaf:
    """Bits per value that a draft leaves: (1 - pruned share) (16 - cut bits), "*b"."""
    return (1.0 - as_float(pruned)) * (UNCOMPRESSED_BITS - as_float(cut))


def objective_j(alpha: Number, terms: Iterable[tuple[Number, Number]]) -> Leaf:
    """J, per bit.

    Args:
        alpha: "*b", accepted share of the drafted tokens.
        terms: of weights and of the KV cache: elements, and bits left of each (see `left_bits`).
    Source: Cassandra, VII-B.2, Eq. 2.
    """
    return as_float(alpha) / sum(as_float(size) * as_float(bits) for size, bits in terms)


@cache
def compiled_j(config: DecoderConfig) -> Callable[[Case, DraftMeasurement, Knobs], Float[Array, ""]]:
    """`relative_j` of drafts of a network, as one program: operation by operation would compile twenty."""
    return jit_fast_compile(partial(relative_j, config=config))


def relative_j(pricing: Case, measured: DraftMeasurement, knobs: Knobs, config: DecoderConfig) -> Float[Array, ""]:
    """J of a draft over J of an undivided draft of which every token is accepted: 1 for that one, more is better.

        J = alpha / (S_w (1 - w_p) (B - w_t) + S_kv (1 - kv_p) (B - kv_t))

    Args:
        pricing: its architecture has S_w elements in the matrices of its layers, its workload S_kv in all KV caches.
        measured: of the draft; alpha is the accepted share of `J_LENGTH` drafted tokens.
        knobs: of a scheme that prunes and cuts; where matrices or layers differ, each counts with its elements.
        config: of the network that runs.
    Source: Cassandra, VII-B.2, Eq. 2. B is 16 bits.
    """
    left = _left_of_kinds(knobs, config, pricing.architecture)
    elements = parameters(pricing.architecture)
    weights = [(as_float(elements[kind]), left.draft_weight_bits[kind]) for kind in ALL_LAYER_MATRICES]
    sizes = [*weights, (_kv_elements(pricing), left.draft_kv_bits)]
    alpha = jnp.mean(jnp.asarray(measured.survival)[:J_LENGTH])
    whole = objective_j(1.0, [(size, UNCOMPRESSED_BITS) for size, _ in sizes])
    return objective_j(alpha, sizes) / whole


def _kv_elements(pricing: Case) -> Leaf:
    """Elements in the KV caches of all sequences."""
    load = pricing.workload
    rows = cached_rows(pricing.architecture, load.context_tokens, batch=load.batch, shared_tokens=load.shared_tokens)
    return rows * kv_elements_per_token(pricing.architecture)


def _left_of_kinds(knobs: Knobs, config: DecoderConfig, priced: Architecture) -> Footprint:
    """(1 - pruned) (B - cut) of each kind of the priced network's matrices, and of its KV cache; scalar leaves."""
    of_matrices, of_layers = (left_bits(*(knobs.values[name] for name in names)) for names in (_WEIGHTS, _KV))
    bits = {}
    for place, kind in enumerate(config.matrix_kinds):
        layers = jnp.asarray(list(config.layer_parameters[kind].layers()))
        bits[kind] = BitsRead(*[of_matrices[layers, place]] * 2)
    if config.mixed_layers is not None:
        of_layers = of_layers[jnp.asarray(config.mixed_layers.attending, int)]
    return priced_footprint(measured_footprint(bits, BitsRead(*[of_layers] * 2)), priced)


def num_candidates() -> int:
    """Drafts that `two_stages` scores."""
    return 2 * math.prod(map(len, _grids(CUT_AND_PRUNE)))


def _grids(specs: Iterable[KnobSpec]) -> list[tuple[float, ...]]:
    """Pruned shares and cut bits of either term."""
    return [spec.grid for spec in specs if spec.grid]


def two_stages(scheme: Scheme, config: DecoderConfig, pricing: Case, score: Callable[[Knobs], float]) -> Knobs:
    """The draft with the largest J over a grid of the larger term, weights or KV cache, and then over that of the other.

    Args:
        scheme: one that prunes and cuts (see `SchemeFacts`); the search starts at its defaults.
        config: of the network that runs.
        score: J of a draft.
    Returns:
        Uniform knobs.
    Source: Cassandra, VII-B.2: pruned shares of 30 to 60 % in steps of 10 %, 0 to 5 cut bits.
    """
    elements = parameters(pricing.architecture)
    weights = sum(float(elements[kind]) for kind in ALL_LAYER_MATRICES)
    order = (_WEIGHTS, _KV) if weights >= float(_kv_elements(pricing)) else (_KV, _WEIGHTS)
    best = uniform_knobs(scheme, config)
    grids = _grids(best.scheme.knob_specs)
    for names in order:
        tried = [_with(best, dict(zip(names, point, strict=True))) for point in itertools.product(*grids)]
        best = max(tried, key=score)
    return best


def _with(knobs: Knobs, values: dict[str, float]) -> Knobs:
    """Some knobs set to one number each, everywhere."""
    return knobs.replace_values(**{name: jnp.full_like(knobs.values[name], value) for name, value in values.items()})
