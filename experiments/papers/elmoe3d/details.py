"""Beside the tables: errors of both halves, decisions, other choices of a reader, and the bars."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.papers.elmoe3d.energy import COMPONENTS, baseline_energy, best_mode_energy
from experiments.papers.elmoe3d.figures import baseline_speedups
from experiments.papers.elmoe3d.fitted import EMBEDDING_INSIDE, MODEL, ONE_RULE, SLICES_ALWAYS, Variant
from experiments.papers.elmoe3d.model import Speedups, devices
from experiments.papers.elmoe3d.printed import (
    BATCHES,
    CAPACITIES,
    METHODS,
    MODELS,
    claim,
    draft_bits,
    table_three,
    target,
    target_bits,
)
from experiments.papers.elmoe3d.results import FITTED_HALF, Solved, choices, errors_of, printed_choices, solve, spread
from experiments.papers.elmoe3d.steps import VERIFIED_NODES
from experiments.reproduce.paper import Outcome, Statement, detail, missed_statements, statement, statements_detail
from hwmodels import touched_experts
from hwmodels.network.architecture import EXPERT_MATRICES
from hwmodels.parallel import sum_exchange
from jaxspec.formats.bit_slices import read_draft

__all__ = ["AVERAGE_OFF", "BARS", "DETAILS", "MEASURED", "VARIANTS", "missed_bars", "statements", "steepening"]


#: `pool_rules` and `cache_hits` of `measured_figures`: gains of hot over random pools, drafted tokens accepted, hits.
MEASURED = Path(__file__).parent / "data" / "measured_pools.json"


def _measured() -> dict[str, Any]:
    return json.loads(MEASURED.read_text(encoding="utf-8"))


#: How far averages may be off, relative.
AVERAGE_OFF = 0.03

#: Verifications within this share take about as long, a loss below it is marginal, and a draft this much quicker is quick.
_ALIKE, _MARGINAL, _QUICK = 0.05, 0.1, 0.1

_EAGLE, _QUANT, _ELASTIC = (METHODS.index(name) for name in ("EAGLE3", "Quant-SD", "Elastic-SD"))
_QWEN = list(MODELS).index("Qwen3-30B-A3B")

_statement = functools.partial(statement, Path(__file__).parent)


def _schemes(solved: Solved) -> list[Statement]:
    columns = lambda halves: sum(int(np.sum(half.speculative.argmax(axis=1) == _ELASTIC)) for half in halves)
    ours, theirs = columns(solved.halves.values()), columns(map(table_three, CAPACITIES))
    count = len(CAPACITIES) * len(MODELS) * len(BATCHES)
    steps = solved.halves[FITTED_HALF].steps
    draft, verify = (
        {name: float(np.asarray(getattr(one, kind).seconds)[_QWEN, -1]) for name, one in steps.items()}
        for kind in ("draft", "verify")
    )
    rows = [
        _statement("fastest", f"in {ours} of {count} columns of Table 3, as printed in {theirs}", ours == count),
        _statement(
            "longest",
            "; ".join(f"{name} {1e3 * draft[name]:.1f} and {1e3 * verify[name]:.0f} ms" for name in METHODS),
            max(verify, key=verify.__getitem__) == "Quant-SD"
            and all(time < _QUICK * draft["Quant-SD"] for name, time in draft.items() if name != "Quant-SD"),
            quick=_QUICK,
        ),
    ]
    for gb, says, holds in (
        (4, "with 4 GB leading bits verify sooner than whole experts at every batch", lambda over: np.all(over < 1)),
        (8, "with 8 GB whole experts verify sooner for one request", lambda over: over[0] > 1),
        (8, f"and about as long for 16 (within {_ALIKE:.0%})", lambda over: abs(over[-1] - 1) < _ALIKE),
    ):
        verifications = [solved.halves[gb].steps[name].verify.seconds for name in ("Elastic-SD", "EAGLE3")]
        over = np.divide(*(np.asarray(seconds, np.float64)[_QWEN] for seconds in verifications))
        ours_is = f"Elastic-SD over EAGLE3: {', '.join(f'{ratio:.2f}' for ratio in over)} at {BATCHES}"
        rows.append(
            Statement("Fig. 13", says, ours_is, bool(holds(over)), "calibrated" if gb == FITTED_HALF else "predicted")
        )
    return rows


def _rivals(solved: Solved) -> list[Statement]:
    rivals, half = baseline_speedups(), solved.halves[FITTED_HALF]
    ours = np.maximum(half.autoregressive, half.speculative)[:, _ELASTIC]
    best = np.max(list(rivals.values()), axis=0)
    means = {name: values.mean(axis=1) for name, values in rivals.items()}
    strongest = [max(means, key=lambda name, row=row: means[name][row]) for row in range(len(MODELS))]
    named = "; ".join(f"{model}: {name}" for model, name in zip(MODELS, strongest, strict=True))
    small = {name: bool(np.all(values[:, 0] > values[:, -1])) for name, values in rivals.items()}
    lost = {name: int(np.sum(values >= ours)) for name, values in rivals.items()}
    over = ours / best
    near = lambda value, name: bool(abs(value / claim(name) - 1) < AVERAGE_OFF)
    return [
        _statement(
            "small_batches",
            "; ".join(
                f"{name} {values[:, 0].mean():.1f}x for 1 request, {values[:, -1].mean():.1f}x for 16"
                for name, values in rivals.items()
            ),
            all(small.values()),
        ),
        _statement("pim", named, strongest[:2] == ["xPU-PIM"] * 2),
        _statement("nmp", named, strongest[2:] == ["xPU-NMP"] * 2),
        _statement(
            "always",
            f"of {ours.size} cells it loses {', '.join(f'{count} to {name}' for name, count in lost.items())}",
            not any(lost.values()),
        ),
        _statement(
            "mean_gain",
            f"{over.mean():.2f}x, of one data set of four",
            near(over.mean(), "ELM004"),
            gain=claim("ELM004"),
            within=AVERAGE_OFF,
        ),
        _statement(
            "largest_gain",
            f"{over.max():.2f}x, of one data set of four",
            near(over.max(), "ELM005"),
            gain=claim("ELM005"),
            within=AVERAGE_OFF,
        ),
    ]


def _locality(solved: Solved) -> list[Statement]:
    fitted, row, a = solved.fit.fitted, list(MODELS).index("GLM-4.7-Flash"), target("GLM-4.7-Flash")
    step = solved.halves[FITTED_HALF].steps["Elastic-SD"].autoregressive
    share = np.asarray(step.cached_experts, np.float64)[row] / float(a.num_experts)
    exponents = np.asarray(fitted.locality, np.float64)
    misses = 1 - share ** exponents[row]
    third = 1 - (1 / 3) ** exponents
    tokens = 16.0
    request = 1 + (float(fitted.verified_tokens[row]) - 1) * (tokens - 1) / 59
    one, several = (
        float(touched_experts(a.num_experts, a.experts_per_token, count))
        for count in (request, tokens ** float(fitted.independence[row]))
    )
    return [
        _statement(
            "misses",
            f"a cache of one size misses as often at every batch; here it shrinks beside the KV cache: {misses[0]:.0%} "
            f"for 1 request, {misses[-1]:.0%} for 16",
            False,  # by the form of the hits, whatever is fitted
        ),
        _statement("touched", f"{one:.0f} and {several:.0f} of {float(a.num_experts):.0f}, GLM", one < 2 / 3 * several),
        _statement(
            "locality",
            f"with a third of the experts cached {third.min():.0%} to {third.max():.0%} are missed",
            third.max() > 1.5 * third.min(),
        ),
    ]


def _pools(measured: Mapping[str, list[dict[str, float]]]) -> list[Statement]:
    hot, printed = [row for row in measured["gain_over_random"] if row["rule"] == "hotness"], 1 + claim("ELM019") / 100
    inside = sum(row["low"] <= printed <= row["high"] for row in hot)
    lengths = {
        rule: np.array([row["mean"] for row in measured["pool_rules"] if row["rule"] == rule])
        for rule in ("hotness", "hotness of 16 sequences")
    }
    lost = 1 - lengths["hotness of 16 sequences"] / lengths["hotness"]
    gains = [row["ratio"] for row in hot]
    return [
        _statement(
            "hot_pools",
            f"{min(gains):.2f}x to {max(gains):.2f}x over sizes, {inside} of {len(hot)} intervals have it",
            2 * inside > len(hot),
            gain=claim("ELM019"),
        ),
        _statement(
            "shared_pools",
            f"by {lost.min():.0%} to {lost.max():.0%}, 16 sequences",
            np.all(lost < _MARGINAL),
            marginal=_MARGINAL,
        ),
    ]


def _slices() -> list[Statement]:
    """Fig. 8, of all 256 bytes."""
    weights = np.arange(-128, 128)
    cut, rounded, augmented = (
        weights - np.asarray(read_draft(jnp.asarray(weights, jnp.int8), reading), int)
        for reading in ("truncation", "rounding", "augmentation")
    )
    spread = lambda errors: f"{errors.min()} to {errors.max()}"
    low, high = int(claim("ELM024")), int(claim("ELM025"))
    half, residual = int(-claim("ELM026")), int(claim("ELM028"))
    beyond = int(np.sum(rounded >= half))
    bits = 1 + int(np.ceil(np.log2(max(-rounded.min(), rounded.max() + 1))))
    return [
        _statement(
            "cutting",
            f"{spread(cut)}, {spread(augmented)}",
            (cut.min(), cut.max(), augmented.min(), augmented.max()) == (low, high, -half, half - 1),
            low=low,
            high=high,
            least=-half,
            most=half - 1,
        ),
        _statement(
            "rounding",
            f"{spread(rounded)}: {beyond} of {weights.size} bytes are beyond, since 4 bits hold no larger slice",
            beyond == 0,
            least=-half,
            most=half - 1,
        ),
        _statement("residual", f"{bits} bits", bits == residual, residual=residual),
    ]


def _exchanges() -> list[Statement]:
    """Fig. 10: partial sums of an expert's two products against its slices, by activations that are routed to it."""
    bonded, _ = devices(FITTED_HALF)
    unit, outside = bonded.matrix_unit, bonded.spill[-1]
    outside_s = 1.0 / (outside.bandwidth_bytes_per_s * outside.efficiency)
    most, volumes, meant = {}, {}, {}
    for model in MODELS:
        if draft_bits(model)[EXPERT_MATRICES[0]] == target_bits(model)[EXPERT_MATRICES[0]]:
            continue  # experts that have no slices
        a = target(model)
        hidden, width = float(a.hidden_size), float(a.expert_intermediate_size)
        both = [
            sum_exchange(unit.links, 1.0, k, n, elements=unit.pes) for k, n in ((hidden, 2 * width), (width, hidden))
        ]
        slice_bytes = 3 * hidden * width * unit.slice_bits / 8
        most[model] = float(slice_bytes * outside_s / sum(one.time_s for one in both))
        volumes[model] = float(slice_bytes / sum(one.volume_bytes for one in both))
        meant[model] = BATCHES[-1] * VERIFIED_NODES * float(a.experts_per_token / a.num_experts)
    words = lambda values: ", ".join(f"{model} {value:.0f}" for model, value in values.items())
    return [
        _statement(
            "exchanged_bytes",
            f"an expert's slice is as many bytes as the exchange of {words(volumes)} activations",
            all(value > 1 for value in volumes.values()),
        ),
        _statement(
            "exchange_time",
            f"up to {words(most)} activations of an expert, which has {words(meant)}",
            all(most[model] >= meant[model] for model in most),
            requests=BATCHES[-1],
            tokens=VERIFIED_NODES,
        ),
    ]


