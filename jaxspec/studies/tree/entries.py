"""The parts of result.json that tell of trees: their curve and its law, what pays at each context, and the proof."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import hwmodels
from hwmodels.speculation.effective_performance import Decision, decide, effective_performance
from hwmodels.speculation.verification_length import best_schedule, generation_time
from jaxspec.compress.knob_files import knobs_to_json
from jaxspec.compress.knobs import Knobs
from jaxspec.runs.stages import Arrays
from jaxspec.speculate.drafts import ReadyDraft
from jaxspec.speculate.statistics import compare_cycles
from jaxspec.studies.tree.pricing import GrowthTimes
from jaxspec.trees.aat_fit import curve_interval, fit_aat_law
from jaxspec.trees.aat_law import r_squared
from jaxspec.trees.rank_traces import AATBySize, RankTraces, cycles_along_text
from jaxspec.trees.ranked_tree import RankedTree
from jaxspec.trees.trace_statistics import node_reach

__all__ = [
    "STATUS",
    "contexts_entry",
    "curve_entry",
    "draft_entry",
    "growth_entry",
    "law_entry",
    "proof_entry",
    "schedule_entry",
]

#: Lengths that the law is fitted to; the others judge it.
_FITTED_LENGTHS = 5

#: Metric -> status, of every entry.
STATUS = {
    "tokens_per_cycle": "measured",
    "standard_error": "measured",
    "acceptance": "measured",
    "law": "calibrated",
    "verify_s": "predicted",
    "draft_s": "predicted",
    "ar_bf16_s": "predicted",
    "ar_stored_s": "predicted",
    "effective_performance": "predicted",
    "tokens_per_s": "predicted",
    "speedup_vs_bf16_ar": "predicted",
    "speedup_vs_stored_ar": "predicted",
    "verification_length": "predicted",
    "schedule": "predicted",
    "tokens_per_cycle_predicted": "predicted",
    "tokens_per_cycle_counted": "measured",
    "tokens_per_cycle_standard_error": "measured",
    "tokens_per_cycle_gap_in_standard_errors": "measured",
    "accepted": "measured",
    "lossless": "measured",
    "timing_s": "measured",
    "pays": "predicted",
    "best_tree": "predicted",
    "fits": "predicted",
    "knobs": "input",
    "search": "input",
    "workload": "input",
    "decoding": "input",
}


def draft_entry(
    name: str, other: ReadyDraft | None, knobs: Knobs | None, priced: hwmodels.DraftCost, widths: hwmodels.Footprint
) -> dict[str, Any]:
    """What drafted, and what its steps were priced as.

    Args:
        other: the draft, unless it is the target's compressed copy, which has `knobs`.
    """
    own = priced.architecture
    return {
        "name": name,
        "parameters": None if other is None else other.draft.num_parameters(other.params) or None,
        "knobs": None if knobs is None else knobs_to_json(knobs),
        "priced_draft": {
            "statement": priced.statement,
            "architecture": None if own is None else {key: float(size) for key, size in vars(own).items()},
            "parameters": None if own is None else float(sum(hwmodels.parameters(own).values())),
        },
        "footprint": vars(widths),
    }


def growth_entry(growth: RankedTree, traces: RankTraces) -> dict[str, Any]:
    """The tree node by node: the first n are the tree of n nodes.

    `acceptance` is the share of all roots of held-out text at which a node is accepted.
    """
    reach = jax.jit(node_reach)(growth.tree(), traces)
    return {"parent": growth.parent.tolist(), "rank": growth.rank.tolist(), "acceptance": np.asarray(reach).tolist()}


def curve_entry(curve: AATBySize) -> list[dict[str, Any]]:
    """Tokens per cycle of every verification length, with standard errors over prompts."""
    rows = zip(*(np.asarray(x).tolist() for x in (curve.verification_length, curve.aat.mean, curve.aat.standard_error)))
    return [
        {"verification_length": length, "tokens_per_cycle": tokens, "standard_error": error}
        for length, tokens, error in rows
    ]


def law_entry(curve: AATBySize) -> dict[str, Any] | None:
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
    return {
        **{name: getattr(fit.law, name) for name in names},
        "intervals": dict(zip(names, fit.intervals.tolist(), strict=True)),
        "confidence": fit.confidence,
        "fitted_lengths": lengths[chosen].astype(int).tolist(),
        "r_squared": r_squared(fit.law, lengths, tokens),
        "shift_at_bound": fit.shift_at_bound,
        "tokens_per_cycle": band.mean.tolist(),
        "lower": band.lower.tolist(),
        "upper": band.upper.tolist(),
    }


def contexts_entry(contexts: tuple[int, ...], curve: AATBySize, times: GrowthTimes) -> list[dict[str, Any]]:
    """Speed at every length and context, of one sequence, and what pays there.

    Plain decoding is that of the uncompressed network or of the stored one, whichever is faster.

    Source: as above, Eq. (6) to (8).
    """
    lengths, tokens = np.asarray(curve.verification_length), np.asarray(curve.aat.mean, np.float32)
    seconds = (times.verify_s, times.draft_s, np.minimum(times.ar_bf16_s, times.ar_stored_s))
    performance, found = jax.device_get(_decide(lengths, tokens, *(np.asarray(x, np.float32) for x in seconds)))
    rows = []
    for i, context in enumerate(contexts):
        speed, best = float(found.tokens_per_s[i]), int(found.best_index[i])
        rows.append(
            {
                "context_tokens": context,
                "fits": bool(times.fits[i]),
                "decision": {
                    "speculate": bool(found.speculate[i]),
                    "verification_length": int(found.length[i]),
                    "tokens_per_cycle": float(tokens[best]) if found.speculate[i] else 1.0,
                    "tokens_per_s": speed,
                    "speedup_vs_bf16_ar": speed * times.ar_bf16_s[i],
                    "speedup_vs_stored_ar": speed * times.ar_stored_s[i],
                    "best_tree": {
                        "verification_length": int(found.best_length[i]),
                        "tokens_per_s": float(performance[i, best]),
                        "speedup_vs_bf16_ar": float(performance[i, best]) * times.ar_bf16_s[i],
                        "speedup_vs_stored_ar": float(performance[i, best]) * times.ar_stored_s[i],
                    },
                },
                "ar_bf16_s": times.ar_bf16_s[i],
                "ar_stored_s": times.ar_stored_s[i],
                "verify_s": times.verify_s[i].tolist(),
                "draft_s": times.draft_s[i].tolist(),
                "effective_performance": np.asarray(performance[i]).tolist(),
            }
        )
    return rows


@jax.jit
def _decide(lengths, tokens, verify_s, draft_s, plain_s) -> tuple[Array, Decision]:
    performance = effective_performance(tokens, verify_s, draft_s)
    return performance, decide(lengths, performance, plain_s)


def schedule_entry(contexts: tuple[int, ...], curve: AATBySize, times: GrowthTimes) -> dict[str, Any]:
    """Which length to use from which context on, and what switching gains over the best single one.

    Source: as above, III-B.3.
    """
    plain_s = np.minimum(times.ar_bf16_s, times.ar_stored_s)[:, None]
    cycle_s = (times.verify_s + times.draft_s) / np.asarray(curve.aat.mean, np.float64)
    token_s = jnp.asarray(np.concatenate([plain_s, cycle_s], axis=1), jnp.float32)
    grid = jnp.asarray(contexts, jnp.float32)
    schedule = jax.device_get(jax.jit(best_schedule)(grid, token_s))
    # Column 0 is plain decoding, a verification of one token; column n is the tree of n nodes.
    entries: list[dict[str, Any]] = []
    for start, option in zip(schedule.start.tolist(), schedule.option.tolist()):
        if not entries or entries[-1]["verification_length"] != option + 1:
            entries.append({"from_context_tokens": start, "verification_length": option + 1})
    generation = None
    if len(contexts) > 1:
        total = contexts[-1] - contexts[0]
        found = jax.device_get(jax.jit(generation_time)(grid, token_s, first_context=contexts[0], tokens=total))
        generation = {
            "first_context_tokens": contexts[0],
            "tokens": total,
            "tokens_per_s": float(found.tokens_per_s),
            "best_fixed_verification_length": int(found.best_fixed) + 1,
            "speedup_vs_best_fixed": float(found.speedup_vs_best_fixed),
            "speedup_vs_ar": float(found.speedup_vs_ar),
        }
    return {"entries": entries, "generation": generation}


def proof_entry(
    growth: RankedTree, nodes: int, *, traces: RankTraces, counted: Arrays, num_tokens: int, chosen: str
) -> dict[str, Any]:
    """Tokens per cycle counted in decoding, beside those that the ranks of the same prompts foretell.

    Args:
        nodes: of the tree that decoded.
        traces: of what the target puts out after the prompts. Under greedy decoding they foretell every cycle.
        counted: from `decode_prompts`.
        chosen: why this tree.
    """
    foretold = jax.jit(cycles_along_text)(
        growth.first(nodes).tree(size=growth.parent.size), traces, num_tokens=num_tokens
    )
    tokens, cycles, told_tokens, told_cycles = (
        np.asarray(x, np.float64)
        for x in (counted["generated"], counted["cycles"], foretold.generated, foretold.cycles)
    )
    compared = compare_cycles(tokens, cycles, told_tokens, told_cycles)
    share: Float[np.ndarray, " node"] = counted["accepted_nodes"].sum(axis=0)[:nodes] / cycles.sum()
    return {
        "tree": chosen,
        "verification_length": nodes + 1,
        "tokens_per_cycle_predicted": compared.predicted,
        "tokens_per_cycle_counted": compared.counted,
        "tokens_per_cycle_standard_error": compared.standard_error,
        "tokens_per_cycle_gap_in_standard_errors": compared.gap_in_standard_errors,
        "same_cycles": bool((tokens == told_tokens).all() and (cycles == told_cycles).all()),
        "cycles": int(cycles.sum()),
        "accepted": share.tolist(),
    }
