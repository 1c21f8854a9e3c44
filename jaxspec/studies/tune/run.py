"""`jaxspec tune` from end to end: calibrate, compare, tune, harden, prove, report. Every stage is kept and resumed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hwmodels import Case
from jaxspec.compress.footprint import limited_draft_bits, mean_draft_bits
from jaxspec.compress.knobs import Knobs, harden, uniform_knobs
from jaxspec.models.stored import SMALL
from jaxspec.report.page import device_slugs
from jaxspec.results import given, measured, predicted
from jaxspec.runs.directory import RunDirectory, read_metrics
from jaxspec.runs.execute import execute_record_run
from jaxspec.runs.processes import shared_processes
from jaxspec.runs.progress import Reporter
from jaxspec.runs.stages import Arrays
from jaxspec.settings import expect
from jaxspec.speculate.proof import continuation_length
from jaxspec.studies.measured.checking import check_inputs, window_tokens
from jaxspec.studies.measured.common_fields import routed
from jaxspec.studies.measured.comparison import ChainDecoding, compare_configurations
from jaxspec.studies.measured.hard_drafts import HardDrafts, keep_norms
from jaxspec.studies.measured.run_context import LoadedInputs, RunContext, begin_run
from jaxspec.studies.tune.config import TuneConfig
from jaxspec.studies.tune.result import GridPoint, TuneResult
from jaxspec.studies.tune.view import with_calibration, write_report
from jaxspec.tuning.compression_objective import (
    best_length,
    compiled_j,
    grid_knobs,
    grid_points,
    num_candidates,
    token_acceptance,
    two_stages,
)
from jaxspec.tuning.gradient import HISTORY, Ascent, Goal, Program, ascend, compile_returns, from_coordinates
from jaxspec.tuning.objective import DraftMeasurement


def grid_rows(grid: Sequence[DraftMeasurement], setup: LoadedInputs, pricing: Case) -> list[GridPoint]:
    """Every grid point's row of the result, on one device. Args: grid: measurements in the order of `grid_points`."""
    rows, scheme = [], setup.scheme
    for point, knobs, measurement in zip(grid_points(scheme), grid_knobs(scheme, setup.config), grid, strict=True):
        length, speedup = best_length(pricing, measurement)
        has_j = scheme.facts.prunes_and_cuts
        rows.append(
            GridPoint(
                alpha_token=measured(token_acceptance(measurement.survival, length)),
                bits_per_weight=measured(float(mean_draft_bits(measurement.footprint))),
                draft_length=predicted(length),
                speedup_vs_bf16_ar=predicted(speedup),
                relative_j=measured(float(compiled_j(setup.config)(pricing, measurement, knobs)) if has_j else None),
                knobs={name: given(value) for name, value in point.items()},
            )
        )
    return rows


#: Rounding knobs to whole bits may overstep a limit a little; this share of it is let pass.
_ROUNDING_ALLOWANCE = 0.02


#: Numbers of a scored candidate.
_KEPT = ("speedup", "excess", "value")


def validation_drafts(config: TuneConfig, drafts: HardDrafts) -> HardDrafts:
    """The same drafts on validation text, which no pass sees: windows of calibration text between its own, or every third.

    There are fewer windows between than windows; programs are those of as many (see `HardDrafts.padded_windows`).
    Conversations, say, are too short for windows between.
    """
    own, between = drafts.work.setup.calibration_prompts, windows_between(config, drafts)
    if between is None:
        left_out = np.setdiff1d(np.arange(len(own)), tuning_windows(config, drafts))
        return drafts.on_own_windows(left_out, "finals") if len(left_out) else drafts
    return drafts.on_windows(between, "finals", padded_windows=len(own))


def windows_between(config: TuneConfig, drafts: HardDrafts) -> np.ndarray | None:
    """Windows of calibration text between those of a run; None: it has less than half as many."""
    text, tokens = drafts.work.setup.text, window_tokens(config)[0]
    between = text.calibration_between(config.calibration_prompts, tokens, config.seed, ahead=config.prompt_tokens)
    return None if len(between) < config.calibration_prompts / 2 else between


