"""Speedups, rate and time of a draft-verify cycle with the errors of kernels, of acceptance and of an engine's terms.

A kernel's error at one number of rows tells half of that at another: of the variance of a part's logarithm,
`SHARED_VARIANCE` is common to all steps, so that it cancels in a speedup, and the rest is each step's own.

Sampling errors of counted acceptance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

from hwmodels.analysis.uncertainty.kernel_errors import part_deviations, part_times
from hwmodels.device import Device
from hwmodels.numerics.compensated_sums import exact_matmul
from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.speculation.cycle import CycleCost
from hwmodels.step.priced_steps import PricedStep

__all__ = [
    "COVERAGE",
    "SHARED_VARIANCE",
    "CycleTimes",
    "LogNormal",
    "answer_times",
    "chain_numbers",
    "chain_times",
    "conditional_errors",
    "cycle_numbers",
    "cycle_times",
    "delta_method",
    "draw_cycle",
    "probability_above",
]

# Intervals of results whose inputs err: the delta method on logarithms.

#: Probability that an interval is to cover the true number with.
COVERAGE = 0.90


@flax.struct.dataclass
class LogNormal:
    """A positive number and its error; leaves "*b"."""

    value: Float[Array, "*b"]  # the median
    log_deviation: Float[Array, "*b"]  # standard deviation of the logarithm, >= 0

    def ends(self, coverage: float = COVERAGE) -> tuple[Float[Array, "*b"], Float[Array, "*b"]]:
        """Low and high end of the central interval; `coverage` is static, in (0, 1)."""
        reach = jnp.exp(NormalDist().inv_cdf(0.5 + coverage / 2.0) * self.log_deviation)
        return self.value / reach, self.value * reach


def delta_method(
    metrics: Callable[[Float[Array, " source"]], Any],
    sources: int,
    *,
    variance: Float[Array, " source"] | None = None,
    shared: Float[Array, "source cause"] | None = None,
) -> Any:
    """Results with the errors that they inherit.

    Args:
        metrics: from errors, " source", normal, 0 at the estimates, to positive numbers "*b" in any form; pure,
            differentiable at 0.
        sources: static, >= 0.
        variance: of each source's own error, which is independent of the others; None: 1.
        shared: how much each source errs for every cause that several of them share, causes being independent and standard
            normal; None: they share none.
    Returns:
        in the form of `metrics`, each number a `LogNormal`.
    Gradient: that of the slopes.
    """
    estimates = jnp.zeros(sources)
    values = metrics(estimates)
    if not sources:
        return jax.tree.map(lambda value: LogNormal(value, jnp.zeros_like(value)), values)
    results = sum(leaf.size for leaf in jax.tree.leaves(values))
    slopes = (jax.jacfwd if sources < results else jax.jacrev)(lambda at: jax.tree.map(jnp.log, metrics(at)))(estimates)

    def inherited(value: Array, each: Array) -> LogNormal:
        own = exact_matmul(each**2, jnp.ones(sources) if variance is None else variance)
        together = 0.0 if shared is None else jnp.sum(exact_matmul(each, shared) ** 2, axis=-1)
        return LogNormal(value, jnp.sqrt(own + together))

    return jax.tree.map(inherited, values, slopes)


def probability_above(number: LogNormal, bar: Number = 1.0) -> Float[Array, "*b"]:
    """Probability that the true number lies above `bar` ("*b", > 0); 0, 1/2 or 1 where there is no error."""
    distance = jnp.log(number.value) - jnp.log(as_float(bar))
    sure = jnp.heaviside(distance, 0.5)
    none = number.log_deviation <= 0
    return jnp.where(none, sure, ndtr(distance / jnp.where(none, 1.0, number.log_deviation)))


#: Correlation of a part's errors in two steps. Chosen on whole steps of llama-3.1-8b, checked on qwen3-8b.
SHARED_VARIANCE = 0.5

#: Steps whose parts differ by no more of their time are one step.
_ALIKE = 1e-6


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
    cycle: Sequence[tuple[Number, PricedStep]],
    engine_s: Number = 0.0,
    plain_engine_s: Number = 0.0,
    scatter: Number = 0.0,
) -> CycleTimes:
    """Gather priced steps.

    Args:
        device: whose kernels may have spreads.
        bf16, stored: a step of autoregressive decoding, single numbers; `vmap` for more.
        cycle: how often each step of the cycle runs; single numbers, or "kind" for steps of several kinds.
        engine_s, plain_engine_s, scatter: see `CycleTimes`.
    """
    gathered = _gathered(device, [(1.0, bf16)], [(1.0, stored)], cycle)
    return CycleTimes(*gathered, engine_s=engine_s, plain_engine_s=plain_engine_s, scatter=scatter)


def answer_times(
    device: Device,
    *,
    plain: Sequence[tuple[Number, PricedStep]],
    answer: Sequence[tuple[Number, PricedStep]],
    engine_s: Number = 0.0,
    scatter: Number = 0.0,
) -> CycleTimes:
    """A whole answer, as if it were one cycle that gains one token, and the same answer with other steps.

    Args:
        device: as of `cycle_times`.
        plain: how often each step runs in what the answer is compared with.
        answer: and in the answer.
        engine_s: what the engine adds to the answer.
        scatter: of the answer about its prediction.
    """
    return CycleTimes(*_gathered(device, plain, plain, answer), engine_s=engine_s, scatter=scatter)


def _gathered(device: Device, *roles: Sequence[tuple[Number, PricedStep]]) -> tuple[Array, ...]:
    """Times and deviations, a row for each step, and how often each runs in every role.

    A step that equals one before it counts as that one, which errs once; its own row never runs.
    """
    steps = [step for role in roles for _, step in role]
    part_s = jnp.concatenate([jnp.atleast_2d(part_times(step)) for step in steps])
    deviations = [part_deviations(device, step) for step in steps]
    known = [jnp.atleast_2d(each) for each in deviations if each is not None]
    deviation = jnp.concatenate(known) if len(known) == len(steps) else jnp.zeros_like(part_s)
    runs = [[jnp.atleast_1d(jnp.asarray(as_float(often))) for often, _ in role] for role in roles]
    sizes = [sum(each.shape[0] for each in role) for role in runs]
    rows = sum(sizes)
    ends = np.cumsum(sizes)
    counts = jnp.stack(
        [
            jnp.pad(jnp.concatenate(role), (int(end) - size, rows - int(end)))
            for role, size, end in zip(runs, sizes, ends, strict=True)
        ]
    )
    apart = jnp.abs(part_s[:, None] - part_s[None, :])
    alike = jnp.all(apart <= _ALIKE * jnp.sum(part_s, axis=-1)[:, None, None], axis=-1)
    first = jax.nn.one_hot(jnp.argmax(alike, axis=-1), rows, dtype=part_s.dtype)
    # A sum rather than a product of matrices, which a map over design points would not vectorise.
    return part_s, deviation, *jnp.sum(counts[:, :, None] * first[None], axis=1)


def chain_times(
    device: Device, cycle: CycleCost, draft_length: Number, *, passes: Number = 1.0, scatter: Number = 0.0
) -> CycleTimes:
    """The cycle of one chain among those that were priced together.

    Args:
        device: as of `cycle_times`.
        cycle: of chains of 1, 2, ... drafted tokens, leaves "length ...".
        draft_length: one number; 0 is a step of autoregressive decoding of what is stored.
        passes: of the draft for each of its steps.
        scatter: of the engine's cycles; a step without a draft has none.
    """
    length = jnp.asarray(as_float(draft_length))
    place, drafts = jnp.maximum(length - 1.0, 0.0).astype(jnp.int32), jnp.minimum(length, 1.0)
    # A chain has one kind of draft step, a block one for each length, which runs once.
    blocks = cycle.draft.cost.total_s.shape[0] > 1
    kind, steps = (place, drafts) if blocks else (0, length)
    runs = jnp.atleast_1d(steps * as_float(passes))
    drafting = [(often[0], jax.tree.map(lambda leaf: leaf[kind], step)) for often, step in cycle.draft_runs(runs)]
    verify = jax.tree.map(lambda leaf: leaf[place], cycle.verify)
    stored = cycle.baselines.stored
    return cycle_times(
        device,
        bf16=cycle.baselines.bf16,
        stored=stored,
        cycle=[*drafting, (drafts, verify), (1.0 - drafts, stored)],
        engine_s=drafts * cycle.engine_s[place],
        scatter=drafts * as_float(scatter),
    )


def chain_numbers(
    device: Device,
    cycle: CycleCost,
    draft_length: Number,
    conditional: Float[Array | np.ndarray, " position"],
    *,
    error: Float[Array | np.ndarray, " position"] | Float[Array | np.ndarray, "position cause"] | None = None,
    batch: Number = 1.0,
    passes: Number = 1.0,
    scatter: Number = 0.0,
) -> dict[str, LogNormal]:
    """Headline numbers of one chain with their errors: `cycle_numbers` of `chain_times`.

    Args:
        conditional: acceptance by position, at least as many as are drafted.
        error: standard error of each, or a factor of their covariance; None: none is known.
    """
    chances = jnp.asarray(as_float(conditional))
    # Positions that are not drafted gain nothing, surely.
    inside = jnp.arange(chances.shape[-1], dtype=chances.dtype) < as_float(draft_length)
    known = jnp.zeros((chances.shape[-1], 0)) if error is None else jnp.asarray(as_float(error))
    errors = jnp.where(inside[:, None], known if known.ndim == 2 else jnp.diag(known), 0.0)
    times = chain_times(device, cycle, draft_length, passes=passes, scatter=scatter)
    return cycle_numbers(times, jnp.where(inside, chances, 0.0), errors, batch=batch)


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
        speedup_vs_bf16_ar, speedup_vs_stored_ar, tokens_per_s (of all sequences), cycle_s, and the autoregressive steps,
        ar_bf16_s and ar_stored_s.
    Gradient: right for every input.
    """
    conditional, error = jnp.asarray(as_float(conditional)), jnp.asarray(as_float(error))
    steps, causes = times.part_s.shape[0], error.shape[1]
    # To first order a step errs by the sum of its parts' errors: few sources instead of one for each part of each step.
    spread = jnp.asarray(as_float(times.part_s)) * as_float(times.deviation)
    own = (1.0 - SHARED_VARIANCE) * jnp.sum(spread**2, axis=-1)
    variance = jnp.concatenate([own, jnp.ones(causes + 1, own.dtype)])
    shared = jnp.pad(jnp.sqrt(SHARED_VARIANCE) * spread, ((0, causes + 1), (0, 0)))
    step_s = jnp.sum(as_float(times.part_s), axis=-1)

    def numbers(errors: Float[Array, " source"]) -> dict[str, Array]:
        late_s, deviates, engine = jnp.split(errors, [steps, steps + causes])
        return _numbers(times, step_s + late_s, conditional + exact_matmul(error, deviates), engine[0], batch)

    return delta_method(numbers, steps + causes + 1, variance=variance, shared=shared)


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
    common = jnp.sqrt(SHARED_VARIANCE) * shared[None] + jnp.sqrt(1.0 - SHARED_VARIANCE) * own.reshape(steps, parts)
    step_s = jnp.sum(times.part_s * jnp.exp(times.deviation * common), axis=-1)
    return _numbers(times, step_s, conditional + exact_matmul(error, causes), engine[0], batch)


