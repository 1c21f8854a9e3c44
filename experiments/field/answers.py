"""A prediction for each row, in the form that is written: times, speedup, 90 % interval, status, or why there is none."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp

from experiments.field.engines import Engine, engine_of
from experiments.field.fit import FAMILIES, Numbers, fit_numbers, kind_of, left_out, likes, scatter_of
from experiments.field.predict import Parts, predict
from experiments.field.rows import FieldRow
from hwmodels.analysis.uncertainty.delta_method import LogNormal
from hwmodels.speculation.engine_terms import EngineTerms

__all__ = ["LEFT_OUT", "Fitted", "all_fitted", "answers", "fitted", "unseen_numbers"]

#: The family with most groups of rows that take instructions for each row of a product.
USUAL = "llama.cpp"

#: What `--fit` writes: for each family of engines and each group of rows the numbers that were fitted to the other groups.
LEFT_OUT = Path(__file__).with_name("left_out.json")


class Fitted(NamedTuple):
    """What a fit gives for a family of engines: its numbers, and those of each group by all others."""

    numbers: Numbers
    left_out: dict[str, dict[str, Any]]


def all_fitted(rows: Sequence[FieldRow], parts: Sequence[Parts | str]) -> dict[str, Fitted]:
    """Each family's fit; groups have the scatters of the others."""
    usual = fitted(rows, parts, USUAL, 0.0).numbers.instructions
    fits = {family: fitted(rows, parts, family, usual) for family in FAMILIES}
    by_family = {family: found.left_out for family, found in fits.items()}
    for family, groups in by_family.items():
        for name, one in groups.items():
            others = [other["errors"] for group, other in groups.items() if group != name]
            one["scatter"] = scatter_of(others, likes(family, by_family))
    return fits


def fitted(rows: Sequence[FieldRow], parts: Sequence[Parts | str], family: str, usual: float) -> Fitted:
    """Numbers of a family's engines, and how far measurements lie from them. Arguments: `left_out`."""
    cells = [
        (row, part)
        for row, part in zip(rows, parts, strict=True)
        if isinstance(part, Parts) and engine_of(row.engine).name in FAMILIES[family] and not row.excluded
    ]
    return Fitted(fit_numbers(cells, family), left_out(cells, family, usual))


@functools.cache
def unseen_numbers() -> dict[str, dict[str, Any]]:
    """Id of a row that was fitted to -> what its group was predicted by."""
    families = json.loads(LEFT_OUT.read_text(encoding="utf-8")) if LEFT_OUT.exists() else {}
    return {name: group for groups in families.values() for group in groups.values() for name in group["rows"]}


def answers(
    rows: Sequence[FieldRow], parts: Sequence[Parts | str], engines: Callable[[str], Engine] = engine_of
) -> list[dict[str, Any]]:
    """One record per row, keys of the contract: id, predicted times and speedup, interval, `why_not`; and what was measured.

    Rows that engines' numbers were fitted to are predicted by numbers that were fitted to the other groups.

    Args:
        engines: what is known of an engine, by its name in a row.
    """
    return [_answer(row, part, engines(row.engine)) for row, part in zip(rows, parts, strict=True)]


#: What only a row with a prediction says.
_OF_PREDICTIONS = (
    *("predicted_speedup", "predicted_cycle_s", "predicted_ar_s", "low", "high", "device", "bandwidth_scale"),
    *("step_rest_s", "kernels", "weight_format", "draft_weight_format"),
)


def _answer(row: FieldRow, parts: Parts | str, engine: Engine) -> dict[str, Any]:
    measured = {"measured_speedup": row.speedup, "measured_cycle_s": row.cycle_s, "measured_ar_s": row.ar_s}
    about = {
        "id": row.id,
        "source": row.source,
        "draft_kind": row.draft_kind,
        "engine": row.engine,
        "excluded": row.excluded,
        "tokens_per_cycle": row.tokens_per_cycle,
    } | measured
    if isinstance(parts, str):
        return (
            about
            | dict.fromkeys(_OF_PREDICTIONS)
            | {"why_not": parts, "status": None, "ar_status": None, "engine_terms": None, "notes": []}
        )
    terms, most, scatter = engine.terms, engine.most, engine.scatter
    instructions = 0.0 if engine.rows is None else engine.rows.value
    if (unseen := unseen_numbers().get(row.id)) is not None and engine.name in unseen["terms"]:
        terms = most = EngineTerms(**unseen["terms"][engine.name])
        instructions, scatter = unseen["instructions"], unseen["scatter"]
    found = predict(row, parts, terms, instructions)
    deviation = jnp.asarray(scatter.get(kind_of(row, parts), scatter["other drafts"]))
    _, high = LogNormal(jnp.asarray(found.speedup), deviation).ends()
    low, _ = LogNormal(jnp.asarray(predict(row, parts, most, instructions).speedup), deviation).ends()
    return about | {
        "predicted_speedup": found.speedup,
        "predicted_cycle_s": found.cycle_s,
        "predicted_ar_s": found.ar_s,
        "low": float(low),
        "high": float(high),
        "device": parts.device,
        "bandwidth_scale": parts.bandwidth_scale,
        "step_rest_s": parts.step_rest_s,
        "kernels": parts.kernels,
        "weight_format": parts.weight_format,
        "draft_weight_format": parts.draft_weight_format,
        "engine_terms": engine.name if engine.terms is engine.most else None,
        "notes": [*engine.notes, *parts.notes],
        "why_not": None,
        "status": "predicted",
        "ar_status": "input" if parts.step_given else "predicted",
    }
