"""What plans take on a device: N samples of one problem are N sequences that share its prompt.

A prompt is processed once for all of its samples. A step is priced at half of the answer's length, memory at its end. A judge
is a network beside the first one: it processes the prompt once and each sample's tokens once, in as many rounds as there are
rounds of scores, and keeps keys and values of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float

from hwmodels import (
    Architecture,
    CycleCost,
    Device,
    DraftCost,
    EngineTerms,
    Footprint,
    Workload,
    chain_plan,
    price_cycle,
    price_steps,
)
from hwmodels.analysis.uncertainty.cycle_errors import answer_times, cycle_numbers
from hwmodels.analysis.uncertainty.delta_method import LogNormal
from hwmodels.analysis.uncertainty.kernel_errors import times_have_errors
from hwmodels.network.operators import decode_step, prefill_step, verify_step
from hwmodels.numerics.quick_jit import quick_jit
from hwmodels.numerics.scalars import as_float
from hwmodels.parallel.group import held_share
from hwmodels.step.capacity import held_bytes
from hwmodels.step.priced_steps import PricedStep

__all__ = ["Costs", "Loads", "Speculated", "price_plans", "price_speculation", "shared_tokens"]


@struct.dataclass
class Loads:
    """Plans in numbers, leaves " plan".

    Attributes:
        batch: problems. samples: of each.
        passes: one after the other. judged: tokens of a sample that a round of scores reads. rounds: of scores; 0: no judge.
    """

    batch: Float[Array | np.ndarray, " plan"]
    samples: Float[Array | np.ndarray, " plan"]
    passes: Float[Array | np.ndarray, " plan"]
    judged: Float[Array | np.ndarray, " plan"]
    rounds: Float[Array | np.ndarray, " plan"]


class Costs(NamedTuple):
    """Of plans, " plan"; energy None where the device's is not known.

    Attributes:
        numbers: total_s, step_s, prefill_s and judge_s with the errors of kernels; none on a device that is not calibrated.
    """

    step_s: Any
    prefill_s: Any
    judge_s: Any
    energy_j: Any
    held_bytes: Any
    numbers: dict[str, LogNormal]


def shared_tokens(prompt: Any, *, batch: Any, samples: Any) -> Any:
    """Tokens that all sequences would have to share for the cache to hold each problem's prompt once: "*b".

    Of one problem these are the prompt. Of B problems with N samples each, B prompts are held and not B N: as many rows as
    B N sequences hold that share S tokens, with S (B N - 1) = B (N - 1) prompt.
    """
    sequences = batch * samples
    return prompt * batch * (samples - 1.0) / jnp.maximum(sequences - 1.0, 1.0)


@quick_jit
def price_plans(
    device: Device,
    architecture: Architecture,
    judge: Architecture | None,
    footprint: Footprint,
    prompt: Float[Array, ""],
    loads: Loads,
) -> Costs:
    """Time of a step and of prefills, energy in all, bytes held at the end.

    Args:
        judge: architecture of the network that judges, stored like the other; None: no plan has one.
        prompt: its tokens.
    """
    loads = jax.tree.map(jnp.asarray, loads)
    sequences = loads.batch * loads.samples
    shared = shared_tokens(prompt, batch=loads.batch, samples=loads.samples)
    prompts = prefill_step(Workload(batch=loads.batch, prompt_tokens=prompt), footprint=footprint)
    halfway = Workload(batch=sequences, context_tokens=prompt + loads.passes / 2.0, shared_tokens=shared)
    prefill, step = price_steps(device, architecture, [prompts, decode_step(halfway, footprint=footprint)])
    stored = {"weight_bits": footprint.target_weight_bits, "kv_bits": footprint.target_kv_bits}
    cache = {"context_tokens": prompt + loads.passes, "shared_tokens": shared}
    whole = Workload(batch=sequences)
    own, load = held_share(device.group, architecture, whole)
    held = held_bytes(own, batch=load.batch, **cache, **stored).total
    ones = jnp.ones_like(loads.passes)
    runs = [(ones, prefill), (loads.passes, step)]
    judge_s = jnp.zeros_like(loads.passes)
    if judge is not None:
        asked = jnp.minimum(loads.rounds, 1.0)
        read = verify_step(halfway, footprint=footprint, verify_tokens=jnp.maximum(loads.judged, 1.0))
        first, each = price_steps(device, judge, [prompts, read])
        judge_s = asked * first.cost.total_s + loads.rounds * each.cost.total_s
        runs += [(asked, first), (loads.rounds, each)]
        own, load = held_share(device.group, judge, whole)
        held = held + asked * held_bytes(own, batch=load.batch, **cache, **stored).total
    numbers = _numbers(device, {"total_s": runs, "step_s": [(ones, step)], "prefill_s": runs[:1], "judge_s": runs[2:]})
    return Costs(step.cost.total_s, prefill.cost.total_s, judge_s, _energy(runs), held, numbers)


def _numbers(device: Device, sums: dict[str, list[tuple[Any, PricedStep]]]) -> dict[str, LogNormal]:
    """Sums of steps, each as often as it runs, with their errors; leaves " plan". None without steps or errors."""
    if not times_have_errors(device):
        return {}

    def one(runs: list[tuple[Any, PricedStep]]) -> LogNormal:
        times = answer_times(device, plain=runs, answer=runs)
        return cycle_numbers(times, jnp.zeros(1), jnp.zeros((1, 0)))["cycle_s"]

    return {name: jax.vmap(one)(runs) for name, runs in sums.items() if runs}


def _energy(runs: list[tuple[Any, PricedStep]]) -> Array | None:
    """Of all runs of some steps; None where one of them has none."""
    total = jnp.asarray(0.0)
    for times, step in runs:
        if step.cost.energy is None:
            return None
        total = total + times * step.cost.energy.total_j
    return total


class Speculated(NamedTuple):
    """Chains of drafted tokens, "batch length"; draft length 0 is plain decoding.

    Attributes:
        numbers: speculation_s and speedup of whole answers with the errors of kernels and of the engine's cycles; none where
            nothing is known to err.
    """

    cycle_s: Any
    prefill_s: Any
    numbers: dict[str, LogNormal]


@quick_jit
def price_speculation(
    device: Device,
    architecture: Architecture,
    footprint: Footprint,
    draft: DraftCost,
    prompt: Float[Array, ""],
    batch: Float[Array, " batch"],
    passes: Float[Array, " batch"],
    lengths: Float[Array, " length"],
    tokens: Float[Array, " length_and_none"],
    engine: EngineTerms,
    scatter: Float[Array | np.ndarray, ""] | None,
) -> Speculated:
    """Seconds of a cycle with one sample of each problem.

    Args:
        passes: of plain decoding until the longest answer of a batch ends.
        lengths: draft lengths, 1 or more.
        tokens: per cycle of no draft and of these.
        engine: what the engine spends on a cycle beside its kernels.
        scatter: of the engine's cycles, see `known_scatter`.
    """

    def one(problems: Array, passes: Array) -> Speculated:
        load = Workload(batch=problems, context_tokens=prompt + passes / 2.0, prompt_tokens=prompt)
        parts = {"footprint": footprint, "draft_cost": draft, "workload": load}
        priced = price_cycle(device, architecture, plan=chain_plan(lengths), engine=engine, **parts)
        (prefill,) = price_steps(device, architecture, [prefill_step(load, footprint=footprint)])
        plain = jnp.broadcast_to(priced.baselines.stored.cost.total_s, (1,))
        numbers = _speculated(device, priced, prefill, draft, lengths, passes / tokens, passes, scatter)
        return Speculated(jnp.concatenate([plain, priced.total_s]), prefill.cost.total_s, numbers)

    return jax.vmap(one)(jnp.asarray(as_float(batch)), jnp.asarray(as_float(passes)))


def _speculated(
    device: Device,
    cycle: CycleCost,
    prefill: PricedStep,
    draft: DraftCost,
    lengths: Float[Array, " length"],
    cycles: Float[Array, " length_and_none"],
    passes: Array,
    scatter: Array | np.ndarray | None,
) -> dict[str, LogNormal]:
    """Whole answers of no draft and of these lengths; none where nothing is known to err."""
    if scatter is None:
        return {}
    alone = cycle.baselines.stored
    plain = [(1.0, prefill), (passes, alone)]
    nothing, zero = jnp.zeros(1), jnp.zeros((1, 0))

    def one(length: Array, often: Array, verify: PricedStep, engine_s: Array) -> dict[str, LogNormal]:
        in_one = cycle.draft_runs(jnp.atleast_1d(length * draft.passes))
        drafting = [(often * runs[0], jax.tree.map(lambda leaf: leaf[0], step)) for runs, step in in_one]
        answer = [(1.0, prefill), *drafting, (often, verify)]
        # Cycles scatter, the prompt before them does not: of the whole answer it is, to first order, their share.
        cycles_s = sum((runs * step.cost.total_s for runs, step in drafting), often * (verify.cost.total_s + engine_s))
        of_answer = scatter * cycles_s / (cycles_s + prefill.cost.total_s)
        times = answer_times(device, plain=plain, answer=answer, engine_s=often * engine_s, scatter=of_answer)
        return cycle_numbers(times, nothing, zero)

    found = jax.vmap(one)(lengths, cycles[1:], cycle.verify, cycle.engine_s)
    none = cycle_numbers(answer_times(device, plain=plain, answer=plain), nothing, zero)
    return {
        name: jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), none[of], found[of])
        for name, of in (("speculation_s", "cycle_s"), ("speedup", "speedup_vs_stored_ar"))
    }
