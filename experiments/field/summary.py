"""Errors of predicted speedups by source, signs, draft lengths and intervals, beside the simplest predictors."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.field.fit import group_of
from experiments.field.networks import draft_of, named_architecture
from experiments.field.rows import FieldRow
from experiments.field.stored import BESIDES, WORDS, NotPricedError, stored, weight_bits
from hwmodels import Architecture, parameters

__all__ = ["SIMPLEST", "best_lengths", "class_of", "constant_of_others", "errors_of", "summarise"]


def tokens_alone(row: FieldRow) -> float:
    """Tokens per cycle: drafting is free and a verification takes a step."""
    assert row.tokens_per_cycle is not None
    return row.tokens_per_cycle


def weights_ratio(row: FieldRow) -> float:
    """Tokens per cycle over what a cycle reads of weights in units of a step: all is bound by memory."""
    try:
        target = named_architecture(row.target)
        draft = draft_of(row, target)
        own = target if draft.architecture is None else draft.architecture
        read = _read(own, row.draft_precision), _read(target, row.target_precision)
    except NotPricedError:
        return float("nan")
    share = float(draft.passes) * read[0] / read[1]
    return tokens_alone(row) / (1.0 + row.draft_length * share)


def constant_of_others(rows: Sequence[FieldRow]) -> Mapping[str, float]:
    """For each group the best constant of the other groups: the median of their median measured speedups."""
    groups: dict[str, list[float]] = {}
    for row in rows:
        if row.speedup is not None and not row.excluded:
            groups.setdefault(group_of(row), []).append(row.speedup)
    middles = {group: float(np.median(found)) for group, found in groups.items()}
    return {
        group: float(np.median([middle for other, middle in middles.items() if other != group] or [float("nan")]))
        for group in middles
    }


def _read(architecture: Architecture, precision: str) -> float:
    """Bits that a step reads: of all but an embedding table that is no head, and of experts those of one token."""
    counts = {kind: float(count) for kind, count in parameters(architecture).items()}
    if not float(architecture.tied_embeddings):
        counts["embed"] = 0.0
    bits = weight_bits(stored(precision), architecture)
    return sum(count * float(bits[kind]) for kind, count in counts.items())


#: Name in the table -> predicted speedup of a row.
SIMPLEST = {"tokens per cycle alone": tokens_alone, "weights read": weights_ratio}


#: Gains that matter: a prediction on the other side of 1 is wrong then.
_GAIN = 0.05
#: A draft length is right if it loses no more than this against the best measured one.
_CLOSE = 0.02
#: The last of the simplest predictors.
CONSTANT = "the median speedup of other groups"

#: Classes of devices: of several, and by words of a device's name; the first that fits counts.
_CLASSES = WORDS["classes"]


def class_of(row: FieldRow) -> str:
    """The class of a row's device."""
    several, text = row.device_count > 1, row.device.lower()
    fits = lambda one: several if "several" in one else re.search(one["words"], text)
    return next((one["name"] for one in _CLASSES if fits(one)), _CLASSES[-1]["name"])


_CLOCKS = ("cycle_over_step", "cycle_s", "ar_s")


def errors_of(predicted: Iterable[float], measured: Iterable[float]) -> dict[str, Any]:
    """Relative errors: how many, median and 90th percentile of their sizes, largest, and the median with its sign."""
    errors = np.array([one / other - 1.0 for one, other in zip(predicted, measured, strict=True) if np.isfinite(one)])
    if not len(errors):
        return {"rows": 0, "median": None, "p90": None, "largest": None, "bias": None}
    sizes = np.abs(errors)
    return {
        "rows": len(errors),
        "median": float(np.median(sizes)),
        "p90": float(np.quantile(sizes, 0.9)),
        "largest": float(sizes.max()),
        "bias": float(np.median(errors)),
    }


@dataclasses.dataclass(frozen=True)
class Scored:
    """A row that was predicted and measured."""

    row: FieldRow
    answer: dict[str, Any]
    predicted: float
    measured: float