def statements(solved: Solved) -> list[Statement]:
    """All of them."""
    return [
        *_schemes(solved),
        *_slices(),
        *_exchanges(),
        *_rivals(solved),
        *_locality(solved),
        *_pools(_measured()),
    ]


_OTHER_HALF = next(gb for gb in CAPACITIES if gb != FITTED_HALF)


def steepening(hits: Sequence[Mapping[str, float]]) -> float:
    """By which measured exponents of hits rise as the cached share falls: the slope of one's logarithm over the other's."""
    share, exponent = (np.log([row[key] for row in hits]) for key in ("share", "exponent"))
    return -float(np.polyfit(share, exponent, 1)[0])


#: What else a reader might have chosen, each with numbers fitted anew to the same half.
VARIANTS: Mapping[str, Variant] = {
    "the model": MODEL,
    "alpha of each token": Variant(alpha_by_token=True),
    "one rule of hits": ONE_RULE,
    "five draft steps": Variant(draft_depth=5),
    "LRU by characteristic time": Variant(lru=True),
    "embedding inside HB": EMBEDDING_INSIDE,
    "leading bits cached in both modes": SLICES_ALWAYS,
    "small caches as routers choose": Variant(steepening=steepening(_measured()["cache_hits"])),
}

#: Largest errors of a reproduction: median, 90th percentile, maximum.
BARS = {
    ("autoregressive", FITTED_HALF): (0.012, 0.035, 0.05),
    ("autoregressive", _OTHER_HALF): (0.02, 0.06, 0.16),
    ("speculative", FITTED_HALF): (0.04, 0.10, 0.30),
    ("speculative", _OTHER_HALF): (0.05, 0.16, 0.30),
}