def tuning_windows(config: TuneConfig, drafts: HardDrafts) -> np.ndarray:
    """Numbers of the windows that passes may take: all, or two of three where every third validates."""
    windows = np.arange(len(drafts.work.setup.calibration_prompts))
    return windows if windows_between(config, drafts) is not None else windows[windows % 3 != 2]


class ScoredCandidate(NamedTuple):
    """A hard candidate.

    Attributes:
        knobs: hardened, with the draft length that pays best on validation text.
        speedup: over 16-bit decoding, predicted there.
        excess: by how much it oversteps limits, as shares of them.
        value: of the run's objective; more is better.
    """

    knobs: Knobs
    speedup: float
    excess: float
    value: float

    @property
    def rank(self) -> tuple[float, float]:
        """More is better: a candidate that oversteps a limit loses to any that oversteps it less."""
        return -self.excess, self.value


class CandidateScorer:
    """Scores candidates by a run's own objective and limits.

    Limits are about the calibration text that knobs are tuned on, as a result shows them.
    """

    def __init__(self, config: TuneConfig, drafts: HardDrafts, validation: HardDrafts):
        """Args: validation: the same drafts on validation text."""
        self._config, self._drafts, self._validation = config, drafts, validation

    @cached_property
    def draft_budget(self) -> float | None:
        """Bits per weight to keep to: given, or those of the default where quality alone is the objective."""
        if self._config.draft_bits is not None or self._config.objective == "speedup":
            return self._config.draft_bits
        setup = self._drafts.work.setup
        default = self._drafts.measured(uniform_knobs(setup.scheme, setup.config))
        return float(mean_draft_bits(default.footprint))

    def score(
        self, pricing: Case, knobs: Knobs, measure: Callable[[Knobs], DraftMeasurement] | None = None
    ) -> ScoredCandidate:
        """A candidate, hardened.

        Args:
            measure: None: on validation text.
        """
        config, knobs = self._config, harden(knobs)
        measured = (measure or self._validation.measured)(knobs)
        length, speedup = best_length(pricing, measured)
        value = {"speedup": speedup, "kl": -float(measured.kl), "bits_per_byte": -self._bits_per_byte(measured)}
        return ScoredCandidate(
            harden(knobs, draft_length=length), speedup, self._excess(knobs), value[config.objective]
        )

    def _bits_per_byte(self, measured: DraftMeasurement) -> float:
        return float(measured.cross_entropy) / np.log(2) / self._drafts.work.setup.bytes_per_token

    def _excess(self, knobs: Knobs) -> float:
        """By how much a hard draft oversteps the limits, as shares of them."""
        config = self._config
        if config.max_kl is None and config.max_bits_per_byte is None and self.draft_budget is None:
            return 0.0
        measured = self._drafts.measured(knobs)
        limits = (
            (float(measured.kl), config.max_kl),
            (self._bits_per_byte(measured), config.max_bits_per_byte),
            *((float(bits), self.draft_budget) for bits in limited_draft_bits(measured.footprint)),
        )
        return sum(max(got / limit - 1 - _ROUNDING_ALLOWANCE, 0.0) for got, limit in limits if limit is not None)

    def prepare(self) -> None:
        """Calibrate on validation text, which is a stage with a bar of its own."""
        _ = self._validation.calibration


def scores_to_arrays(candidates: Sequence[ScoredCandidate]) -> dict[str, np.ndarray]:
    """Scores as a run stores them; the candidates' knobs follow from the stages before."""
    rows = {name: np.array([getattr(one, name) for one in candidates]) for name in _KEPT}
    return rows | {"draft_length": np.array([one.knobs.draft_length for one in candidates])}


def scores_from_arrays(candidates: Sequence[Knobs], kept: Mapping[str, np.ndarray]) -> list[ScoredCandidate]:
    """Inverse of `scores_to_arrays`."""
    lengths, numbers = kept["draft_length"].tolist(), zip(*(kept[name].tolist() for name in _KEPT), strict=True)
    hardened = [harden(knobs, draft_length=length) for knobs, length in zip(candidates, lengths, strict=True)]
    return [
        ScoredCandidate(knobs, **dict(zip(_KEPT, row, strict=True)))
        for knobs, row in zip(hardened, numbers, strict=True)
    ]