def _numbers(
    times: CycleTimes,
    step_s: Float[Array, " step"],
    conditional: Float[Array | np.ndarray, " position"],
    engine: Float[Array, ""],
    batch: Number,
) -> dict[str, Float[Array, ""]]:
    """Headline numbers of steps that take so long, tokens that are accepted so often, and a deviate of the engine."""
    tokens = 1.0 + jnp.sum(jnp.cumprod(conditional))
    cycle_s = exact_matmul(times.cycle, step_s) + as_float(times.engine_s)
    cycle_s = cycle_s * jnp.exp(as_float(times.scatter) * engine)
    plain_s = as_float(times.plain_engine_s)
    bf16_s, stored_s = (exact_matmul(each, step_s) + plain_s for each in (times.bf16, times.stored))
    return {
        "speedup_vs_bf16_ar": bf16_s * tokens / cycle_s,
        "speedup_vs_stored_ar": stored_s * tokens / cycle_s,
        "tokens_per_s": as_float(batch) * tokens / cycle_s,
        "cycle_s": cycle_s,
        "ar_bf16_s": bf16_s,
        "ar_stored_s": stored_s,
    }


def conditional_errors(
    conditional: Float[Array | np.ndarray, "*b position"], cycles: Number
) -> Float[Array, "*b position"]:
    """Standard error of each conditional acceptance that was counted over draft-verify cycles.

    Args:
        conditional: "*b position", in [0, 1]; accepted over reached, at each position.
        cycles: "*b", > 0; position 1 is reached in each of them, a later one where all before it were accepted.
    Returns:
        "*b position", > 0 at 0 and 1 too: the standard deviation of the Beta posterior of Jeffreys' prior, near
        sqrt(p (1 - p) / reached) in between.
    Source: Brown, Cai, DasGupta 2001, doi:10.1214/ss/1009213286, Sec. 3.
    Departs: cycles are taken as independent; those of one text are not quite.
    """
    chance = jnp.asarray(as_float(conditional))
    before = jnp.concatenate([jnp.ones_like(chance[..., :1]), jnp.cumprod(chance, axis=-1)[..., :-1]], axis=-1)
    reached = before * jnp.asarray(as_float(cycles))[..., None]
    accepted, refused = chance * reached + 0.5, (1.0 - chance) * reached + 0.5
    total = accepted + refused
    return jnp.sqrt(accepted * refused / (total**2 * (total + 1.0)))
