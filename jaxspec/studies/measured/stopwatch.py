"""Stage: held-out prompts decoded against the clock, with speculation and without, and what was predicted for this machine."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from hwmodels import COMPRESSED_COPY, DraftCost, catalog
from hwmodels.analysis.uncertainty.delta_method import COVERAGE, LogNormal
from jaxspec.errors import InputError
from jaxspec.host.machine import load_per_core, machine_name, measured_title, whole_machine_name
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
from jaxspec.studies.headline_intervals import interval_ends
from jaxspec.studies.measured.clock_prediction import PredictedWay, WayErrors, computed_bits, loop_terms, predict_ways
from jaxspec.studies.measured.run_context import RunContext

__all__ = ["INTERVALS_HOLD", "clocked_way", "is_here", "stopwatch_part"]


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
