"""Stage: held-out prompts decoded against the clock, with speculation and without, and what was predicted for this machine."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from hwmodels import (
    COMPRESSED_COPY,
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
from hwmodels.analysis.uncertainty.cycle_errors import COVERAGE, LogNormal, cycle_numbers, cycle_times
from hwmodels.analysis.uncertainty.kernel_errors import loop_scatter, times_have_errors, without_spreads
from hwmodels.numerics.fast_compile import jit_fast_compile
from hwmodels.speculation import engine_time
from hwmodels.speculation.plan import tree_shape
from hwmodels.step.priced_steps import PricedStep
from jaxspec.errors import InputError
from jaxspec.host.measuring import load_per_core, machine_name, measured_title, whole_machine_name
from jaxspec.host.stopwatch import (
    AUTOREGRESSIVE,
    BELIEVABLE,
    TimedWay,
    Way,
    noise_of,
    repeat_statistics,
    time_ways,
    timed_prompts,
)
from jaxspec.models.architecture import architecture_of
from jaxspec.models.decoder import Params
from jaxspec.results import given, measured, predicted
from jaxspec.results.network_results import (
    LOST_IN_NOISE,
    ClockedWay,
    ClockIntervals,
    PredictedClock,
    Repeated,
    Stopwatch,
)
from jaxspec.runs.stages import Arrays, array_text, text_array
from jaxspec.settings.common import StopwatchSettings
from jaxspec.studies.engine_pricing import engine_terms
from jaxspec.studies.headline_intervals import interval_ends
from jaxspec.studies.measured.run_context import RunContext

__all__ = [
    "INTERVALS_HOLD",
    "PredictedWay",
    "WayErrors",
    "clocked_way",
    "computed_bits",
    "cycle_plan",
    "is_here",
    "loop_terms",
    "predict_ways",
    "stopwatch_part",
    "way_errors",
]

# Predicted time of decoding as it runs on this machine: this network, in the types it computes with, by a device's model.


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


#: What the intervals of predictions are.
INTERVALS_HOLD = (
    f"brackets are {100 * COVERAGE:.0f} % intervals of predictions: errors of steps and cycles that the device's file was not "
    "fitted to, where it states them; tokens are counted, and errors of other load are not included"
)


#: Folder of the stages.
_STAGES = "stopwatch"


class _Timed(NamedTuple):
    """A way with the number of tokens that it drafts."""

    way: TimedWay
    nodes: int


def stopwatch_part(
    work: RunContext,
    device: str,
    stage: str,
    ways: Callable[[], Mapping[str, Way]],
    *,
    cost: DraftCost = COMPRESSED_COPY,
    takes_in: int | None = None,
) -> Stopwatch | None:
    """Time decoding in these ways, or take what was stored; None where the settings do not ask for it.

    Args:
        device: of the result that this becomes part of.
        stage: names these ways among all of the run: what several devices share is timed once.
        ways: made where they are not stored, by name.
        cost: of the draft of all ways, beside this very network.
        takes_in: see `DraftKind`.
    Raises:
        InputError: what was stored was timed on another machine.
    """
    settings: Any = work.config
    if not isinstance(settings, StopwatchSettings) or not settings.stopwatch:
        return None
    setup, config = work.setup, work.config
    count = timed_prompts(len(setup.prompts), config.batch)
    here = work.stages.processes.broadcast(whole_machine_name())

    def compute() -> Arrays:
        made = ways()
        batches = count // config.batch
        programs = (2 * len(made) + 1 + settings.rounds) * batches  # a little less where widths are equal
        with work.reporter.bar("timing decoding", programs) as bar:
            times = time_ways(
                setup.params,
                setup.config,
                work.asked(config.output_tokens, setup.decoding),
                made,
                batch=config.batch,
                repeats=settings.rounds,
                advance=bar.advance,
            )
        nodes = {name: int(way.tree.num_nodes) for name, way in made.items()}
        load = load_per_core()
        timed = {
            name: {"nodes": np.asarray(nodes.get(name, 0))}
            | {key: np.asarray(value) for key, value in vars(way).items()}
            for name, way in times.items()
        }
        parents = {name: np.asarray(way.tree.parent) for name, way in made.items()}
        return {
            "ways": timed,
            "parents": parents,
            "load": np.asarray(math.nan if load is None else load),
            "machine": text_array(here),
        }

    stored = work.stages.run(f"{_STAGES}/{stage}", compute)
    work.stages.processes.all_or_raise(lambda: _check_machine(stored, here, work))
    timed = {name: _read(entry) for name, entry in stored["ways"].items()}
    predictions = _predicted(work, device, stored["parents"], cost, takes_in)
    alone = timed[AUTOREGRESSIVE].way
    noise = max(
        (noise_of(row.way.speedup(alone)) for name, row in timed.items() if name != AUTOREGRESSIVE), default=0.0
    )
    clocked = {
        name: clocked_way(one.way, alone, nodes=one.nodes, prediction=predictions.get(name))
        for name, one in timed.items()
    }
    return Stopwatch(
        machine=machine_name(),
        statement=_statement(device, bool(predictions), any(way.errors is not None for way in predictions.values())),
        unknown=LOST_IN_NOISE if any(way.lost for way in clocked.values()) else None,
        repeats=given(settings.rounds),
        prompts=given(count),
        batch=given(config.batch),
        output_tokens=given(config.output_tokens),
        noise=measured(noise),
        believable=measured(noise <= BELIEVABLE),
        load=measured(float(stored["load"])),
        autoregressive=clocked.pop(AUTOREGRESSIVE),
        ways=clocked,
    )


def _check_machine(stored: Arrays, here: str, work: RunContext) -> None:
    """Refuse times of another machine, which would stand beside those of this one and be called its own."""
    timed_on = array_text(stored["machine"]) if "machine" in stored else ""  # earlier versions stored none
    if timed_on and timed_on != here:
        raise InputError(
            f"decoding was timed on {timed_on}, and this is {here}; go on there, or remove the folder "
            f"{str(work.stages.root / 'stages' / _STAGES)!r}, and the same command times it here"
        )


def is_here(device: str) -> bool:
    """Whether a device is this machine: a file that `jaxspec calibrate` wrote here, by its title.

    Raises:
        EntryError: the file cannot be read, or is no device.
    """
    return device.endswith(".toml") and catalog.device_entry(device).title == measured_title()


def clocked_way(way: TimedWay, alone: TimedWay, *, nodes: int, prediction: PredictedWay | None) -> ClockedWay:
    """One way as a result has it.

    Args:
        alone: decoding without speculation.
        nodes: drafted in each cycle.
        prediction: what was predicted of it; None: nothing.
    """
    samples = {
        "tokens_per_s": way.tokens_per_s,
        "speedup": way.speedup(alone),
        "cycle_s": way.cycle_s,
        "draft_step_s": way.draft_step_s,
        "verify_s": way.verify_s,
    }
    repeated = {
        name: Repeated(**{part: measured(number) for part, number in repeat_statistics(values)._asdict().items()})
        for name, values in samples.items()
    }
    return ClockedWay(
        drafted_tokens=given(nodes),
        tokens_per_cycle=measured(way.tokens_per_cycle),
        tokens_per_turn=measured(way.tokens_per_turn),
        compile_s=measured(way.compile_s),
        equal_tokens=measured(way.agree),
        predicted=None if prediction is None else _predicted_clock(way, alone, prediction),
        **repeated,
    )


def _predicted_clock(way: TimedWay, alone: TimedWay, prediction: PredictedWay) -> PredictedClock:
    """Predicted times with counted tokens."""
    gain = way.tokens_per_turn / alone.tokens_per_turn
    numbers = {
        "tokens_per_s": way.tokens_per_turn / prediction.cycle_s,
        "speedup": gain * prediction.step_s / prediction.cycle_s,
        "cycle_s": prediction.cycle_s,
        "draft_step_s": prediction.draft_s / max(way.steps, 1),
        "verify_s": prediction.verify_s,
    }
    shown = {name: predicted(value) for name, value in numbers.items()}
    return PredictedClock(**shown, intervals=_intervals(numbers, prediction.errors))


def _intervals(numbers: Mapping[str, float], errors: WayErrors | None) -> ClockIntervals | None:
    """What the intervals of a step's or a cycle's parts say of a way's numbers; None where nothing is known to err."""
    if errors is None:
        return None
    deviations = {
        "tokens_per_s": errors.cycle_s,
        "speedup": errors.speedup,
        "cycle_s": errors.cycle_s,
        "draft_step_s": errors.draft_s,
        "verify_s": errors.verify_s,
    }
    ends: dict[str, Any] = {
        name: interval_ends(LogNormal(jnp.asarray(value), jnp.asarray(deviations[name])))
        for name, value in numbers.items()
        if value > 0.0 and math.isfinite(deviations[name])
    }
    return ClockIntervals(coverage=COVERAGE, statement=INTERVALS_HOLD, **ends)


