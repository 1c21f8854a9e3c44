"""`jaxspec tree`: which draft tree to verify, with how many tokens, at every context length; measured, priced, proven.

How the draft ranks the target's own continuation of calibration prompts decides in which order a tree grows; how it ranks that
of held-out prompts tells what every size gains; the cost model tells what it takes. The tree that pays then decodes the
held-out prompts.

Source: Boosting the Performance of Tree-Based Speculative Decoding of LLMs on FPGAs, Algorithm 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

import hwmodels
from hwmodels import (
    AcceptanceTrace,
    Case,
    CycleCost,
    Plan,
    chain_cycles,
    plan_family,
    price,
    tree_plan,
)
from hwmodels.analysis.uncertainty.cycle_errors import CycleTimes, cycle_times
from hwmodels.numerics.fast_compile import jit_fast_compile
from hwmodels.speculation.verification_length import (
    Decision,
    best_schedule,
    decide,
    effective_performance,
    generation_time,
)
from jaxspec.compress.knobs import Knobs, knobs_to_json
from jaxspec.host.stopwatch import tree_way
from jaxspec.results import Quantity, Status, calibrated, given, measured, predicted
from jaxspec.runs.directory import ACCEPTANCE_TRACE, RunDirectory
from jaxspec.runs.execute import execute_record_run
from jaxspec.runs.processes import shared_processes
from jaxspec.runs.progress import Reporter
from jaxspec.runs.stages import Arrays
from jaxspec.settings import expect
from jaxspec.speculate.acceptance import compare_cycles
from jaxspec.speculate.drafts import ReadyDraft
from jaxspec.speculate.drafts.factory import kind_of
from jaxspec.speculate.sampling import GREEDY
from jaxspec.studies.engine_pricing import engine_scatter, kind_of_draft
from jaxspec.studies.feasibility import capacity_bytes
from jaxspec.studies.given_acceptance import given_trace
from jaxspec.studies.headline_intervals import headline_intervals
from jaxspec.studies.measured.common_fields import common_fields, lossless, routed
from jaxspec.studies.measured.run_context import write_gains
from jaxspec.studies.measured.stopwatch import stopwatch_part
from jaxspec.studies.tree.config import TreeConfig
from jaxspec.studies.tree.result import (
    BestTree,
    ContextChoice,
    ContextRow,
    CurvePoint,
    FittedLaw,
    Generation,
    Growth,
    PricedDraft,
    Schedule,
    ScheduleStep,
    SearchSettings,
    TreeProof,
    TreeResult,
    UsedDraft,
)
from jaxspec.studies.tree.stages import TreeStages, begin_tree, check_tree
from jaxspec.studies.tree.view import write_tree_report
from jaxspec.trees.aat_law import curve_interval, fit_aat_law, r_squared
from jaxspec.trees.rank_traces import AATBySize, RankTraces, aat_by_size, node_reach, ratio_of_totals
from jaxspec.trees.topology import NestedTrees


class GrowthTimes(NamedTuple):
    """Times at each context, sizes 1, 2, ... nodes; on the host.

    Attributes:
        verify_s: one verification.
        draft_s: all draft steps of a cycle.
        engine_s: what the engine adds to a cycle.
        ar_bf16_s, ar_stored_s: a step of plain decoding, of the uncompressed network and as it is stored.
        errors: steps of all cycles with those of their kernels, leaves "context size ...", for `cycle_times_of`.
        fits: whether weights and KV of the target, and of a draft network, fit the device's memories.
    """

    verify_s: Float[np.ndarray, "context size"]
    draft_s: Float[np.ndarray, "context size"]
    ar_bf16_s: Float[np.ndarray, " context"]
    ar_stored_s: Float[np.ndarray, " context"]
    engine_s: Float[np.ndarray, "context size"]
    fits: Bool[np.ndarray, " context"]
    errors: CycleTimes


def price_growths(case: Case, growths: Sequence[NestedTrees], *, contexts: tuple[int, ...]) -> list[GrowthTimes]:
    """Price the first 1, 2, ... nodes of growing trees at every context.

    Args:
        contexts: cached tokens; the workload's own is not used.
    """
    parents = [growth.parent[:count] for growth in growths for count in range(1, growth.parent.size + 1)]
    sizes = plan_family([tree_plan(parent) for parent in parents])
    priced, held, errors = jax.device_get(_priced(case.unstated, jnp.asarray(contexts, jnp.float32), sizes))
    plain = priced.baselines
    double = lambda seconds: np.asarray(seconds, np.float64)
    ends = np.cumsum([growth.parent.size for growth in growths])
    of_sizes = priced.verify_s, priced.draft_s, priced.engine_s, errors

    def own(end: int, growth: NestedTrees) -> GrowthTimes:
        verify_s, draft_s, engine_s, err = jax.tree.map(lambda leaf: leaf[:, end - growth.parent.size : end], of_sizes)
        return GrowthTimes(
            verify_s=double(verify_s),
            draft_s=double(draft_s),
            ar_bf16_s=double(plain.bf16.cost.total_s),
            ar_stored_s=double(plain.stored.cost.total_s),
            engine_s=double(engine_s),
            fits=double(held) <= capacity_bytes(case.device),
            errors=err,
        )

    return [own(int(end), growth) for end, growth in zip(ends, growths, strict=True)]


def cycle_times_of(times: GrowthTimes, *, context: int, size: int, scatter: float) -> CycleTimes:
    """One cycle's steps, for its interval; on the host.

    Args:
        context, size: places among those of `times`.
        scatter: of the engine's cycles.
    """
    one: CycleTimes = jax.tree.map(lambda leaf: leaf[context, size], times.errors)
    return dataclasses.replace(one, scatter=scatter)


@jit_fast_compile
def _priced(case: Case, contexts: Float[Array, " context"], sizes: Plan) -> tuple[CycleCost, Array, CycleTimes]:
    """Cost of all cycles, bytes held, and what errs in each cycle."""
    runs = jnp.asarray(sizes.draft_repeats) * case.draft.passes

    def at_context(context: Array) -> tuple[CycleCost, Array, CycleTimes]:
        at = case.at(context_tokens=context)
        priced = price(at, sizes)
        plain: dict[str, Any] = {"bf16": priced.baselines.bf16, "stored": priced.baselines.stored}
        of_size = lambda often, verify, engine_s: cycle_times(
            case.device, **plain, cycle=[*priced.draft_runs(often), (1.0, verify)], engine_s=engine_s
        )
        return priced, at.held_bytes, jax.vmap(of_size)(runs, priced.verify, priced.engine_s)

    return jax.vmap(at_context)(contexts)


#: Lengths that the law is fitted to; the others judge it.
_FITTED_LENGTHS = 5


def draft_part(
    name: str,
    other: ReadyDraft | None,
    knobs: Knobs | None,
    kinds: Sequence[str],
    priced: hwmodels.DraftCost,
    widths: hwmodels.Footprint,
) -> UsedDraft:
    """What drafted, and what its steps were priced as.

    Args:
        other: the draft, unless it is the target's compressed copy, which has `knobs`, those of matrices for these kinds.
    """
    own = priced.architecture
    shape = None if own is None else {key: float(size) for key, size in vars(own).items()}
    priced_parameters = None if own is None else float(sum(hwmodels.parameters(own).values()))
    status = measured if knobs is not None else given
    return UsedDraft(
        name=name,
        parameters=given(None if other is None else other.draft.num_parameters(other.params) or None),
        knobs=given(None if knobs is None else knobs_to_json(knobs, kinds)),
        priced_draft=PricedDraft(
            statement=priced.statement, architecture=given(shape), parameters=given(priced_parameters)
        ),
        footprint=status(vars(widths)),
    )


def growth_part(growth: NestedTrees, traces: RankTraces | AcceptanceTrace) -> Growth:
    """The tree node by node: the first n are the tree of n nodes.

    `acceptance` is the share of all roots of held-out text, or of a given trace of chains, at which a node is accepted.
    """
    if isinstance(traces, AcceptanceTrace):
        reach = given([float(np.mean(traces.gained[0] > 1 + place)) for place in range(growth.parent.size)])
    else:
        reach = measured(np.asarray(jax.jit(node_reach)(growth.tree(), traces)).tolist())
    return Growth(parent=growth.parent.tolist(), rank=growth.rank.tolist(), acceptance=reach)


def traced_curve(trace: AcceptanceTrace, longest: int) -> AATBySize:
    """Tokens per cycle of chains of 1 to `longest` drafted tokens, along the requests of a trace."""
    lengths = np.arange(1, longest + 1, dtype=np.int32)
    cycles = chain_cycles(trace, lengths).T
    generated = np.broadcast_to(trace.generated, cycles.shape)
    whole: Any = np.ones(cycles.shape, bool)
    counts: dict[str, Any] = {"cycles": cycles, "generated": generated}
    aat = ratio_of_totals(generated, cycles)
    return AATBySize(verification_length=jnp.asarray(lengths + 1), complete=whole, aat=aat, **counts)


def curve_part(curve: AATBySize, status: Status) -> list[CurvePoint]:
    """Tokens per cycle of every verification length, with standard errors over prompts."""
    rows = zip(*(np.asarray(x).tolist() for x in (curve.verification_length, curve.aat.mean, curve.aat.standard_error)))
    return [
        CurvePoint(verification_length=length, tokens_per_cycle=Quantity(tokens, status, error))
        for length, tokens, error in rows
    ]


def law_part(curve: AATBySize) -> FittedLaw | None:
    """The law fitted to a few lengths, and how well it tells all; None where the curve has fewer than three points.

    Source: Boosting the Performance of Tree-Based Speculative Decoding of LLMs on FPGAs, III-A, Eq. (3).
    """
    lengths, tokens, errors = (
        np.asarray(x, np.float64) for x in (curve.verification_length, curve.aat.mean, curve.aat.standard_error)
    )
    if lengths.size < 3 or not np.isfinite(tokens).all() or np.ptp(tokens) == 0:
        return None
    chosen = np.unique(np.rint(np.geomspace(lengths[0], lengths[-1], _FITTED_LENGTHS)).astype(int)) - int(lengths[0])
    known = np.isfinite(errors[chosen]).all() and bool((errors[chosen] > 0).all())
    fit = fit_aat_law(lengths[chosen], tokens[chosen], standard_error=errors[chosen] if known else None)
    band = curve_interval(fit, lengths)
    names = ("intercept", "log_slope", "shift")
    return FittedLaw(
        **{name: calibrated(getattr(fit.law, name)) for name in names},
        intervals=calibrated(dict(zip(names, fit.intervals.tolist(), strict=True))),
        confidence=fit.confidence,
        fitted_lengths=lengths[chosen].astype(int).tolist(),
        r_squared=calibrated(r_squared(fit.law, lengths, tokens)),
        shift_at_bound=bool(fit.shift_at_bound),
        tokens_per_cycle=calibrated(band.mean.tolist()),
        lower=calibrated(band.lower.tolist()),
        upper=calibrated(band.upper.tolist()),
    )


def context_rows(
    contexts: tuple[int, ...],
    curve: AATBySize,
    times: GrowthTimes,
    *,
    scatter: float = 0.0,
    status: Status = "measured",
) -> list[ContextRow]:
    """Speed at every length and context, of one sequence, and what pays there.

    Plain decoding is that of the uncompressed network or of the stored one, whichever is faster.

    Args:
        scatter: of the engine's cycles.
        status: of tokens per cycle.
    Source: as above, Eq. (6) to (8).
    """
    lengths, tokens = np.asarray(curve.verification_length), np.asarray(curve.aat.mean, np.float32)
    seconds = (times.verify_s, times.draft_s + times.engine_s, np.minimum(times.ar_bf16_s, times.ar_stored_s))
    performance, decisions = jax.device_get(_decide(lengths, tokens, *(np.asarray(x, np.float32) for x in seconds)))
    rows = []
    for i, context in enumerate(contexts):
        speed, best = float(decisions.tokens_per_s[i]), int(decisions.best_index[i])
        inherited = cycle_times_of(times, context=i, size=best, scatter=scatter)
        beside_first, error = [float(tokens[best]) - 1.0], [float(np.asarray(curve.aat.standard_error)[best])]
        own, bf16_s, stored_s = float(performance[i, best]), times.ar_bf16_s[i], times.ar_stored_s[i]
        rows.append(
            ContextRow(
                context_tokens=context,
                fits=predicted(bool(times.fits[i])),
                decision=ContextChoice(
                    speculate=predicted(bool(decisions.speculate[i])),
                    verification_length=predicted(int(decisions.length[i])),
                    tokens_per_cycle=Quantity(float(tokens[best]) if decisions.speculate[i] else 1.0, status),
                    tokens_per_s=predicted(speed),
                    speedup_vs_bf16_ar=predicted(speed * bf16_s),
                    speedup_vs_stored_ar=predicted(speed * stored_s),
                    best_tree=BestTree(
                        verification_length=predicted(int(decisions.best_length[i])),
                        tokens_per_s=predicted(own),
                        speedup_vs_bf16_ar=predicted(own * bf16_s),
                        speedup_vs_stored_ar=predicted(own * stored_s),
                        intervals=headline_intervals(inherited, beside_first, error, batch=1.0),
                    ),
                ),
                ar_bf16_s=predicted(bf16_s),
                ar_stored_s=predicted(stored_s),
                verify_s=predicted(times.verify_s[i].tolist()),
                draft_s=predicted(times.draft_s[i].tolist()),
                engine_s=predicted(times.engine_s[i].tolist()),
                effective_performance=predicted(np.asarray(performance[i]).tolist()),
            )
        )
    return rows


def beside_chains(rows: Sequence[ContextRow], chains: Sequence[ContextRow]) -> list[ContextRow]:
    """Rows of trees with the fastest chain of each context. Args: chains: the same rows of chains."""
    return [
        dataclasses.replace(row, decision=dataclasses.replace(row.decision, best_chain=chain.decision.best_tree))
        for row, chain in zip(rows, chains, strict=True)
    ]


@jax.jit
def _decide(lengths, tokens, verify_s, draft_s, plain_s) -> tuple[Array, Decision]:
    performance = effective_performance(tokens, verify_s, draft_s)
    return performance, decide(lengths, performance, plain_s)


def schedule_part(contexts: tuple[int, ...], curve: AATBySize, times: GrowthTimes) -> Schedule:
    """Which length to use from which context on, and what switching gains over the best single one.

    Source: as above, III-B.3.
    """
    plain_s = np.minimum(times.ar_bf16_s, times.ar_stored_s)[:, None]
    cycle_s = (times.verify_s + times.draft_s + times.engine_s) / np.asarray(curve.aat.mean, np.float64)
    token_s = jnp.asarray(np.concatenate([plain_s, cycle_s], axis=1), jnp.float32)
    grid = jnp.asarray(contexts, jnp.float32)
    schedule = jax.device_get(jax.jit(best_schedule)(grid, token_s))
    # Column 0 is plain decoding, a verification of one token; column n is the tree of n nodes.
    steps: list[ScheduleStep] = []
    for start, option in zip(schedule.start.tolist(), schedule.option.tolist()):
        if not steps or steps[-1].verification_length.value != option + 1:
            steps.append(ScheduleStep(from_context_tokens=predicted(start), verification_length=predicted(option + 1)))
    if len(contexts) < 2:
        return Schedule(entries=steps)
    total = contexts[-1] - contexts[0]
    best_over_time = jax.device_get(jax.jit(generation_time)(grid, token_s, first_context=contexts[0], tokens=total))
    generation = Generation(
        first_context_tokens=contexts[0],
        tokens=total,
        tokens_per_s=predicted(float(best_over_time.tokens_per_s)),
        best_fixed_verification_length=predicted(int(best_over_time.best_fixed) + 1),
        speedup_vs_best_fixed=predicted(float(best_over_time.speedup_vs_best_fixed)),
        speedup_vs_ar=predicted(float(best_over_time.speedup_vs_ar)),
    )
    return Schedule(entries=steps, generation=generation)


def proof_part(nodes: int, *, expected: Arrays, counted: Arrays, chosen: str) -> TreeProof:
    """Tokens per cycle counted in decoding, and predicted from the texts of the same prompts.

    Args:
        nodes: of the tree that decoded.
        expected: generated tokens and cycles. Under greedy decoding every cycle is predicted exactly.
        counted: from `decode_prompts`.
        chosen: why this tree.
    """
    tokens, cycles, expected_tokens, expected_cycles = (
        np.asarray(counts[name], np.float64) for counts in (counted, expected) for name in ("generated", "cycles")
    )
    compared = compare_cycles(tokens, cycles, expected_tokens, expected_cycles)
    share: Float[np.ndarray, " node"] = counted["accepted_nodes"].sum(axis=0)[:nodes] / cycles.sum()
    return TreeProof(
        tree=chosen,
        verification_length=predicted(nodes + 1),
        tokens_per_cycle_predicted=predicted(compared.predicted),
        tokens_per_cycle_counted=measured(compared.counted, compared.standard_error),
        tokens_per_cycle_gap_in_standard_errors=measured(compared.gap_in_standard_errors),
        same_cycles=measured(bool((tokens == expected_tokens).all() and (cycles == expected_cycles).all())),
        cycles=measured(int(cycles.sum())),
        accepted=measured(share.tolist()),
    )


#: Main numbers of a result, for `jaxspec runs`.
_HEADLINE = ("pays", "proof.verification_length", "proof.tokens_per_cycle_counted", "lossless.mismatches")


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
    measured: dict[str, Any] = {"growth": growth, "curve": curve_part(curve, status), "law": law_part(curve)}
    by_device = {device: _of_device(stages, device, curve, of_chains) for device in stages.work.pricings}
    # Heads come last: they tell how long all stages took.
    if source is not None:
        measured["statement"] = f"acceptance {source}, cost predicted for {stages.config.architecture}"
    return [
        TreeResult(**(common_fields(stages.work, device, [stages.widths], accepted) | measured | parts))
        for device, parts in by_device.items()
    ]


def _of_device(stages: TreeStages, device: str, curve: AATBySize, of_chains: AATBySize) -> dict[str, Any]:
    """Fields of a device's result beside its head and what all devices share.

    Args:
        curve, of_chains: tokens per cycle of the trees, and of chains.
    """
    config, work = stages.config, stages.work
    kinds = work.setup.config.matrix_kinds
    priced = stages.cost_on(device)
    case = dataclasses.replace(work.pricings[device], footprint=stages.widths, draft=priced)
    times, chain_times = price_growths(case, [stages.growth, stages.chains], contexts=stages.contexts)
    scatter = engine_scatter(config.engine, kind_of_draft(priced), device=case.device)
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
    config: TreeConfig, *, out: str | None = None, force: bool = False, reporter: Reporter | None = None
) -> tuple[list[TreeResult], RunDirectory]:
    """Find the draft tree for every device and context of the configuration, or return the result of a finished run.

    Returns:
        One result per device, as in result.json, and the run directory, which also holds the report.
    Raises:
        InputError: bad input; nothing is lost.
    """

    processes = shared_processes()
    checked = cache(lambda: check_tree(config))

    def prepare(directory: RunDirectory, reporter: Reporter) -> Callable[[], list[TreeResult]]:
        stages = begin_tree(config, directory, reporter, checked(), processes=processes)

        def work() -> list[TreeResult]:
            results = tree_results(stages)
            if stages.has_trace:
                gains = {config.draft: stages.gains}
                write_gains(stages.work, directory.path / ACCEPTANCE_TRACE, gains, stages.trace_tokens)
            return results

        return work

    expect(TreeConfig, config)
    how: dict[str, Any] = dict(out=out, force=force, reporter=reporter, headline=_HEADLINE, processes=processes)
    return execute_record_run("tree", config, prepare, check=checked, kind=TreeResult, write=write_tree_report, **how)