def best_of(candidates: Sequence[ScoredCandidate]) -> ScoredCandidate:
    """The best candidate; the first on a tie."""
    return max(candidates, key=lambda candidate: candidate.rank)


_STAGE = "search-by-j"


#: Windows of calibration text that it measures on: Cassandra, VII-B.2, after Draft & Verify.
_SAMPLES = 8


def search_by_j(drafts: HardDrafts, pricing: Case) -> Knobs:
    """The draft that the search finds; a stage. J knows no device: each of a run's gives the same.

    Args:
        drafts: of a scheme that prunes and cuts; their first windows are measured on.
    """
    setup, work = drafts.work.setup, drafts.work
    few = drafts.on_windows(setup.calibration_prompts[:_SAMPLES], "few-samples")

    def compute() -> Arrays:
        with work.bar("searching a grid in two stages by J", num_candidates()) as bar:

            def score(knobs: Knobs) -> float:
                relative_j = float(compiled_j(setup.config)(pricing, few.measure(knobs), knobs))
                bar.advance(f"J {relative_j:.3f} of a whole draft's")
                return relative_j

            return dict(two_stages(setup.scheme, setup.config, pricing, score).values)

    if not work.stages.has(_STAGE):
        _ = few.calibration  # stages of its own, whose bars may not begin inside this one
    values = work.stages.run(_STAGE, compute)
    return uniform_knobs(setup.scheme, setup.config).replace_values(**jax.tree.map(jnp.asarray, values))


#: Main numbers of a result, for `jaxspec runs`.
_HEADLINE = (
    "configurations.tuned.speedup_vs_bf16_ar",
    "configurations.tuned.speedup_vs_stored_ar",
    "configurations.tuned.tokens_per_cycle_counted",
    "lossless.mismatches",
)


#: Every point of the grid is measured on one of so many windows.
_GRID_SHARE = 4

#: Points of the grid that come so near the best one, at most so many, are scored once more, on all validation text.
_GRID_NEAR, _GRID_FINALS = 0.03, 4