def _predicted(
    work: RunContext, device: str, parents: Mapping[str, np.ndarray], cost: DraftCost, takes_in: int | None
) -> dict[str, PredictedWay]:
    """Predictions by name, of decoding alone too; none where the device is not this machine."""
    if not is_here(device):
        return {}
    setup, config = work.setup, work.config
    predictions = predict_ways(
        work.pricings[device].device,
        architecture_of(setup.config),
        cost,
        list(parents.values()),
        takes_in=takes_in,
        batch=config.batch,
        slots=setup.prompts.shape[1] + config.output_tokens,
        bits=computed_bits(setup.params),
        terms=loop_terms(device),
    )
    errors = predictions[0].errors
    if errors is not None:
        step, zero = errors.step_s, jnp.zeros(())
        errors = dataclasses.replace(errors, cycle_s=step, verify_s=step, draft_s=zero, speedup=zero)
    alone = PredictedWay(predictions[0].step_s, 0.0, predictions[0].step_s, errors)
    return {AUTOREGRESSIVE: alone} | dict(zip(parents, predictions, strict=True))


def _read(entry: Arrays) -> _Timed:
    numbers = {name: value if value.ndim else value.item() for name, value in entry.items() if name != "nodes"}
    return _Timed(TimedWay(**numbers), int(entry["nodes"]))


def _statement(device: str, compared: bool, with_errors: bool) -> str:
    own = "times are those of this machine and this network, which decodes in the types it computes with"
    if compared:
        return f"{own}; predicted for it as {device} describes it{f'; {INTERVALS_HOLD}' if with_errors else ''}"
    return f"{own}; {device}, which is priced, is another machine, and its predictions are not about these times"