def best_lengths(scored: Sequence[Scored]) -> dict[str, int]:
    """In how many groups of rows that differ by draft length alone the best one is picked, or one nearly as good."""
    groups: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for one in scored:
        row = one.row
        # Sequences in flight differ a little from run to run: what was asked for is rounded.
        key = (
            row.group,
            row.draft_kind,
            row.draft,
            row.draft_precision,
            row.dataset,
            round(math.log2(row.ar_batch), 1),
        )
        groups.setdefault(key, []).append((one.predicted, one.measured))
    found = [group for group in groups.values() if len(group) > 1]
    right = sum(max(group)[1] >= (1.0 - _CLOSE) * max(measured for _, measured in group) for group in found)
    return {"groups": len(found), "right": right}


def summarise(rows: Sequence[FieldRow], answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Summary of the rows that were predicted and measured.

    Args:
        rows, answers: as `experiments.field.__main__` makes them, in one order.
    """
    scored = [
        Scored(row, answer, answer["predicted_speedup"], row.speedup)
        for row, answer in zip(rows, answers, strict=True)
        if answer["predicted_speedup"] is not None and row.speedup is not None and not row.excluded
    ]
    constants, names = constant_of_others(rows), sorted({_name(one.row) for one in scored})
    classes = {name: [one for one in scored if class_of(one.row) == name] for name in (one["name"] for one in _CLASSES)}
    everything_else = [one for one in scored if class_of(one.row) not in ("several GPUs", "GPUs of data centers")]
    classes |= {"all but data centers": everything_else, "all rows": scored}
    return {
        "rows": len(rows),
        "stated": sum(states_what_is_needed(row) for row in rows),
        "classes": {name: _source(every, constants) for name, every in classes.items() if every},
        "predicted": sum(answer["predicted_speedup"] is not None for answer in answers),
        "without_prediction": _counted(
            cause for answer in answers for cause in (answer["why_not"] or "").split(BESIDES)
        ),
        "notes": _counted(note for answer in answers for note in answer["notes"]),
        "sources": {name: _source([one for one in scored if _name(one.row) == name], constants) for name in names},
    }


def states_what_is_needed(row: FieldRow) -> bool:
    """Whether a row says its device, how much is drafted and how much of it is accepted."""
    return bool(row.device) and row.draft_length >= 1 and row.tokens_per_cycle is not None and not row.unread


def _name(row: FieldRow) -> str:
    return f"{row.source}, {row.target}, {row.draft_kind}"


def _source(every: Sequence[Scored], constants: Mapping[str, float]) -> dict[str, Any]:
    """One source or class: errors of steps without speculation are of those that no bandwidth was solved from."""
    scored = every
    measured = [one.measured for one in scored]
    decided = [one for one in scored if abs(one.measured - 1.0) > _GAIN]

    def times(one: Scored) -> dict[str, tuple[float, float]]:
        found, row = {}, one.row
        if row.cycle_s:
            found["cycle_s"] = (one.answer["predicted_cycle_s"], row.cycle_s)
        if row.ar_s and one.answer["ar_status"] != "input":
            found["ar_s"] = (one.answer["predicted_ar_s"], row.ar_s)
        if row.cycle_s and row.ar_s:
            ratio = one.answer["predicted_cycle_s"] / one.answer["predicted_ar_s"]
            found["cycle_over_step"] = (ratio, row.cycle_s / row.ar_s)
        return found

    clocks = [times(one) for one in scored]
    simplest = {name: errors_of([rule(one.row) for one in scored], measured) for name, rule in SIMPLEST.items()}
    return {
        "speedup": errors_of([one.predicted for one in scored], measured),
        **{name: _pairs([found[name] for found in clocks if name in found]) for name in _CLOCKS},
        "wrong_signs": sum((one.predicted > 1.0) != (one.measured > 1.0) for one in decided),
        "decided": len(decided),
        "best_draft_length": best_lengths(every),
        "inside_interval": sum(one.answer["low"] <= one.measured <= one.answer["high"] for one in scored),
        "simplest": simplest | {CONSTANT: errors_of([constants[group_of(one.row)] for one in scored], measured)},
    }


def _pairs(found: Sequence[tuple[float, float]]) -> dict[str, Any]:
    return errors_of([one for one, _ in found], [other for _, other in found])


def _counted(texts: Iterable[str | None]) -> dict[str, int]:
    """How many rows say each, in the order of the rows."""
    return dict(Counter(text for text in texts if text))
