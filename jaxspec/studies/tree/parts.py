"""Parts of a tree result: the curve and its law, what pays at each context, and the proof."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import hwmodels
from hwmodels import AcceptanceTrace, chain_cycles
from hwmodels.speculation.effective_performance import Decision, decide, effective_performance
from hwmodels.speculation.verification_length import best_schedule, generation_time
from jaxspec.compress.knob_files import knobs_to_json
from jaxspec.compress.knobs import Knobs
from jaxspec.results import Quantity, Status, calibrated, given, measured, predicted
from jaxspec.runs.stages import Arrays
from jaxspec.speculate.drafts import ReadyDraft
from jaxspec.speculate.statistics import compare_cycles
from jaxspec.studies.headline_intervals import headline_intervals
from jaxspec.studies.tree.pricing import GrowthTimes, cycle_times_of
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
    TreeProof,
    UsedDraft,
)
from jaxspec.trees.aat_fit import curve_interval, fit_aat_law
from jaxspec.trees.aat_law import r_squared
from jaxspec.trees.rank_traces import AATBySize, RankTraces
from jaxspec.trees.ranked_tree import RankedTree
from jaxspec.trees.text_ratios import ratio_of_totals
from jaxspec.trees.trace_statistics import node_reach

__all__ = [
    "beside_chains",
    "context_rows",
    "curve_part",
    "draft_part",
    "growth_part",
    "law_part",
    "proof_part",
    "schedule_part",
    "traced_curve",
]

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


def growth_part(growth: RankedTree, traces: RankTraces | AcceptanceTrace) -> Growth:
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
    performance, found = jax.device_get(_decide(lengths, tokens, *(np.asarray(x, np.float32) for x in seconds)))
    rows = []
    for i, context in enumerate(contexts):
        speed, best = float(found.tokens_per_s[i]), int(found.best_index[i])
        inherited = cycle_times_of(times, context=i, size=best, scatter=scatter)
        beside_first, error = [float(tokens[best]) - 1.0], [float(np.asarray(curve.aat.standard_error)[best])]
        own, bf16_s, stored_s = float(performance[i, best]), times.ar_bf16_s[i], times.ar_stored_s[i]
        rows.append(
            ContextRow(
                context_tokens=context,
                fits=predicted(bool(times.fits[i])),
                decision=ContextChoice(
                    speculate=predicted(bool(found.speculate[i])),
                    verification_length=predicted(int(found.length[i])),
                    tokens_per_cycle=Quantity(float(tokens[best]) if found.speculate[i] else 1.0, status),
                    tokens_per_s=predicted(speed),
                    speedup_vs_bf16_ar=predicted(speed * bf16_s),
                    speedup_vs_stored_ar=predicted(speed * stored_s),
                    best_tree=BestTree(
                        verification_length=predicted(int(found.best_length[i])),
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
    found = jax.device_get(jax.jit(generation_time)(grid, token_s, first_context=contexts[0], tokens=total))
    generation = Generation(
        first_context_tokens=contexts[0],
        tokens=total,
        tokens_per_s=predicted(float(found.tokens_per_s)),
        best_fixed_verification_length=predicted(int(found.best_fixed) + 1),
        speedup_vs_best_fixed=predicted(float(found.speedup_vs_best_fixed)),
        speedup_vs_ar=predicted(float(found.speedup_vs_ar)),
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
    tokens, cycles, told_tokens, told_cycles = (
        np.asarray(found[name], np.float64) for found in (counted, expected) for name in ("generated", "cycles")
    )
    compared = compare_cycles(tokens, cycles, told_tokens, told_cycles)
    share: Float[np.ndarray, " node"] = counted["accepted_nodes"].sum(axis=0)[:nodes] / cycles.sum()
    return TreeProof(
        tree=chosen,
        verification_length=predicted(nodes + 1),
        tokens_per_cycle_predicted=predicted(compared.predicted),
        tokens_per_cycle_counted=measured(compared.counted, compared.standard_error),
        tokens_per_cycle_gap_in_standard_errors=measured(compared.gap_in_standard_errors),
        same_cycles=measured(bool((tokens == told_tokens).all() and (cycles == told_cycles).all())),
        cycles=measured(int(cycles.sum())),
        accepted=measured(share.tolist()),
    )
