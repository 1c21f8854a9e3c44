"""A prediction for each row, in the form that is written: times, speedup, 90 % interval, status, or why there is none."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from experiments.field.engines import Engine, engine_of
from experiments.field.fit import calibration_rows, errors_of_unseen, fit_terms, rounded
from experiments.field.networks import A_NETWORK
from experiments.field.predict import Parts, predict
from experiments.field.rows import FieldRow
from hwmodels.analysis.uncertainty.delta_method import LogNormal
from hwmodels.speculation.engine_terms import EngineTerms

__all__ = ["CALIBRATION_ROWS", "answers", "fitted", "kind_of"]

#: Rows that engines' terms were fitted to, written with them by `--fit`.
CALIBRATION_ROWS = Path(__file__).with_name("calibration_rows.json")


class Fitted(NamedTuple):
    """What a fit says of an engine.

    Attributes:
        scatter: kind of draft -> standard deviation of log speedup about predictions.
        rows: ids of the rows fitted to.
    """

    terms: EngineTerms
    scatter: dict[str, float]
    rows: list[str]


def fitted(
    rows: Sequence[FieldRow],
    parts: Sequence[Parts | str],
    engine: str,
    elsewhere: Sequence[tuple[FieldRow, Parts | str]] = (),
) -> Fitted:
    """Terms of an engine, how far measurements lie from them, and the rows that they were fitted to.

    Args:
        elsewhere: further rows and their parts, of machines that no term is fitted to.
    """
    chosen = calibration_rows(rows, engine)
    own, further = (
        [(row, part) for row, part in pairs if isinstance(part, Parts) and engine_of(row.engine).name == engine]
        for pairs in (zip(rows, parts, strict=True), elsewhere)
    )
    cells = [(row, part) for row, part in own if row.id in chosen]
    terms = rounded(fit_terms(cells, engine))
    is_network = lambda part: kind_of(part) == "small network"
    networks = [(row, part) for row, part in own + further if row.speedup and not row.excluded and is_network(part)]
    others = [(row, part) for row, part in own if row.speedup and not is_network(part)]
    # Nothing was fitted to the kind of the next head, or to the machine of the next source; a median: one of few is far off.
    unseen = (lambda row: row.draft_kind) if networks else (lambda row: row.source)
    scatter = {"other drafts": float(np.median(list(errors_of_unseen(cells, others, engine, unseen).values())))}
    scatter["small network"] = scatter["other drafts"]
    if networks:  # nor to the machine of the next network
        machines = errors_of_unseen(cells, networks, engine, lambda row: row.group)
        scatter["small network"] = float(np.sqrt(np.mean(np.square(list(machines.values())))))
    return Fitted(terms, scatter, sorted(chosen))


def answers(
    rows: Sequence[FieldRow], parts: Sequence[Parts | str], engines: Callable[[str], Engine] = engine_of
) -> list[dict[str, Any]]:
    """One record per row, keys of the contract: id, predicted times and speedup, interval, `why_not`; and what was measured.

    Args:
        engines: what is known of an engine, by its name in a row.
    """
    seen = set(json.loads(CALIBRATION_ROWS.read_text(encoding="utf-8")))
    return [_answer(row, part, engines(row.engine), row.id in seen) for row, part in zip(rows, parts, strict=True)]


#: What only a row with a prediction says.
_OF_PREDICTIONS = (
    *("predicted_speedup", "predicted_cycle_s", "predicted_ar_s", "low", "high", "device", "bandwidth_scale"),
    *("step_rest_s", "kernels", "weight_format", "draft_weight_format"),
)


def _answer(row: FieldRow, parts: Parts | str, engine: Engine, calibrated: bool) -> dict[str, Any]:
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
    found = predict(row, parts, engine.terms)
    scatter = jnp.asarray(engine.scatter[kind_of(parts)])
    _, high = LogNormal(jnp.asarray(found.speedup), scatter).ends()
    low, _ = LogNormal(jnp.asarray(predict(row, parts, engine.most).speedup), scatter).ends()
    status = "calibrated" if calibrated else "predicted"
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
        "status": status,
        "ar_status": "input" if parts.step_given else status,
    }


def kind_of(parts: Parts) -> str:
    """Which of the engine's scatters counts for a row: by what was priced, whatever the row calls it."""
    return "small network" if parts.draft == A_NETWORK else "other drafts"