#: Decisions of 128 and 32 that have to be right, and how far averages may be off.
_MODES_RIGHT, _SCHEMES_RIGHT = 122, 30
_AVERAGE_OFF = dict.fromkeys(("ELM014", "ELM016", "ELM017"), AVERAGE_OFF) | {"ELM006": 0.15}


def _half_rows(solved: Solved, name: str) -> Iterable[dict[str, Any]]:
    for gb in CAPACITIES:
        errors, fitted, half = errors_of(solved, gb), solved.fit.half_gb, solved.halves[gb]
        decided = choices(half.autoregressive, half.speculative, gb)
        yield {
            "variant": name,
            "half": f"{gb} GB, {'fitted' if gb == fitted else 'predicted'}",
            **{f"ar_{key}": value for key, value in spread(errors.autoregressive).items()},
            **{f"sd_{key}": value for key, value in spread(errors.speculative).items()},
            **{key: getattr(decided, key) for key in ("mode_right", "modes", "scheme_right", "schemes")},
        }


def variants(outcome: Outcome) -> list[dict[str, Any]]:
    """Errors of each variant, fitted to the same half; and of the model fitted to the other half."""
    rows: list[dict[str, Any]] = []
    for name, variant in VARIANTS.items():
        rows += _half_rows(outcome.solved if variant == MODEL else solve(variant), name)
    return rows + list(_half_rows(solve(MODEL, _OTHER_HALF), "the model, fitted to the other half"))


