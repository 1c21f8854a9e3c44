"""Predicted time of decoding as it runs on this machine: this network, in the types it computes with, by a device's model.

What a command prices otherwise is another network, in the bits of a storage scheme. What runs is this one: weights and caches
in the types of its arrays, attention over all slots of the cache, and a draft network that processes anew what was committed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Int

from hwmodels import (
    Architecture,
    CycleCost,
    Device,
    DraftCost,
    EngineTerms,
    Footprint,
    Plan,
    Workload,
    catalog,
    engine_time,
    plan_family,
    price_cycle,
    tree_plan,
    uniform_footprint,
)
from hwmodels.analysis.uncertainty.kernel_errors import without_spreads
from hwmodels.numerics.quick_jit import quick_jit
from hwmodels.speculation.plan import tree_shape
from jaxspec.models.decoder import Params
from jaxspec.studies.engine_pricing import engine_terms
from jaxspec.studies.measured.clock_errors import WayErrors, way_errors

__all__ = ["PredictedWay", "computed_bits", "cycle_plan", "loop_terms", "predict_ways"]


@dataclasses.dataclass(frozen=True)
class PredictedWay:
    """Seconds of one way to decode.

    Attributes:
        step_s: of decoding without speculation, at width 1.
        draft_s: of all draft steps of a cycle.
        verify_s: of the rest of the cycle.
        errors: of each; None: nobody knows.
    """

    step_s: float
    draft_s: float
    verify_s: float
    errors: WayErrors | None = None

    @property
    def cycle_s(self) -> float:
        """Of a cycle."""
        return self.draft_s + self.verify_s


def computed_bits(params: Params) -> float:
    """Bits of a weight as it lies in memory while a network runs: those of its largest array."""
    largest = max(jax.tree.leaves(params), key=lambda leaf: leaf.size)
    return 8.0 * largest.dtype.itemsize


def loop_terms(device: str) -> EngineTerms:
    """What this package's own loop spends on a machine, as its calibrated file says; else as the catalog's engine does.

    Args:
        device: a name of the catalog, or a file.
    Raises:
        EntryError: the file cannot be read, or is no device.
    """
    return engine_terms(catalog.OWN_ENGINE, device)


def cycle_plan(parent: Int[np.ndarray, " node"], takes_in: int | None) -> Plan:
    """Plan of a cycle as it runs here.

    Args:
        parent: of each node, as of `tree_plan`.
        takes_in: places beyond a cycle's longest yield that the draft processes anew in its first step (see `DraftKind`);
            None: it processes the root alone.
    """
    plan = tree_plan(parent)
    if takes_in is None:
        return plan
    window = float(tree_shape(parent).depth.max() + 1 + takes_in)
    anew = Plan(
        draft_tokens=np.array([1.0, window], np.float32),
        draft_visible=np.array([1.0, (window + 1.0) / 2.0], np.float32),
        draft_repeats=np.array([-1.0, 1.0], np.float32),
        verify_tokens=plan.verify_tokens,
        verify_visible=plan.verify_visible,
    )
    both = plan_family([plan, anew])
    return Plan(
        draft_tokens=both.draft_tokens,
        draft_visible=both.draft_visible,
        draft_repeats=np.asarray(both.draft_repeats).sum(axis=0),
        verify_tokens=plan.verify_tokens,
        verify_visible=plan.verify_visible,
    )


def predict_ways(
    device: Device,
    architecture: Architecture,
    draft: DraftCost,
    parents: Sequence[Int[np.ndarray, " node"]],
    *,
    takes_in: int | None,
    batch: int,
    slots: float,
    bits: float,
    terms: EngineTerms,
) -> list[PredictedWay]:
    """Predict the ways of one draft that differ by their trees.

    Args:
        device: of this machine.
        architecture: of the network that runs.
        draft: its cost beside this very network.
        parents: of each tree's nodes.
        slots: of the cache.
        bits: of weights and cached elements.
        terms: of this package as an engine.
    """
    plans = plan_family([cycle_plan(parent, takes_in) for parent in parents])
    spent = plan_family([tree_plan(parent) for parent in parents])  # what is taken in is not drafted
    workload = Workload(batch=float(batch), context_tokens=float(slots))
    cost = dataclasses.replace(draft, statement="")  # for readers: it must not compile anew
    found = _priced(without_spreads(device), architecture, uniform_footprint(bits), cost, workload, plans)
    parts = (found.baselines.stored.cost.total_s, found.draft_s, found.verify_s)
    step_s, draft_s, verify_s = (np.asarray(x, np.float64) for x in jax.device_get(parts))
    per_cycle = dataclasses.replace(terms, draft_pass_s=0.0, mapped_pass_s=0.0, drafted_token_s=0.0)
    options = {"target": architecture, "draft_cost": draft, "batch": float(batch)}
    every, cycles = (np.asarray(engine_time(each, spent, **options)) for each in (terms, per_cycle))
    errors = way_errors(
        device,
        found,
        np.asarray(plans.draft_repeats, np.float32) * np.float32(cost.passes),
        draft_engine_s=np.broadcast_to(every - cycles, draft_s.shape).astype(np.float32),
        engine_s=np.broadcast_to(cycles, draft_s.shape).astype(np.float32),
    )
    draft_s, verify_s = draft_s + every - cycles, verify_s + cycles
    rows = zip(draft_s.tolist(), np.broadcast_to(verify_s, draft_s.shape).tolist(), strict=True)
    return [
        PredictedWay(float(step_s), *row, errors=err)
        for row, err in zip(rows, errors or [None] * len(parents), strict=True)
    ]


@quick_jit
def _priced(
    device: Device,
    architecture: Architecture,
    footprint: Footprint,
    draft: DraftCost,
    workload: Workload,
    plans: Plan,
) -> CycleCost:
    return price_cycle(device, architecture, footprint=footprint, draft_cost=draft, workload=workload, plan=plans)
