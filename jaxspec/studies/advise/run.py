"""`jaxspec advise`: shapes, device, engine and acceptance in; draft length per batch, gain, probability and limits out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from hwmodels import Architecture, Case, DraftCost
from hwmodels.analysis.uncertainty.cycle_errors import COVERAGE, LogNormal, probability_above
from hwmodels.numerics.fast_compile import run_on_host
from jaxspec.partial_files import write_text
from jaxspec.report.assumptions import parallelism_of, priced_facts
from jaxspec.report.page import device_slugs
from jaxspec.results import Quantity, given, predicted
from jaxspec.results.network_results import Ends
from jaxspec.results.records import quantities
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.execute import execute_per_device
from jaxspec.runs.progress import Reporter
from jaxspec.runs.run_index import versions
from jaxspec.settings import expect
from jaxspec.studies.advise.config import AdviseConfig
from jaxspec.studies.advise.inputs import (
    DraftAcceptance,
    draft_acceptance,
    measured_kernels,
    named_draft,
    no_known_engine,
    of_another_draft,
    read_widths,
    served_draft,
    served_target,
    weights_notes,
)
from jaxspec.studies.advise.pricing import (
    Advised,
    AdvisedTrees,
    price_advice,
    price_trees,
    ranges,
    scaled_branches,
    served_tree,
    single_length,
    single_tree,
    time_by_cause,
)
from jaxspec.studies.advise.result import (
    AdvisedBatch,
    AdvisedDraft,
    AdvisedTree,
    AdvisedWorkload,
    AdviseResult,
    ScheduleRange,
)
from jaxspec.studies.advise.view import write_advice
from jaxspec.studies.engine_flags import Engine, Range, ServedTree, engines_for, idle_draft_notes
from jaxspec.studies.engine_pricing import check_has_experts, engine_scatter, engine_used, kind_of_draft, noted
from jaxspec.studies.feasibility import priced_pair
from jaxspec.studies.headline_intervals import coverage_in_words, covered, interval_ends
from jaxspec.studies.measured.pricing import longest_text, resolve_architecture
from jaxspec.studies.release import draft_notes, release_in_words, release_notes, stored_form, with_release_kernels

__all__ = ["advise"]

_chance = run_on_host(probability_above)

#: Main numbers of a result, for `jaxspec runs`.
_HEADLINE = ("speculate", "single_draft_length")


@dataclasses.dataclass(frozen=True)
class _Checked:
    """Checked inputs of one device and one context, which is that of `pricing`; `settings` have the release's kernels."""

    device: str
    pricing: Case
    settings: AdviseConfig
    draft: DraftCost
    acceptance: DraftAcceptance

    @property
    def context(self) -> int:
        """Cached tokens of a sequence."""
        return int(self.pricing.workload.context_tokens)


def advise(
    config: AdviseConfig,
    *,
    out: str | None = None,
    force: bool = False,
    reporter: Reporter | None = None,
) -> tuple[list[AdviseResult], RunDirectory]:
    """Advise on every device and context of the configuration, or return the result of a finished run.

    Returns:
        One result per device and context, contexts in turn, as in result.json, and the run directory with the page and the
        engines' settings.
    Raises:
        InputError: bad input; nothing is lost.
    """
    expect(AdviseConfig, config)
    return execute_per_device(
        "advise",
        config,
        lambda: _check(config),
        lambda _, checked, directory, __: _advice(config, checked, directory),
        write_advice,
        kind=AdviseResult,
        out=out,
        force=force,
        reporter=reporter,
        headline=_HEADLINE,
    )


def _check(config: AdviseConfig) -> dict[str, _Checked]:
    target = resolve_architecture(config.architecture, None)
    check_has_experts(["expert_bits"] if config.expert_bits else [], target, config.architecture)
    settings = {name: with_release_kernels(config, name) for name in config.device}
    common = named_draft(config, target), draft_acceptance(config)
    parts = {}
    for name, own in settings.items():
        pricing = measured_kernels(own, name)
        for context in config.context:
            at_context = f", context {context:,}" if len(config.context) > 1 else ""
            parts[name + at_context] = _Checked(name, pricing.at(context_tokens=float(context)), own, *common)
    return parts