def decisions(outcome: Outcome) -> list[dict[str, Any]]:
    """What a reader decides by Table 3, by the model and by the printed cells."""
    rows = []
    for gb in CAPACITIES:
        half = outcome.solved.halves[gb]
        ours, theirs = choices(half.autoregressive, half.speculative, gb), printed_choices(gb)
        rows.append({"half": f"{gb} GB", **ours._asdict()} | {f"printed_{k}": v for k, v in theirs._asdict().items()})
    return rows


def _named_cells() -> Iterable[tuple[str, str, tuple[int, int, int]]]:
    """Name, method and place of each cell of a half."""
    for i, model in enumerate(MODELS):
        for j, method in enumerate(METHODS):
            for k, batch in enumerate(BATCHES):
                yield f"{model}, {method}, batch {batch}", method, (i, j, k)


def furthest(outcome: Outcome, most: int = 12) -> list[dict[str, Any]]:
    """The predicted cells that are furthest off."""
    rows = []
    printed, half, errors = (
        table_three(_OTHER_HALF),
        outcome.solved.halves[_OTHER_HALF],
        errors_of(outcome.solved, _OTHER_HALF),
    )
    for field in errors._fields:
        for name, method, place in _named_cells():
            error = float(getattr(errors, field)[place])
            if not np.isnan(error):
                rows.append(
                    {
                        "cell": name,
                        "mode": field,
                        "paper": float(getattr(printed, field)[place]),
                        "model": float(getattr(half, field)[place]),
                        "error": error,
                        "cached": _cached(half, method, place),
                    }
                )
    return sorted(rows, key=lambda row: -abs(row["error"]))[:most]


