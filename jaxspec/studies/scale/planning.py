"""Plans with what they reach and take on a device: which no other beats, and the cheapest for an accuracy."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hwmodels import Architecture
from hwmodels.analysis.uncertainty.delta_method import LogNormal
from jaxspec.results import given, predicted
from jaxspec.studies.feasibility import capacity_bytes
from jaxspec.studies.headline_intervals import interval_ends
from jaxspec.studies.scale.config import ScaleConfig
from jaxspec.studies.scale.curves import Measured
from jaxspec.studies.scale.pricing import Loads, price_plans
from jaxspec.studies.scale.result import Chosen, CurvePoint, PlanEnds, PlanRow
from jaxspec.studies.sweep.pareto import is_pareto
from jaxspec.tuning.objective import Pricing

__all__ = ["Plan", "cheapest", "most_accurate", "plan_rows", "with_fronts"]


class Plan(NamedTuple):
    """A network, a method and a budget, measured."""

    model: str
    method: str
    samples: int
    attainable: bool
    found: Measured
    point: CurvePoint

    @property
    def judged(self) -> bool:
        """Whether scores choose, of more than one sample."""
        return self.method in ("best-of-n", "beam") and self.samples > 1


def plan_rows(
    config: ScaleConfig,
    pricing: Pricing,
    plans: Sequence[Plan],
    *,
    footprint: Any,
    judge: Architecture | None,
    batches: Sequence[int],
) -> list[PlanRow]:
    """The plans of one network on a device at every batch, priced.

    Args:
        pricing: of the network's architecture. judge: see `price_plans`.
    """
    every = [(plan, batch) for batch in batches for plan in plans]
    passes = [plan.found.batch_passes(batch) for plan, batch in every]
    rounds = [float(plan.found.rounds.mean()) if judge is not None and plan.judged else 0.0 for plan, _ in every]
    tokens = [float(plan.found.tokens.mean()) / plan.samples for plan, _ in every]
    columns = {
        "batch": [batch for _, batch in every],
        "samples": [plan.samples for plan, _ in every],
        "passes": passes,
        "judged": [own / max(often, 1.0) for own, often in zip(tokens, rounds, strict=True)],
        "rounds": rounds,
    }
    loads = Loads(**{name: np.asarray(column, np.float32) for name, column in columns.items()})
    prompt = jnp.asarray(float(config.context))
    found = jax.device_get(price_plans(pricing.device, pricing.architecture, judge, footprint, prompt, loads))
    rows = []
    for i, (plan, batch) in enumerate(every):
        step, prefill, judging, held = (
            float(part[i]) for part in (found.step_s, found.prefill_s, found.judge_s, found.held_bytes)
        )
        rows.append(
            PlanRow(
                model=plan.model,
                method=plan.method,
                samples=plan.samples,
                batch=batch,
                attainable=plan.attainable,
                accuracy=plan.point.accuracy,
                low=plan.point.low,
                high=plan.point.high,
                passes=predicted(passes[i]),
                step_s=predicted(step),
                prefill_s=predicted(prefill),
                decode_s=predicted(passes[i] * step),
                judge_s=predicted(judging),
                total_s=predicted(prefill + passes[i] * step + judging),
                energy_j=predicted(None if found.energy_j is None else float(found.energy_j[i])),
                held_bytes=predicted(held),
                fits=predicted(held <= capacity_bytes(pricing.device)),
                intervals=_ends(found.numbers, i),
            )
        )
    return rows


def _ends(numbers: dict[str, LogNormal], place: int) -> PlanEnds | None:
    """Intervals of a plan's times; None where nothing is known to err. Without a judge its time is 0, and has none."""
    if not numbers:
        return None
    known = {name: number for name, number in numbers.items() if float(number.value[place]) > 0}
    return PlanEnds(**{name: interval_ends(number, (place,)) for name, number in known.items()})


def with_fronts(rows: Sequence[PlanRow]) -> list[PlanRow]:
    """The same rows, those marked that no other of their batch beats: of those that fit, and that a user could follow."""
    marked = list(rows)
    for batch in dict.fromkeys(row.batch for row in rows):
        here = [i for i, row in enumerate(rows) if row.batch == batch]
        # Of equal plans one is told: a budget of one is the same by every method.
        allowed = [i for i in here if rows[i].attainable and rows[i].fits.value]
        lost = [-rows[i].accuracy.known for i in allowed]
        for name, cost in (("fastest_of_its_accuracy", "total_s"), ("cheapest_of_its_accuracy", "energy_j")):
            costs = [getattr(rows[i], cost).number for i in here]
            if None in costs:
                continue
            paid = np.array([getattr(rows[i], cost).known for i in allowed], float)
            front = {i for i, keep in zip(allowed, is_pareto(paid, np.array(lost, float)), strict=True) if keep}
            for i in here:
                marked[i] = dataclasses.replace(marked[i], **{name: predicted(i in front)})
    return marked


def most_accurate(rows: Sequence[PlanRow], batch: int) -> PlanRow | None:
    """The plan with the highest accuracy that a user could follow and that fits, of equal ones the fastest."""
    allowed = [row for row in rows if row.batch == batch and row.attainable and row.fits.value]
    return max(allowed, key=lambda row: (row.accuracy.known, -row.total_s.known), default=None)


def cheapest(rows: Sequence[PlanRow], accuracy: float, batch: int) -> Chosen:
    """The plans of least time and of least energy that reach an accuracy, by the estimates themselves."""
    reach = [
        row
        for row in rows
        if row.batch == batch and row.attainable and row.fits.value and row.accuracy.known >= accuracy
    ]
    priced = [row for row in reach if row.energy_j.number is not None]
    return Chosen(
        accuracy=given(accuracy),
        by_time=min(reach, key=lambda row: row.total_s.known, default=None),
        by_energy=min(priced, key=lambda row: row.energy_j.known, default=None),
    )