def _advice(config: AdviseConfig, checked: _Checked, directory: RunDirectory) -> AdviseResult:
    device, pricing, acceptance = checked.device, checked.pricing, checked.acceptance
    case = dataclasses.replace(pricing, footprint=read_widths(config), draft=checked.draft)
    scatter = engine_scatter(config.engine, kind_of_draft(checked.draft), device=pricing.device)
    asked: dict[str, Any] = {"acceptance": acceptance, "batches": config.batch, "scatter": scatter}
    advised = price_advice(case, **asked)
    rows = [_row(config, checked, advised, place) for place in range(len(config.batch))]
    served: ServedTree | None = None
    over_batches = np.asarray(advised.numbers["speedup_vs_stored_ar"].value), np.asarray(advised.fits)
    if config.branch_acceptance is not None:
        trees = price_trees(case, branches=config.branch_acceptance, nodes=config.tree_nodes, **asked)
        rows = [dataclasses.replace(row, tree=_tree(trees, place, row)) for place, row in enumerate(rows)]
        served = single_tree(trees, *over_batches)
    lengths = [row.draft_length.known for row in rows]
    schedule = ranges(config.batch, lengths)
    single = single_length(*over_batches)
    padded = config.prices_own_network and _other_rows(checked.draft.architecture, pricing.architecture)
    engines = _engines(config, schedule, single, served, padded)
    folder = dict(zip(config.device, device_slugs(config.device), strict=True))[device]
    folder += f"-context-{checked.context}" if len(config.context) > 1 else ""
    for engine in engines:
        for name, content in ({engine.file: engine.content} | dict(engine.more_files)).items():
            write_text(directory.path / "engines" / folder / name, content)
    covers = covered(advised.times, acceptance.error)
    return AdviseResult(
        **priced_facts(device, config.architecture, pricing.architecture, checked.settings, config),
        inputs=directory.inputs,
        engine=engine_used(config.engine, device),
        scheme=given(config.scheme),
        release=release_in_words(config.architecture, config.scheme),
        workload=AdvisedWorkload(
            context_tokens=given(checked.context), **quantities(given, config, "prompt_tokens", "output_tokens")
        ),
        draft=AdvisedDraft(
            name=config.draft,
            kind=config.kind,
            priced_as=checked.draft.statement,
            conditional=Quantity(acceptance.conditional.tolist(), acceptance.status),
            acceptance_source=acceptance.source,
            branch_acceptance=given(None if config.branch_acceptance is None else list(config.branch_acceptance)),
        ),
        speculate=predicted(any(row.draft_length.known for row in rows)),
        single_draft_length=predicted(single),
        schedule=[
            ScheduleRange(first=given(each.first), last=given(each.last), draft_length=predicted(each.draft_length))
            for each in schedule
        ],
        by_batch=rows,
        interval_coverage=COVERAGE if covers else None,
        interval_covers=covers,
        interval_statement=coverage_in_words(covers) if covers else None,
        engines={engine.title: engine.content for engine in engines},
        commands={engine.title: engine.shown for engine in engines},
        **_notes(config, checked, advised=advised, lengths=lengths, named=bool(engines)),
        versions=versions(),
    )


def _other_rows(draft: Architecture | None, target: Architecture) -> bool:
    """Whether a network's vocabulary is padded to other rows than its target's."""
    return draft is not None and float(draft.vocab_size) != float(target.vocab_size)


def _unpriced(first: int) -> tuple[str, ...]:
    """What is said where schedules begin below the smallest batch that was priced."""
    said = f"batches below {first} were not priced and are given the draft length of {first}; begin --batch with 1"
    return () if first == 1 else (said,)


def _notes(
    config: AdviseConfig,
    checked: _Checked,
    *,
    advised: Advised | None = None,
    lengths: Sequence[int] = (),
    named: bool = False,
) -> dict[str, Any]:
    """The fields of `kernel_notes`, with what is to be said of acceptance, batches and the engine.

    Args:
        advised: prices, which say what memory is needed. named: whether commands name weights.
        lengths: of drafts, by batch; where all are 0, no server loads a draft.
    """
    pricing, own_network = checked.pricing, config.prices_own_network
    priced = [config.architecture, *([config.draft] if own_network else [])]
    networks = {"architecture": pricing.architecture, "draft": checked.draft.architecture}
    at = f" at {checked.context:,} cached tokens" if len(config.context) > 1 else ""
    own = (
        *release_notes(config.architecture, config.scheme),
        *draft_notes(config.draft),
        *(
            priced_pair(config.draft, networks["draft"], config.architecture, networks["architecture"])
            if own_network
            else ()
        ),
        *no_known_engine(pricing.device, checked.device),
        *checked.acceptance.notes,
        *of_another_draft(config),
        *_unpriced(config.batch[0]),
        *(idle_draft_notes(lengths) if any(lengths) else ()),
        *(weights_notes(config) if named else ()),
    )
    if config.branch_acceptance is not None:
        own += scaled_branches(checked.acceptance.conditional, config.branch_acceptance)
    return noted(
        pricing.device,
        [read_widths(config)],
        config.engine,
        about=own,
        prompts=config.prompt_tokens > 0,
        named=checked.device,
        batches=config.batch,
        texts=dict.fromkeys(priced, float(longest_text(config))),
        held=advised and {f"batch {batch}{at}": float(size) for batch, size in zip(config.batch, advised.held)},
        **networks,
    )


