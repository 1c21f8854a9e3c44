"""Speedups, rate and time of a draft-verify cycle with the errors of kernels, of acceptance and of an engine's terms.

A kernel's error at one number of rows tells half of that at another: of the variance of a part's logarithm,
`SHARED_VARIANCE` is common to all steps, so that it cancels in a speedup, and the rest is each step's own.
"""

from __future__ import annotations

from collections.abc import Sequence

import flax.struct
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.analysis.uncertainty.delta_method import LogNormal, delta_method
from hwmodels.analysis.uncertainty.kernel_errors import part_deviations, part_times
from hwmodels.device import Device
from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.step.priced_steps import PricedStep

__all__ = ["SHARED_VARIANCE", "CycleTimes", "cycle_numbers", "cycle_times", "draw_cycle"]

#: Correlation of a part's errors in two steps. `python -m experiments.silicon.coverage` compares it with whole steps.
SHARED_VARIANCE = 0.5


@flax.struct.dataclass
class CycleTimes:
    """Steps that a cycle and its baselines consist of, by part (`part_times`); leaves are arrays or numbers, "*b" first."""

    part_s: Float[Array | np.ndarray, "*b step part"]
    deviation: Float[Array | np.ndarray, "*b step part"]  # of its logarithm; 0: not known, or none
    bf16: Float[Array | np.ndarray, "*b step"]  # how often each step runs in one of autoregressive decoding in 16 bits,
    stored: Float[Array | np.ndarray, "*b step"]  # in one of what is stored,
    cycle: Float[Array | np.ndarray, "*b step"]  # and in a cycle
    engine_s: Leaf = 0.0  # "*b": what an engine adds to a cycle
    plain_engine_s: Leaf = 0.0  # "*b": and to an autoregressive step
    scatter: Leaf = 0.0  # "*b": standard deviation of the logarithm of a cycle of this engine about its prediction


def cycle_times(
    device: Device,
    *,
    bf16: PricedStep,
    stored: PricedStep,
    cycle: Sequence[tuple[float, PricedStep]],
    engine_s: Number = 0.0,
    plain_engine_s: Number = 0.0,
    scatter: Number = 0.0,
) -> CycleTimes:
    """Gather priced steps; on the host.

    Args:
        device: whose kernels may have spreads.
        bf16, stored: a step of autoregressive decoding; equal ones are one step, which errs once.
        cycle: how often each step of the cycle runs; single numbers. A step that equals one before it is that one.
        engine_s, plain_engine_s, scatter: see `CycleTimes`.
    """
    rows: list[np.ndarray] = []
    deviations: list[np.ndarray] = []

    def place(step: PricedStep) -> int:
        seconds = part_times(step)
        for index, row in enumerate(rows):
            if np.allclose(row, seconds, rtol=1e-6, atol=0.0):
                return index
        found = part_deviations(device, step)
        rows.append(seconds)
        deviations.append(np.zeros_like(seconds) if found is None else found)
        return len(rows) - 1

    places = [(0, place(bf16), 1.0), (1, place(stored), 1.0), *((2, place(step), float(runs)) for runs, step in cycle)]
    counts = np.zeros((3, len(rows)), np.float32)
    for which, index, runs in places:
        counts[which, index] += runs
    return CycleTimes(
        np.stack(rows).astype(np.float32),
        np.stack(deviations).astype(np.float32),
        *counts,
        engine_s=engine_s,
        plain_engine_s=plain_engine_s,
        scatter=scatter,
    )


def cycle_numbers(
    times: CycleTimes,
    conditional: Float[Array | np.ndarray, " position"],
    error: Float[Array | np.ndarray, "position cause"],
    *,
    batch: Number = 1.0,
) -> dict[str, LogNormal]:
    """Headline numbers of a cycle with their errors, by the delta method.

    Args:
        times: without "*b"; `vmap` for more.
        conditional: acceptance by position of a chain; of a tree, or where tokens per cycle were counted, the tokens gained
            beside the first, in one position.
        error: of the conditionals, a factor of their covariance: how much each errs for every independent cause; of counted
            ones a diagonal of standard errors. 0: given, or not known.
        batch: sequences decoded together.
    Returns:
        speedup_vs_bf16_ar, speedup_vs_stored_ar, tokens_per_s (of all sequences), cycle_s.
    Gradient: right for every input.
    """
    conditional, error = jnp.asarray(as_float(conditional)), jnp.asarray(as_float(error))

    def numbers(deviates: Float[Array, " source"]) -> dict[str, Array]:
        return draw_cycle(times, conditional, error, deviates, batch=batch)

    return delta_method(numbers, _sources(times, error))


def draw_cycle(
    times: CycleTimes,
    conditional: Float[Array | np.ndarray, " position"],
    error: Float[Array | np.ndarray, "position cause"],
    deviates: Float[Array, " source"],
    *,
    batch: Number = 1.0,
) -> dict[str, Float[Array, ""]]:
    """The same numbers where every error is what `deviates` say, 0 being the estimates.

    Args:
        deviates: standard normal; one for each part, each part of each step, each cause, and the engine.
    """
    steps, parts = times.part_s.shape
    ends = np.cumsum([parts, steps * parts, error.shape[1]]).tolist()
    shared, own, causes, engine = jnp.split(deviates, ends)
    common = jnp.sqrt(SHARED_VARIANCE) * shared + jnp.sqrt(1.0 - SHARED_VARIANCE) * own.reshape(steps, parts)
    step_s = jnp.sum(times.part_s * jnp.exp(times.deviation * common), axis=-1)
    tokens = 1.0 + jnp.sum(jnp.cumprod(conditional + error @ causes))
    cycle_s = times.cycle @ step_s + as_float(times.engine_s)
    cycle_s = cycle_s * jnp.exp(as_float(times.scatter) * engine[0])
    plain_s = as_float(times.plain_engine_s)
    return {
        "speedup_vs_bf16_ar": (times.bf16 @ step_s + plain_s) * tokens / cycle_s,
        "speedup_vs_stored_ar": (times.stored @ step_s + plain_s) * tokens / cycle_s,
        "tokens_per_s": as_float(batch) * tokens / cycle_s,
        "cycle_s": cycle_s,
    }


def _sources(times: CycleTimes, error: Float[Array, "position cause"]) -> int:
    steps, parts = times.part_s.shape
    return parts + steps * parts + error.shape[1] + 1