class Tuning:
    """One run of `jaxspec tune`.

    Attributes:
        metrics: lines of metrics.jsonl, one for each step of each ascent.
        programs: of ascents by device, where they are compiled in a thread.
    """

    def __init__(self, config: TuneConfig, work: RunContext):
        self.config, self.work = config, work
        self.setup, self.stages, self.reporter = work.setup, work.stages, work.reporter
        self.drafts = tune_drafts(config, work)
        self.metrics: list[dict[str, Any]] = []
        self.programs: dict[str, Future[Program]] = {}
        self.slugs = dict(zip(config.device, device_slugs(config.device), strict=True))

    def run(self) -> list[TuneResult]:
        """All stages; one result per device."""
        self.drafts = routed(self.drafts)
        self.work = self.drafts.work
        decoding = ChainDecoding(self.drafts)
        _ = self.drafts.calibration  # a stage of its own: neither its bar nor its arrays may begin inside another
        if self.setup.config.num_parameters() <= SMALL and self.drafts.calibration.mesh is None:
            self._compile_ahead(decoding)
        grid = self._measure_grid()
        chosen = {device: self._choose(grid, device, pricing) for device, pricing in self.work.pricings.items()}
        return [self._result(decoding, device, scored, grid) for device, scored in chosen.items()]

    def _result(
        self, decoding: ChainDecoding, device: str, scored: dict[str, ScoredCandidate], grid: list[DraftMeasurement]
    ) -> TuneResult:
        result = compare_configurations(
            TuneResult,
            decoding,
            device,
            {name: each.knobs for name, each in scored.items()},
            hero="tuned",
            choices=_CHOICES,
            objective=self.config.objective,
            grid=grid_rows(grid, self.setup, self.work.pricings[device]),
        )
        speedups = {name: each.speedup for name, each in scored.items() if name != "default"}
        return with_calibration(result, speedups)

    @cached_property
    def scorer(self) -> CandidateScorer:
        """Scores candidates on windows between those that are tuned on."""
        return CandidateScorer(self.config, self.drafts, validation_drafts(self.config, self.drafts))

    def _compile_ahead(self, decoding: ChainDecoding) -> None:
        """In a thread, compile what comes after the grid: of a small network it takes longer than all that is computed."""
        thread = ThreadPoolExecutor(1)
        start = harden(grid_knobs(self.setup.scheme, self.setup.config)[0], draft_length=1)
        blank = jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), self._form)
        for device, pricing in self.work.pricings.items():
            thread.submit(best_length, pricing, blank)  # first, as the grid's points are priced before all else
            if self.config.objective == "speedup" and not self.stages.has(self._ascent_name("tuned", device)):
                given = start, self.drafts.calibration, pricing, self.goal, tuning_windows(self.config, self.drafts)
                self.programs[device] = thread.submit(compile_returns, *given)
        thread.submit(decoding.compile)
        thread.shutdown(wait=False)

    @cached_property
    def goal(self) -> Goal:
        """What all ascents climb."""
        config, setup = self.config, self.setup
        return Goal(
            windows_per_step=config.windows_per_step,
            objective=config.objective,
            max_kl=config.max_kl,
            max_bits_per_byte=config.max_bits_per_byte,
            draft_bits=self.scorer.draft_budget,
            bytes_per_token=setup.bytes_per_token,
            decode_temperature=config.surrogate_temperature if setup.decoding.greedy else config.temperature,
        )

    @cached_property
    def _form(self) -> DraftMeasurement:
        """Shapes of what is measured of a draft."""
        point = grid_knobs(self.setup.scheme, self.setup.config)[0]
        return jax.eval_shape(self.drafts.measure, point)

    def _ascent_name(self, stage: str, device: str) -> str:
        return f"balance/{self.slugs[device]}-{stage}"

    def _measure_grid(self) -> list[DraftMeasurement]:
        """Every grid point's draft on calibration text; what it costs is a matter of the device, later."""
        points = grid_knobs(self.setup.scheme, self.setup.config)
        structure = jax.tree.structure(self._form)
        windows = max(1, len(self.drafts.text) // _GRID_SHARE)

        def compute() -> Arrays:
            rows = []
            with self.reporter.bar("measuring the uniform grid", len(points)) as bar:
                for knobs in points:
                    measured = jax.device_get(self.drafts.measure(knobs, windows=windows))
                    rows.append(jax.tree.leaves(measured))
                    alpha, bits = float(measured.survival[0]), float(mean_draft_bits(measured.footprint))
                    bar.advance(f"first draft token accepted {alpha:.3f} at {bits:.2f} bits per weight")
            return {f"{i:02d}": np.stack(leaves) for i, leaves in enumerate(zip(*rows, strict=True))}

        stored = self.stages.run("grid", compute)
        leaves = [stored[name] for name in sorted(stored)]
        return [jax.tree.unflatten(structure, [leaf[i] for leaf in leaves]) for i in range(len(points))]

    def _choose(self, grid: list[DraftMeasurement], device: str, pricing: Case) -> dict[str, ScoredCandidate]:
        """The configurations of a device, hardened, each with its own best draft length."""
        setup, config, scorer = self.setup, self.config, self.scorer
        default = scorer.score(pricing, uniform_knobs(setup.scheme, setup.config), self.drafts.measured)
        points = grid_knobs(setup.scheme, setup.config)
        speedups = np.array([best_length(pricing, row)[1] for row in grid])
        best = np.argsort(-speedups, kind="stable")[:_GRID_FINALS]
        near = best[speedups[best] >= (1 - _GRID_NEAR) * speedups.max()]
        finalists = self._score_candidates("the best grid points", device, pricing, [points[i] for i in near])
        best_point = max(finalists, key=lambda candidate: candidate.speedup)

        ascent = Ascent(steps=config.uniform_steps, learning_rate=config.learning_rate, seed=config.seed, tied=True)
        soft = self._ascend("uniform", pricing, best_point.knobs, ascent, device)[-1]
        # A soft pair lies between two whole numbers of bits: evaluate both roundings and the best grid point; keep the best.
        whole = [spec.name for spec in setup.scheme.knob_specs if spec.whole and spec.per in ("matrix", "head")]
        candidates = [
            soft.replace_values(**{name: jnp.asarray(rounded(soft.values[name])) for name in whole})
            for rounded in (np.floor, np.ceil)
        ]
        if setup.scheme.facts.prunes:
            # A bitmap takes a bit per weight, so that a draft that prunes nothing is no neighbour of any that does.
            nothing = jnp.zeros_like(soft.values["weight_prune"])
            candidates += [candidate.replace_values(weight_prune=nothing) for candidate in candidates]
        uniform = best_of(
            self._score_candidates("pairs for all matrices", device, pricing, [*candidates, best_point.knobs])
        )

        ascent = dataclasses.replace(ascent, steps=config.steps, tied=False)
        starts = {"tuned": best_point.knobs}
        if _prunes(best_point.knobs) and not _prunes(uniform.knobs):
            # Between drafts that prune and those that do not lies the bitmap's price: no small move crosses it.
            starts["tuned-from-uniform"] = uniform.knobs
        drafts = {
            (stage, place): path[place]
            for stage, start in starts.items()
            for path in [self._ascend(stage, pricing, start, ascent, device)]
            # The last, and two before it, evenly spread.
            for place in sorted({config.steps - 1 - round(i * config.steps / 3) for i in range(3)})
        }
        scored = self._score_candidates("tuned drafts", device, pricing, [*drafts.values(), uniform.knobs])
        # Text that no step saw stops the ascent where it stops to pay.
        tuned = best_of(scored)
        self._add_curve(device, pricing, dict(zip(drafts, scored, strict=False)))
        if (which := [one is tuned for one in scored].index(True)) < len(drafts):
            roundings = _roundings(list(drafts.values())[which])
            tuned = best_of([tuned, *self._score_candidates("other roundings of the best", device, pricing, roundings)])
        chosen = {"default": default, "grid": best_point, "uniform": uniform, "tuned": tuned}
        if config.j_grid:
            by_j = search_by_j(self.drafts, pricing)
            (chosen["j_grid"],) = self._score_candidates("the draft that J chooses", device, pricing, [by_j])
        return chosen

    def _score_candidates(
        self, what: str, device: str, pricing: Case, candidates: Sequence[Knobs]
    ) -> list[ScoredCandidate]:
        """Candidates on validation text."""
        # Which ones they are may differ in another version, whose prices do.
        which = ChainDecoding(self.drafts).name_of({str(place): knobs for place, knobs in enumerate(candidates)})
        name = f"judged/{self.slugs[device]}-{which}"

        def compute() -> Arrays:
            scored = []
            with self.reporter.bar(f"judging {what} for {device}", len(candidates)) as bar:
                for knobs in candidates:
                    scored.append(self.scorer.score(pricing, knobs))
                    bar.advance(f"speedup {scored[-1].speedup:.3f}x")
            return scores_to_arrays(scored)

        if not self.stages.has(name):
            self.scorer.prepare()  # a stage of its own
        return scores_from_arrays(candidates, self.stages.run(name, compute))

    def _ascend(self, stage: str, pricing: Case, start: Knobs, ascent: Ascent, device: str) -> list[Knobs]:
        """Soft knobs after each step."""
        description = "tuning one pair for all matrices" if ascent.tied else "tuning every matrix"
        name = self._ascent_name(stage, device)

        def compute() -> Arrays:
            with (
                self.stages.progress(name) as progress,
                self.reporter.bar(f"{description} for {device}", ascent.steps) as bar,
            ):

                def on_step(step: int, speedup: float) -> None:
                    bar.jump(step, f"speedup {speedup:.3f}x")
                    self.stages.tick(name)

                among = tuning_windows(self.config, self.drafts)
                how: dict[str, Any] = {"among": among, "progress": progress, "on_step": on_step}
                if device in self.programs:
                    how["program"] = self.programs[device].result()
                climb = ascend(self.drafts.calibration, pricing, start, self.goal, ascent, **how)
            return {"history": climb.history, "path": climb.path}

        stored = self.stages.run(name, compute)
        for step, row in enumerate(stored["history"]):
            columns = dict(zip(HISTORY, row.tolist(), strict=True))
            self.metrics.append({"device": device, "stage": stage, "step": step + 1, **columns})
        return [
            from_coordinates({knob: places[step] for knob, places in stored["path"].items()}, start)
            for step in range(ascent.steps)
        ]

    def _add_curve(self, device: str, pricing: Case, scored: dict[tuple[str, int], ScoredCandidate]) -> None:
        """Speedups of the hard drafts along each ascent, on the text tuned on and on validation text.

        Args:
            scored: drafts by ascent and step.
        """
        lines = {(line["stage"], line["step"]): line for line in self.metrics if line["device"] == device}
        which = ChainDecoding(self.drafts).name_of({str(i): each.knobs for i, each in enumerate(scored.values())})
        name = f"seen/{self.slugs[device]}-{which}"

        def compute() -> Arrays:
            rows = []
            with self.reporter.bar(f"measuring drafts on the text tuned on, for {device}", len(scored)) as bar:
                for each in scored.values():
                    rows.append(best_length(pricing, self.drafts.measured(each.knobs))[1])
                    bar.advance(f"speedup {rows[-1]:.3f}x")
            return {"speedup": np.array(rows)}

        seen = self.stages.run(name, compute)["speedup"]
        for ((stage, place), each), speedup in zip(scored.items(), seen, strict=True):
            lines[stage, place + 1] |= {"hard_speedup_seen": float(speedup), "hard_speedup_unseen": each.speedup}


def _prunes(knobs: Knobs) -> bool:
    """Whether any matrix omits weights."""
    return knobs.scheme.facts.prunes and bool(np.any(knobs.values["weight_prune"]))


def _roundings(soft: Knobs) -> list[Knobs]:
    """The same soft draft, its whole knobs moved a little each way: rounding hundreds of them moves the speedup by 1 or 2 %."""
    whole = [spec for spec in soft.scheme.knob_specs if spec.whole]
    return [
        soft.replace_values(
            **{spec.name: jnp.clip(soft.values[spec.name] + shift, spec.low, spec.high) for spec in whole}
        )
        for shift in _ROUNDING_SHIFTS
        if whole
    ]


#: Bits by which whole knobs are moved before they are rounded.
_ROUNDING_SHIFTS = (-0.3, -0.15, 0.15, 0.3)

#: Configuration -> what the program chose; the knobs of the default are a paper's.
_CHOICES = {"default": ("draft_length",)} | dict.fromkeys(
    ("j_grid", "grid", "uniform", "tuned"), ("knobs", "draft_length")
)


def tune_drafts(config: TuneConfig, work: RunContext) -> HardDrafts:
    """The hard drafts of a run, with the text that they are calibrated on."""
    # Bits per byte are about the text as it was written.
    as_written = config.objective == "bits_per_byte" or config.max_bits_per_byte is not None
    return HardDrafts(work, continuation_length(config.measured_tokens), on_own_text=as_written)


def tune(
    config: TuneConfig,
    *,
    out: str | None = None,
    force: bool = False,
    reporter: Reporter | None = None,
) -> tuple[list[TuneResult], RunDirectory]:
    """Tune a draft for every device of the configuration, or return the result of a finished run.

    Returns:
        One result per device, as in result.json, and the run directory, which also holds the report.
    Raises:
        InputError: bad input; nothing is lost.
    """

    processes = shared_processes()
    checked = cache(lambda: check_inputs(config))

    def prepare(directory: RunDirectory, reporter: Reporter) -> Callable[[], list[TuneResult]]:
        loaded = begin_run(
            config, directory, reporter, checked(), gradient_windows=config.windows_per_step, processes=processes
        )
        run = Tuning(config, loaded)

        def work() -> list[TuneResult]:
            results = run.run()
            directory.write_metrics(run.metrics)
            keep_norms(run.drafts, directory)
            return results

        return work

    expect(TuneConfig, config)
    how: dict[str, Any] = dict(out=out, force=force, reporter=reporter, headline=_HEADLINE, processes=processes)
    return execute_record_run(
        "tune",
        config,
        prepare,
        check=checked,
        kind=TuneResult,
        write=lambda results, path: write_report(results, read_metrics(path), path),
        **how,
    )