def _row(config: AdviseConfig, checked: _Checked, advised: Advised, place: int) -> AdvisedBatch:
    """Advice for one batch."""
    speedup = advised.numbers["speedup_vs_stored_ar"]
    best = int(np.argmax(speedup.value[place]))
    pays = bool(speedup.value[place, best] > 1.0)
    length = best + 1 if pays else 0
    cycles = advised.cycles
    # Without a draft a cycle is a step of what is stored.
    stored_s = float((cycles.baselines.stored.cost.total_s + cycles.plain_engine_s)[place, best])
    bf16_s = float((cycles.baselines.bf16.cost.total_s + cycles.plain_engine_s)[place, best])
    plain = {"cycle_s": stored_s, "tokens_per_s": config.batch[place] / stored_s}
    plain |= {"speedup_vs_stored_ar": 1.0, "speedup_vs_bf16_ar": bf16_s / stored_s}
    best_numbers = {name: float(advised.numbers[name].value[place, best]) for name in plain} if pays else plain
    numbers: dict[str, Any] = {name: predicted(value) for name, value in best_numbers.items()}
    ends = {name: _ends(advised.numbers[name], (place, best)) for name in ("speedup_vs_stored_ar", "tokens_per_s")}
    chance = None
    if float(speedup.log_deviation[place, best]) > 0:
        chance = float(_chance(LogNormal(speedup.value[place, best], speedup.log_deviation[place, best])))
    return AdvisedBatch(
        batch=config.batch[place],
        context_tokens=checked.context,
        draft_length=predicted(length),
        tokens_per_cycle=predicted(float(advised.tokens[best]) if pays else 1.0),
        tokens_per_s_interval=ends["tokens_per_s"] if pays else Ends(),
        interval=ends["speedup_vs_stored_ar"] if pays else Ends(),
        best_draft_length=predicted(best + 1),
        best_draft_speedup=predicted(float(speedup.value[place, best])),
        best_draft_interval=ends["speedup_vs_stored_ar"],
        probability_pays=predicted(chance),
        speedups=predicted(speedup.value[place].tolist()),
        time_by_cause=predicted(time_by_cause(advised, place, length, checked.draft)),
        fits=predicted(bool(advised.fits[place])),
        **numbers,
    )


def _ends(number: LogNormal, at: tuple[int, int]) -> Ends:
    """None where nothing is known to err."""
    return interval_ends(number, at) if float(number.log_deviation[at]) > 0 else Ends()


def _tree(trees: AdvisedTrees, place: int, row: AdvisedBatch) -> AdvisedTree:
    """The best tree of a batch."""
    best = int(np.argmax(trees.speedup.value[place]))
    shape = served_tree(trees.grown, best + 1)
    speedup = float(trees.speedup.value[place, best])
    return AdvisedTree(
        nodes=predicted(shape.nodes),
        depth=predicted(shape.depth),
        branching=predicted(shape.branching),
        parent=trees.grown.parent[: best + 1],
        tokens_per_cycle=predicted(float(trees.tokens[best])),
        speedup_vs_stored_ar=predicted(speedup),
        interval=_ends(trees.speedup, (place, best)),
        pays=predicted(speedup > max(1.0, row.best_draft_speedup.known)),
    )


def _engines(
    config: AdviseConfig, schedule: list[Range], single: int, tree: ServedTree | None, other_rows: bool
) -> list[Engine]:
    """Settings of engines; none where no batch is to speculate."""
    lengths = [each.draft_length for each in schedule if each.draft_length]
    if not lengths:
        return []
    # An engine with one length for all batches takes the best one; where that is none, what small batches want.
    return engines_for(
        served_target(config),
        served_draft(config, other_rows=other_rows),
        single or lengths[0],
        schedule=schedule,
        parallelism=parallelism_of(config),
        tree=tree,
        quantized=stored_form(config.architecture) is not None,
        mlx=config.engine in ("mlx", "mlx-cuda"),
    )
