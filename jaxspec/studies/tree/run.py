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
from pathlib import Path
from typing import Any

import numpy as np

from hwmodels import write_trace
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
from jaxspec.studies.measured.head import head, lossless
from jaxspec.studies.measured.routing import routed
from jaxspec.studies.measured.stopwatch import stopwatch_part
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
)
from jaxspec.studies.tree.pricing import price_growths
from jaxspec.studies.tree.report import write_tree_report
from jaxspec.studies.tree.result import SearchSettings, TreeResult
from jaxspec.studies.tree.stages import TreeStages
from jaxspec.trees.rank_traces import ENDED, AATBySize, aat_by_size, chain_gains

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
    gained = lambda growth: aat_by_size(growth, stages.traces, num_tokens=stages.config.output_tokens)
    curve, of_chains = gained(stages.growth), gained(stages.chains)
    growth = growth_part(stages.growth, stages.traces)
    accepted = {stages.config.draft: float(sum(growth.acceptance.known))}
    measured = {
        "growth": growth,
        "curve": curve_part(curve),
        "law": law_part(curve),
    }
    found = {device: _of_device(stages, device, curve, of_chains) for device in stages.work.pricings}
    # Heads come last: they tell how long all stages took.
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
    rows = beside_chains(
        context_rows(stages.contexts, curve, times, scatter=scatter),
        context_rows(stages.contexts, of_chains, chain_times, scatter=scatter),
    )
    own = rows[stages.contexts.index(config.context)].decision
    pays = bool(own.speculate.value)
    nodes = own.verification_length.known - 1 if pays else config.nodes
    why = "fastest at the workload's context" if pays else "the largest, since none pays at the workload's context"
    counted = stages.decode_with(nodes, work.setup.decoding)
    proof = proof_part(nodes, expected=stages.expected_with(nodes), counted=counted, chosen=why)
    clock = stopwatch_part(
        work,
        device,
        f"tree-{nodes}",
        lambda: {"tree": tree_way(stages.draft, stages.growth.first(nodes).tree())},
        cost=stages.cost_here,
        takes_in=kind_of(config.draft).takes_in,
    )
    return {
        "stopwatch": clock,
        "draft": draft_part(config.draft, stages.other, stages.knobs, kinds, priced, stages.widths),
        # Another draft's scheme stores the target alone.
        "scheme": config.scheme if stages.knobs is not None or config.changes_target else None,
        "search": SearchSettings(name=config.search, nodes=given(config.nodes), depth=given(config.depth)),
        "pays": predicted(pays),
        "contexts": rows,
        "schedule": schedule_part(stages.contexts, curve, times),
        "proof": proof,
        "lossless": lossless(stages.decode_with(nodes, GREEDY), stages.decode_autoregressively(GREEDY), work),
    }


def _write_trace(stages: TreeStages, path: Path) -> None:
    """What chains would gain at each token that follows the held-out prompts, for `--acceptance-trace` of other commands."""
    config, gains = stages.config, np.asarray(chain_gains(stages.traces))
    rank, starts = np.asarray(stages.traces.rank), np.asarray(stages.traces.num_starts)
    rows = []
    for place, (gained, recorded) in enumerate(zip(gains, starts, strict=True)):
        # A text that stopped ends with its stop token, which no cycle runs over.
        ended = bool((rank[place] == ENDED).any())
        tokens = int(recorded) if ended else min(int(recorded), config.output_tokens)
        row = {"request": str(place), "prompt_tokens": config.prompt_tokens, "generated_tokens": tokens}
        rows.append(row | {config.draft: gained[:tokens]})
    write_trace(path, rows)


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
                _write_trace(stages, directory.path / ACCEPTANCE_TRACE)
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
