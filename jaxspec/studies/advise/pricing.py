"""Cycles of every batch and draft length in the steady state of an engine, with their errors and what limits them."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from hwmodels import Device, DraftCost, Footprint, PricedStep, ServingCycle, chain_plan, serving_cycle, tokens_per_cycle
from hwmodels.analysis.uncertainty.cycle_errors import CycleTimes, cycle_numbers, cycle_times
from hwmodels.analysis.uncertainty.delta_method import LogNormal
from hwmodels.numerics.quick_jit import quick_jit
from hwmodels.speculation.draft_cost import held_with_draft
from jaxspec.studies.advise.acceptance import DraftAcceptance
from jaxspec.studies.feasibility import capacity_bytes
from jaxspec.tuning.objective import Pricing

__all__ = ["CAUSES", "Advised", "price_advice", "time_by_cause"]

#: What an operator waits for.
CAUSES = ("arithmetic", "memory", "paths on the chip", "decoding of weights", "exchange")


class Advised(NamedTuple):
    """Of one device; leaves "batch length", draft lengths 1, 2, ...

    Attributes:
        numbers: of `cycle_numbers`, by name.
        tokens: per cycle, " length".
        times: steps of the cycles with the errors of their kernels, for `covered`.
        cycles: priced.
        held: bytes of weights and KV of target and draft, " batch"; fits: whether the device's memories hold them.
    """

    numbers: dict[str, LogNormal]
    tokens: Float[np.ndarray, " length"]
    times: CycleTimes
    cycles: ServingCycle
    held: Float[np.ndarray, " batch"]
    fits: Bool[np.ndarray, " batch"]


def price_advice(
    pricing: Pricing,
    *,
    footprint: Footprint,
    draft: DraftCost,
    acceptance: DraftAcceptance,
    batches: tuple[int, ...],
    scatter: float,
) -> Advised:
    """Price all batches and draft lengths; on the host.

    Args:
        pricing: its workload's batch is not used.
        scatter: of the engine's cycles, standard deviation of the logarithm.
    """
    # The statement is for readers: it must not compile anew; energy is not asked for.
    cost = dataclasses.replace(draft, statement="")
    quiet = dataclasses.replace(pricing, device=dataclasses.replace(pricing.device, chip=None))
    lengths = np.arange(1, acceptance.conditional.size + 1, dtype=np.float32)
    tokens = np.asarray(tokens_per_cycle(jnp.asarray(acceptance.conditional, jnp.float32)))
    found = _priced(quiet, footprint, cost, np.asarray(batches, np.float32), lengths, tokens)
    cycles, held, times = jax.device_get(found)
    times = dataclasses.replace(times, scatter=np.full(times.engine_s.shape, scatter, np.float32))
    return Advised(
        _numbers(times, acceptance, np.asarray(batches, np.float32)),
        tokens,
        times,
        cycles,
        np.asarray(held),
        np.asarray(held) <= capacity_bytes(pricing.device),
    )


@quick_jit
def _priced(
    pricing: Pricing,
    footprint: Footprint,
    draft: DraftCost,
    batches: Float[Array, " batch"],
    lengths: Float[Array, " length"],
    tokens: Float[Array, " length"],
) -> tuple[ServingCycle, Array, CycleTimes]:
    def at_batch(batch: Array) -> tuple[ServingCycle, Array, CycleTimes]:
        parts = {
            "footprint": footprint,
            "draft_cost": draft,
            "workload": dataclasses.replace(pricing.workload, batch=batch),
        }

        def at_length(length: Array, gained: Array) -> tuple[ServingCycle, CycleTimes]:
            cycle = serving_cycle(
                pricing.device,
                pricing.architecture,
                plan=chain_plan(length),
                tokens_per_cycle=gained,
                engine=pricing.engine,
                **parts,
            )
            return cycle, _times(pricing.device, cycle, length, jnp.asarray(draft.passes))

        cycles, times = jax.vmap(at_length)(lengths, tokens)
        return cycles, held_with_draft(pricing.architecture, **parts, group=pricing.device.group), times

    return jax.vmap(at_batch)(batches)


def _times(device: Device, one: ServingCycle, length: Array, passes: Array) -> CycleTimes:
    """The steps of one cycle, of which one draft step carries prompts."""
    first = jnp.minimum(passes, 1.0)
    alone, beside = (jax.tree.map(lambda leaf: leaf[0], step) for step in (one.draft, one.beside))
    return cycle_times(
        device,
        bf16=one.baselines.bf16,
        stored=one.baselines.stored,
        cycle=[(length * passes - first, alone), (first, beside), (1.0, one.verify)],
        engine_s=one.engine_s,
        plain_engine_s=one.plain_engine_s,
    )


@quick_jit
@jax.vmap
def _cycle_numbers(
    times: CycleTimes,
    chances: Float[Array, "... position"],
    error: Float[Array, "... position cause"],
    batch: Float[Array, ...],
) -> dict[str, LogNormal]:
    return cycle_numbers(times, chances, error, batch=batch)


def _numbers(
    times: CycleTimes, acceptance: DraftAcceptance, batches: Float[np.ndarray, " batch"]
) -> dict[str, LogNormal]:
    stacked = jax.tree.map(lambda leaf: np.reshape(leaf, (-1, *np.shape(leaf)[2:])), times)
    positions = acceptance.conditional.size
    # Positions beyond a draft length gain nothing, surely.
    inside = np.tril(np.ones((positions, positions)))
    chances = np.tile(inside * acceptance.conditional, (len(batches), 1))
    error = np.tile(inside[:, :, None] * acceptance.error, (len(batches), 1, 1))
    found = _cycle_numbers(stacked, chances.astype(np.float32), error.astype(np.float32), np.repeat(batches, positions))
    shape = (len(batches), positions)
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64).reshape(shape), jax.device_get(found))


def time_by_cause(advised: Advised, batch: int, length: int, passes: float) -> dict[str, float]:
    """Seconds of a cycle, or of an autoregressive step for length 0, by part and by what its operators wait for.

    Args:
        batch: place among the batches.
        length: draft length.
        passes: of a draft step.
    """
    one: ServingCycle = jax.tree.map(lambda leaf: leaf[batch, max(length - 1, 0)], advised.cycles)
    if length == 0:
        found = _causes(one.baselines.stored, "decode", 1.0)
        return _above_nothing(found | {"engine": float(one.plain_engine_s)})
    first = min(passes, 1.0)
    alone, beside = (jax.tree.map(lambda leaf: leaf[0], step) for step in (one.draft, one.beside))
    found = _causes(one.verify, "verify", 1.0) | {"engine": float(one.engine_s)}
    for runs, step in ((length * passes - first, alone), (first, beside)):
        for name, seconds in _causes(step, "draft", runs).items():
            found[name] = found.get(name, 0.0) + seconds
    return _above_nothing(found)


def _causes(step: PricedStep, part: str, runs: float) -> dict[str, float]:
    """Each operator's time belongs to the longest of what it waits for, and its launches to themselves; then encoders'.

    Of several devices, collectives and the wait for the fullest stage are apart.
    """
    cost = step.cost
    limits = np.stack([cost.compute_s, cost.memory_s, cost.on_chip_s, cost.decoding_s, cost.exchange_s])
    busy = np.asarray(cost.operator_s, np.float64)
    launches = np.where(limits.max(axis=0) > 0, np.minimum(cost.launch_s, busy), 0.0)
    waits = limits.argmax(axis=0)
    found = {f"{part}: {name}": runs * float(np.sum((busy - launches)[waits == i])) for i, name in enumerate(CAUSES)}
    encoding = max(float(cost.encoding_s) - float(np.sum(busy)), 0.0)
    others = 0.0 if cost.collective_s is None else float(np.sum(np.asarray(cost.collective_s, np.float64)))
    return found | {
        f"{part}: other devices": runs * others,
        f"{part}: launches": runs * float(np.sum(launches)),
        f"{part}: encoding of the cache": runs * encoding,
    }


def _above_nothing(found: dict[str, float]) -> dict[str, float]:
    return {name: seconds for name, seconds in sorted(found.items(), key=lambda item: -item[1]) if seconds > 0}
