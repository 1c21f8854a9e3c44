"""`jaxspec tree`: which draft tree to verify, with how many tokens, at every context length; measured, priced, proven.

How the draft ranks the target's own continuation of calibration prompts decides in which order a tree grows; how it ranks that
of held-out prompts tells what every size gains; the cost model tells what it takes. The tree that pays then decodes the
held-out prompts.

Source: Boosting the Performance of Tree-Based Speculative Decoding of LLMs on FPGAs, Algorithm 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any

from jaxspec.results import given, predicted
from jaxspec.runs.carrying_out import carry_out_records
from jaxspec.runs.directory import ACCEPTANCE_TRACE, RunDirectory
from jaxspec.runs.processes import shared_processes
from jaxspec.runs.progress import Reporter
from jaxspec.settings import expect
from jaxspec.speculate.drafts.making import kind_of
from jaxspec.speculate.sampling import GREEDY
from jaxspec.speculate.timing import tree_way
from jaxspec.studies.engine_pricing import engine_scatter, kind_of_draft
from jaxspec.studies.given_acceptance import given_trace
from jaxspec.studies.measured.head import head, lossless
from jaxspec.studies.measured.routing import routed
from jaxspec.studies.measured.stopwatch import stopwatch_part
from jaxspec.studies.measured.work import write_gains
from jaxspec.studies.tree.beginning import begin_tree, check_tree
from jaxspec.studies.tree.config import TreeConfig
from jaxspec.studies.tree.parts import (
    beside_chains,
    context_rows,
    curve_part,
    draft_part,
    growth_part,
    law_part,
    proof_part,
    schedule_part,
    traced_curve,
)
from jaxspec.studies.tree.pricing import price_growths
from jaxspec.studies.tree.report import write_tree_report
from jaxspec.studies.tree.result import SearchSettings, TreeResult
from jaxspec.studies.tree.stages import TreeStages
from jaxspec.trees.rank_traces import AATBySize, aat_by_size

__all__ = ["search_tree", "tree_results"]

#: Main numbers of a result, for `jaxspec runs`.
_HEADLINE = (
    "pays",
    "proof.verification_length",
    "proof.tokens_per_cycle_counted",
    "lossless.mismatches",
)


def tree_results(stages: TreeStages) -> list[TreeResult]:
    """All stages; one result per device."""
    copies = routed(stages.copies)
    stages = dataclasses.replace(stages, work=copies.work, copies=copies)
    source, status = None, "measured"
    if stages.config.acceptance_trace is not None:
        _, traces, source = given_trace(stages.config)
        curve = of_chains = traced_curve(traces, stages.chains.parent.size)
        status = "input"
    else:
        traces = stages.traces
        gained = lambda growth: aat_by_size(growth, traces, num_tokens=stages.config.output_tokens)
        curve, of_chains = gained(stages.growth), gained(stages.chains)
    growth = growth_part(stages.growth, traces)
    accepted = {stages.config.draft: float(sum(growth.acceptance.known))}
    measured: dict[str, Any] = {
        "growth": growth,
        "curve": curve_part(curve, status),
        "law": law_part(curve),
    }
    found = {device: _of_device(stages, device, curve, of_chains) for device in stages.work.pricings}
    # Heads come last: they tell how long all stages took.
    if source is not None:
        measured["statement"] = f"acceptance {source}, cost predicted for {stages.config.architecture}"
    return [
        TreeResult(**(head(stages.work, device, [stages.widths], accepted) | measured | parts))
        for device, parts in found.items()
    ]


def _of_device(stages: TreeStages, device: str, curve: AATBySize, of_chains: AATBySize) -> dict[str, Any]:
    """Fields of a device's result beside its head and what all devices share.

    Args:
        curve, of_chains: tokens per cycle of the trees, and of chains.
    """
    config, work = stages.config, stages.work
    kinds = work.setup.config.matrix_kinds
    priced = stages.cost_on(device)
    options: dict[str, Any] = {"footprint": stages.widths, "contexts": stages.contexts, "draft": priced}
    times, chain_times = price_growths(work.pricings[device], [stages.growth, stages.chains], **options)
    scatter = engine_scatter(config.engine, kind_of_draft(priced), device=work.pricings[device].device)
    traced = config.acceptance_trace is not None
    about: dict[str, Any] = {"scatter": scatter, "status": "input" if traced else "measured"}
    rows = beside_chains(
        context_rows(stages.contexts, curve, times, **about),
        context_rows(stages.contexts, of_chains, chain_times, **about),
    )
    own = rows[stages.contexts.index(config.context)].decision
    pays = bool(own.speculate.value)
    nodes = own.verification_length.known - 1 if pays else config.nodes
    why = "fastest at the workload's context" if pays else "the largest, since none pays at the workload's context"
    return {
        "draft": draft_part(config.draft, stages.other, stages.knobs, kinds, priced, stages.widths),
        # Another draft's scheme stores the target alone.
        "scheme": config.scheme if stages.knobs is not None or config.changes_target else None,
        "search": SearchSettings(
            name="chains" if traced else config.search, nodes=given(config.nodes), depth=given(config.depth)
        ),
        "pays": predicted(pays),
        "contexts": rows,
        "schedule": schedule_part(stages.contexts, curve, times),
        **({} if traced else _decoded(stages, device, nodes, why)),
    }


def _decoded(stages: TreeStages, device: str, nodes: int, why: str) -> dict[str, Any]:
    """What decoding held-out prompts with a tree shows. Args: why: this tree."""
    work = stages.work
    counted = stages.decode_with(nodes, work.setup.decoding)
    clock = stopwatch_part(
        work,
        device,
        f"tree-{nodes}",
        lambda: {"tree": tree_way(stages.draft, stages.growth.first(nodes).tree())},
        cost=stages.cost_here,
        takes_in=kind_of(stages.config.draft).takes_in,
    )
    return {
        "stopwatch": clock,
        "proof": proof_part(nodes, expected=stages.expected_with(nodes), counted=counted, chosen=why),
        "lossless": lossless(stages.decode_with(nodes, GREEDY), stages.decode_autoregressively(GREEDY), work),
    }


def search_tree(
    config: TreeConfig,
    *,
    out: str | None = None,
    force: bool = False,
    reporter: Reporter | None = None,
) -> tuple[list[TreeResult], RunDirectory]:
    """Find the draft tree for every device and context of the configuration, or return what a finished run found.

    Returns:
        One result per device, as in result.json, and the run directory, which also holds the report.
    Raises:
        InputError: bad input; nothing is lost.
    """

    processes = shared_processes()
    checked = cache(lambda: check_tree(config))

    def prepare(directory: RunDirectory, reporter: Reporter) -> Callable[[], list[dict[str, Any]]]:
        stages = begin_tree(config, directory, reporter, checked(), processes=processes)

        def work() -> list[dict[str, Any]]:
            found = [result.plain() for result in tree_results(stages)]
            if directory.owned and stages.has_trace:
                gains = {config.draft: stages.gains}
                write_gains(stages.work, directory.path / ACCEPTANCE_TRACE, gains, stages.trace_tokens)
            return found

        return work

    expect(TreeConfig, config)
    return carry_out_records(
        "tree",
        config,
        prepare,
        check=checked,
        out=out,
        force=force,
        reporter=reporter,
        kind=TreeResult,
        write=write_tree_report,
        headline=_HEADLINE,
        processes=processes,
    )
