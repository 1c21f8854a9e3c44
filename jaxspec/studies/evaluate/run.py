"""`jaxspec evaluate`: one draft with given knobs, measured, decoded and priced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from jaxspec.compress import Knobs, Scheme, find_scheme, uniform_knobs
from jaxspec.compress.knobs import knobs_of_result
from jaxspec.models.config import DecoderConfig
from jaxspec.report.configurations import operator_time_figure, roofline_figure, tables, tokens_figure
from jaxspec.report.page import figures_of
from jaxspec.report.stopwatch import stopwatch_figure, stopwatch_tables
from jaxspec.report.terminal import Shown, shown_run
from jaxspec.runs.directory import ACCEPTANCE_TRACE, RunDirectory
from jaxspec.runs.execute import execute_record_run
from jaxspec.runs.processes import shared_processes
from jaxspec.runs.progress import Reporter
from jaxspec.settings import expect, knob_values
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.speculate.proof import continuation_length
from jaxspec.speculate.sampling import GREEDY
from jaxspec.studies.evaluate.config import EvaluateConfig
from jaxspec.studies.evaluate.result import EvaluateResult
from jaxspec.studies.measured.checking import CheckedInputs, check_inputs
from jaxspec.studies.measured.common_fields import routed
from jaxspec.studies.measured.comparison import ChainDecoding, compare_configurations
from jaxspec.studies.measured.hard_drafts import HardDrafts, keep_norms
from jaxspec.studies.measured.run_context import RunContext, begin_run, write_gains

__all__ = [
    "evaluate",
    "evaluate_drafts",
    "figures",
    "shown",
]


# What `jaxspec evaluate` shows.


def shown(run: tuple[Sequence[EvaluateResult], RunDirectory]) -> Shown:
    """Tables of one draft for the terminal, from what `evaluate` returned."""
    return shown_run(run, [*tables(run[0]), *stopwatch_tables(run[0])], page="result.json")


#: Figures of one device by name.
figures = figures_of(
    tokens=tokens_figure,
    roofline=roofline_figure,
    operator_time=lambda result: operator_time_figure(result, compared=("given",)),
    stopwatch=stopwatch_figure,
)


#: Main numbers of a result, for `jaxspec runs`.
_HEADLINE = (
    "configurations.given.speedup_vs_bf16_ar",
    "configurations.given.speedup_vs_stored_ar",
    "configurations.given.tokens_per_cycle_counted",
    "lossless.mismatches",
)


def evaluate(
    config: EvaluateConfig, *, out: str | None = None, force: bool = False, reporter: Reporter | None = None
) -> tuple[list[EvaluateResult], RunDirectory]:
    """Measure one draft for every device of the configuration.

    Returns:
        One result per device, with the single configuration "given"; and the run directory.
    Raises:
        InputError: bad input; nothing is lost.
    """

    processes = shared_processes()

    @cache
    def checked() -> tuple[CheckedInputs, Knobs]:
        inputs = check_inputs(config)
        return inputs, _given_knobs(config, find_scheme(config.scheme, runs=True), inputs.network)

    def prepare(directory: RunDirectory, reporter: Reporter) -> Callable[[], list[EvaluateResult]]:
        inputs, knobs = checked()
        work = begin_run(config, directory, reporter, inputs, processes=processes)
        drafts = {"given": knobs}

        def results() -> list[EvaluateResult]:
            hard = routed(evaluate_drafts(config, work))
            greedy = work.setup.decoding == GREEDY
            gains = MAX_DRAFT_LENGTH if greedy else None  # a trace serves all draft lengths
            decoding = ChainDecoding(hard, longest=knobs.draft_length, gains=gains)
            compare = partial(compare_configurations, EvaluateResult, decoding, drafts=drafts, hero="given", choices={})
            compared = [compare(device) for device in work.pricings]
            keep_norms(hard, directory)
            gained = decoding.predicted(knobs, "given").get("gained")
            if greedy and gained is not None:
                tokens = np.minimum(decoding.autoregressive(GREEDY)["generated"], config.output_tokens)
                write_gains(work, directory.path / ACCEPTANCE_TRACE, {"given": gained}, tokens)
            return compared

        return results

    expect(EvaluateConfig, config)
    how: dict[str, Any] = dict(out=out, force=force, reporter=reporter, headline=_HEADLINE, processes=processes)
    return execute_record_run("evaluate", config, prepare, check=checked, kind=EvaluateResult, **how)


def evaluate_drafts(config: EvaluateConfig, work: RunContext) -> HardDrafts:
    """The hard drafts of a run, with the text that they are calibrated on."""
    return HardDrafts(work, continuation_length(config.output_tokens))


def _given_knobs(config: EvaluateConfig, scheme: Scheme, network: DecoderConfig) -> Knobs:
    """Those of an earlier run, or the same everywhere."""
    if config.knobs is not None:
        return knobs_of_result(config.knobs, scheme, network)
    return uniform_knobs(scheme, network, knob_values(config), draft_length=config.draft_length)
