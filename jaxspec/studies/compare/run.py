"""`jaxspec compare`: drafts of every kind and lossy compression, measured on one text and priced on one model.

A draft's chain has the length that is predicted to be the fastest on calibration text. Held-out prompts are decoded with it;
the same prompts give the predicted tokens per cycle, by the ranks that the draft gave to the target's own tokens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache

from jaxspec.results import given, measured, predicted
from jaxspec.results.network_results import Lossless
from jaxspec.runs.carrying_out import carry_out_records
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.processes import shared_processes
from jaxspec.runs.progress import Reporter
from jaxspec.settings import expect
from jaxspec.studies.compare.config import CompareConfig
from jaxspec.studies.compare.contestants import Contest, contest_on, joined_clocks
from jaxspec.studies.compare.entries import CheckedComparison, check_comparison
from jaxspec.studies.compare.result import AUTOREGRESSIVE, CompareResult
from jaxspec.studies.compare.stages import CompareStages, begin_drafts
from jaxspec.studies.compare.view import write_compare_report
from jaxspec.studies.measured.head import head
from jaxspec.studies.measured.work import begin_work

__all__ = ["compare", "compare_results"]

#: Main numbers of a result, for `jaxspec runs`.
_HEADLINE = ("best", "pays", "lossless.mismatches")


def compare_results(stages: CompareStages, left_out: dict[str, str]) -> list[CompareResult]:
    """All stages; one result per device."""
    found = {device: contest_on(stages, device) for device in stages.work.pricings}
    # Heads come last: they tell how long all stages took.
    results = [
        CompareResult(
            **head(
                stages.work,
                device,
                contest.footprints,
                {name: each.acceptance.alpha_token.number for name, each in contest.contestants.items()},
            ),
            pays=predicted(contest.best != AUTOREGRESSIVE),
            lossless=_proof(contest),
            task=None if stages.task is None else stages.task.settings.task,
            problems=given(None if stages.task is None else len(stages.task.problems.prompts)),
            best=contest.best,
            contestants=contest.contestants,
            left_out=left_out,
            stopwatch=joined_clocks(contest.clocks),
        )
        for device, contest in found.items()
    ]
    # Each contestant has a scheme of its own.
    return [dataclasses.replace(result, scheme=None) for result in results]


def _proof(contest: Contest) -> Lossless:
    """Of all drafts together."""
    proofs = [each.lossless for each in contest.contestants.values() if each.lossless.tokens.value is not None]
    if not proofs:
        return Lossless()
    total = lambda name: sum(getattr(proof, name).known for proof in proofs)
    return Lossless(
        prompts=proofs[0].prompts,
        **{name: measured(total(name)) for name in ("tokens", "mismatches", "ties")},
        smallest_margin=measured(min(proof.smallest_margin.known for proof in proofs)),
    )


def compare(
    config: CompareConfig,
    *,
    out: str | None = None,
    force: bool = False,
    reporter: Reporter | None = None,
) -> tuple[list[CompareResult], RunDirectory]:
    """Compare everything for every device of the configuration, or return what a finished run found.

    Returns:
        One result per device, as in result.json, and the run directory, which also holds the report.
    Raises:
        InputError: bad input; nothing is lost.
    """
    processes = shared_processes()
    checked: Callable[[], CheckedComparison] = cache(lambda: check_comparison(config))

    def prepare(directory: RunDirectory, reporter: Reporter) -> Callable[[], list[CompareResult]]:
        found = checked()
        for name, reason in found.left_out.items():
            reporter.line(f"note: {name} is left out: {reason}")
        if found.no_task:
            reporter.line(f"note: no problems are answered: {found.no_task}")
        work = begin_work(config, directory, reporter, found.inputs, drafts=found.drafts, processes=processes)
        drafts = begin_drafts(work, found.entries)
        stages = CompareStages(config, work, drafts, found.compressions, found.inputs.tokenizer, found.task)

        return lambda: compare_results(stages, found.left_out)

    expect(CompareConfig, config)
    return carry_out_records(
        "compare",
        config,
        prepare,
        check=checked,
        out=out,
        force=force,
        reporter=reporter,
        kind=CompareResult,
        write=write_compare_report,
        headline=_HEADLINE,
        processes=processes,
    )