def _cached(half: Speedups, method: str, place: tuple[int, int, int]) -> float:
    """Experts of a layer that are cached in a verification."""
    return float(half.steps[method].verify.cached_experts[place[0], place[2]])


def misjudged(outcome: Outcome) -> list[dict[str, Any]]:
    """Cells whose faster mode the model misses; margins are those of speculation over autoregressive decoding."""
    rows = []
    for gb in CAPACITIES:
        printed, half = table_three(gb), outcome.solved.halves[gb]
        for name, method, place in _named_cells():
            theirs, ours = (float(one.speculative[place] / one.autoregressive[place]) - 1.0 for one in (printed, half))
            if (theirs > 0.0) != (ours > 0.0):
                rows.append(
                    {
                        "half": f"{gb} GB",
                        "cell": name,
                        "printed_alone": float(printed.autoregressive[place]),
                        "printed_together": float(printed.speculative[place]),
                        "printed_margin": theirs,
                        "alone": float(half.autoregressive[place]),
                        "together": float(half.speculative[place]),
                        "margin": ours,
                        "cached": _cached(half, method, place),
                        "flagged": bool(printed.flagged[place]),
                    }
                )
    return rows


def energies(outcome: Outcome) -> list[dict[str, Any]]:
    """Energy per token with 8 GB, by component."""
    half = outcome.solved.halves[FITTED_HALF]
    base, ours = baseline_energy(half), best_mode_energy(half)
    return [
        {
            "model": model,
            "batch": batch,
            "base_mj": 1e3 * float(base.total_j[i, k]),
            **{name: 1e3 * float(ours.by_component[n, i, k]) for n, name in enumerate(COMPONENTS)},
            "ratio": float(base.total_j[i, k] / ours.total_j[i, k]),
            "of_accesses": float(base.accesses_j[i, k] / ours.accesses_j[i, k]),
            "mode": "speculation" if ours.speculates[i, k] else "autoregressive",
        }
        for i, model in enumerate(MODELS)
        for k, batch in enumerate(BATCHES)
    ]


def missed_bars(outcome: Outcome) -> list[str]:
    """A line for each figure that is outside what a reproduction may have."""
    missed = []
    for (field, gb), bars in BARS.items():
        errors = spread(getattr(errors_of(outcome.solved, gb), field))
        for (name, value), bar in zip(errors.items(), bars, strict=True):
            if value > bar:
                missed.append(f"{field} speedups, {gb} GB: {name} {value:.1%} is above {bar:.1%}")
    rows = decisions(outcome)
    for key, least in (("mode_right", _MODES_RIGHT), ("scheme_right", _SCHEMES_RIGHT)):
        right = sum(row[key] for row in rows)
        if right < least:
            missed.append(f"{key}: {right} is below {least}")
    for row in outcome.of("claims"):
        most = _AVERAGE_OFF.get(row["conditions"]["claim_id"])
        if most is not None and row["relative_error"] > most:
            missed.append(f"{row['conditions']['claim_id']}: {row['relative_error']:.1%} is above {most:.0%}")
    return missed + missed_statements(outcome)


_PERCENT = "{{{}:.1%}}"

_detail = functools.partial(detail, Path(__file__).parent)

DETAILS = (
    statements_detail(statements),
    _detail("variants", variants),
    _detail("decisions", decisions),
    _detail("misjudged", misjudged),
    _detail("furthest", furthest),
    _detail("energy", energies),
)
