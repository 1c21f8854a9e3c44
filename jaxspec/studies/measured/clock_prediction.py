"""Predicted time of decoding as it runs on this machine: this network, in the types it computes with, by a device's model.

What a command prices otherwise is another network, in the bits of a storage scheme. What runs is this one: weights and caches
in the types of its arrays, attention over all slots of the cache, and a draft network that processes anew what was committed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from hwmodels import (
    Architecture,
    Case,
    CycleCost,
    Device,
    DraftCost,
    EngineTerms,
    Footprint,
    Plan,
    Workload,
    catalog,
    plan_family,
    price,
    tree_plan,
    uniform_footprint,
)
from hwmodels.analysis.uncertainty.cycle_errors import cycle_numbers, cycle_times
from hwmodels.analysis.uncertainty.kernel_errors import loop_scatter, times_have_errors, without_spreads
from hwmodels.numerics.fast_compile import jit_fast_compile
from hwmodels.speculation import engine_time
from hwmodels.speculation.plan import tree_shape
from hwmodels.step.priced_steps import PricedStep
from jaxspec.models.decoder import Params
from jaxspec.studies.engine_pricing import engine_terms


@flax.struct.dataclass
class WayErrors:
    """Standard deviations of the logarithms of a way's predicted numbers, leaves " way"; of what takes no time no number."""

    step_s: Float[Array, " way"]  # of decoding without speculation
    draft_s: Float[Array, " way"]
    verify_s: Float[Array, " way"]
    cycle_s: Float[Array, " way"]  # and of tokens per second
    speedup: Float[Array, " way"]


def way_errors(
    device: Device,
    cycle: CycleCost,
    runs: Float[np.ndarray, "way kind"],
    *,
    draft_engine_s: Float[np.ndarray, " way"],
    engine_s: Float[np.ndarray, " way"],
) -> list[WayErrors] | None:
    """Errors of each way of a family, by `cycle_numbers`; None where nobody measured how far the device's times lie off.

    Args:
        device: of this machine.
        cycle: of the family, as priced.
        runs: how often the draft runs each kind of its steps in a cycle.
        draft_engine_s, engine_s: what the loop adds to draft steps, and to the rest of a cycle. Whole cycles err by
            `loop_scatter` beside their steps; of the parts' shares in it nothing is known, so that each errs by all of it.
    """
    scatter = loop_scatter(device)
    if not times_have_errors(device) and not scatter:
        return None
    of_steps = without_spreads(device, "cycles")  # what those say is in the scatter
    errors = jax.device_get(_errors(of_steps, cycle, runs, draft_engine_s, engine_s, np.float32(scatter)))
    return [jax.tree.map(lambda leaf, at=at: float(leaf[at]), errors) for at in range(len(runs))]


@jit_fast_compile
def _errors(
    device: Device,
    cycle: CycleCost,
    runs: Float[Array, "way kind"],
    draft_engine_s: Float[Array, " way"],
    engine_s: Float[Array, " way"],
    scatter: Float[Array, ""],
) -> WayErrors:
    stored = cycle.baselines.stored

    def of_way(verify: PricedStep, often: Array, of_draft: Array, of_rest: Array) -> WayErrors:
        def numbers(steps, added_s: Array):
            times = cycle_times(device, bf16=stored, stored=stored, cycle=steps, engine_s=added_s, scatter=scatter)
            return cycle_numbers(times, jnp.zeros(1), jnp.zeros((1, 0)))  # tokens are counted: one stands for all

        drafts, rest = cycle.draft_runs(often), (1.0, verify)
        whole = numbers([*drafts, rest], of_draft + of_rest)
        return WayErrors(
            step_s=whole["ar_stored_s"].log_deviation,
            draft_s=numbers(drafts, of_draft)["cycle_s"].log_deviation,
            verify_s=numbers([rest], of_rest)["cycle_s"].log_deviation,
            cycle_s=whole["cycle_s"].log_deviation,
            speedup=whole["speedup_vs_stored_ar"].log_deviation,
        )

    return jax.vmap(of_way)(cycle.verify, runs, draft_engine_s, engine_s)


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
    priced = _priced(without_spreads(device), architecture, uniform_footprint(bits), cost, workload, plans)
    parts = (priced.baselines.stored.cost.total_s, priced.draft_s, priced.verify_s)
    step_s, draft_s, verify_s = (np.asarray(x, np.float64) for x in jax.device_get(parts))
    of_tokens = {"drafted_token_s": 0.0, "drafted_token_layer_s": 0.0}
    per_cycle = dataclasses.replace(terms, draft_pass_s=0.0, mapped_pass_s=0.0, **of_tokens)
    options = {"target": architecture, "draft_cost": draft, "batch": float(batch)}
    every, cycles = (np.asarray(engine_time(each, spent, **options)) for each in (terms, per_cycle))
    errors = way_errors(
        device,
        priced,
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


@jit_fast_compile
def _priced(
    device: Device, architecture: Architecture, footprint: Footprint, draft: DraftCost, workload: Workload, plans: Plan
) -> CycleCost:
    return price(Case(device, architecture, workload=workload, footprint=footprint, draft=draft), plans)
