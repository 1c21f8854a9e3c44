"""The same matrix rows for drafted tokens or for samples: what either buys."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from hwmodels import DraftCost, Footprint, tokens_per_cycle
from hwmodels.analysis.uncertainty.delta_method import LogNormal
from hwmodels.analysis.uncertainty.kernel_errors import known_scatter
from jaxspec.results import Quantity, measured, predicted
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.studies.engine_pricing import engine_scatter, kind_of_draft
from jaxspec.studies.headline_intervals import interval_ends
from jaxspec.studies.scale.config import ScaleConfig
from jaxspec.studies.scale.pricing import price_speculation
from jaxspec.studies.scale.result import Exchange, ExchangeEnds, PlanRow
from jaxspec.tuning.objective import Pricing

__all__ = ["all_positions", "exchange_rows"]


def all_positions(conditional: Sequence[float], longest: int) -> list[float]:
    """Acceptance by position up to the longest draft; beyond those that are known, as at the last of them.

    Args:
        conditional: by position, or one number for all.
    """
    known = [0.0 if np.isnan(chance) else float(chance) for chance in conditional]
    return (known + known[-1:] * longest)[: max(longest, 1)]


def exchange_rows(
    config: ScaleConfig,
    pricing: Pricing,
    rows: Sequence[PlanRow],
    *,
    footprint: Footprint,
    draft: DraftCost,
    conditional: Sequence[float],
) -> list[Exchange]:
    """For one network on a device: every budget at every batch.

    Args:
        rows: of this network.
        conditional: acceptance by position.
    """
    budgets, batches = [n for n in config.samples if n > 1], list(dict.fromkeys(row.batch for row in rows))
    if not budgets:
        return []
    # Drafts beyond those that a chain engine makes are priced at the whole width only.
    lengths = sorted({*range(1, min(2 * MAX_DRAFT_LENGTH, max(budgets) - 1) + 1), *(n - 1 for n in budgets)})
    gained = np.asarray(tokens_per_cycle(jnp.asarray(all_positions(conditional, lengths[-1]))), np.float64)
    tokens = np.concatenate([[1.0], gained[np.array(lengths) - 1]])
    plain = {batch: _first(rows, batch, 1) for batch in batches}
    passes = np.array([plain[batch].passes.known for batch in batches])
    found = jax.device_get(
        price_speculation(
            pricing.device,
            pricing.architecture,
            footprint,
            draft,
            jnp.asarray(float(config.context)),
            jnp.asarray(batches, float),
            jnp.asarray(passes, float),
            jnp.asarray(lengths, float),
            jnp.asarray(tokens, jnp.float32),
            pricing.engine,
            known_scatter(pricing.device, engine_scatter(config.engine, kind_of_draft(draft), device=pricing.device)),
        )
    )
    result = []
    for i, batch in enumerate(batches):
        seconds = float(found.prefill_s[i]) + passes[i] * np.asarray(found.cycle_s[i], np.float64) / tokens
        for budget in budgets:
            allowed = [j for j, length in enumerate([0, *lengths]) if length < budget]
            best = min(allowed, key=lambda j: seconds[j])
            one, sampled = plain[batch], _best(rows, batch, budget)
            row = _row(one, sampled, budget, [0, *lengths][best], float(tokens[best]), float(seconds[best]))
            result.append(dataclasses.replace(row, intervals=_ends(found.numbers, (i, best))))
    return result


def _ends(numbers: dict[str, LogNormal], at: tuple[int, int]) -> ExchangeEnds | None:
    """None where nothing is known to err, as of plain decoding where cycles alone were measured."""
    if not any(float(number.log_deviation[at]) > 0 for number in numbers.values()):
        return None
    return ExchangeEnds(**{name: interval_ends(number, at) for name, number in numbers.items()})


def _first(rows: Sequence[PlanRow], batch: int, samples: int) -> PlanRow:
    return next(row for row in rows if (row.batch, row.samples) == (batch, samples))


def _best(rows: Sequence[PlanRow], batch: int, samples: int) -> PlanRow | None:
    """The attainable plan with the highest accuracy, of equal ones the fastest.

    Of those that fit; where not even one sample does, of all, as a larger memory would have them.
    """
    fits = _first(rows, batch, 1).fits.value
    here = [row for row in rows if (row.batch, row.samples) == (batch, samples) and row.attainable]
    here = [row for row in here if row.fits.value or not fits]
    return max(here, key=lambda row: (row.accuracy.known, -row.total_s.known), default=None)


def _row(one: PlanRow, sampled: PlanRow | None, budget: int, length: int, tokens: float, seconds: float) -> Exchange:
    accuracy_one, plain_s = one.accuracy.known, one.total_s.known
    drafted_right = _over(seconds, accuracy_one)
    row = {
        "model": one.model,
        "batch": one.batch,
        "rows": budget,
        "plain_s": one.total_s,
        "accuracy_one": measured(accuracy_one),
        "draft_length": predicted(length),
        "tokens_per_cycle": predicted(tokens),
        "speculation_s": predicted(seconds),
        "speedup": predicted(plain_s / seconds),
        "speculation_right_s": predicted(drafted_right),
    }
    if sampled is None:
        only: Quantity[str] = predicted(None if drafted_right is None else "speculation")
        return Exchange(**row, better=only)
    sampled_right = _over(sampled.total_s.known, sampled.accuracy.known)
    known = {"speculation": drafted_right, "sampling": sampled_right}
    told = {name: value for name, value in known.items() if value is not None}
    better: Quantity[str] = predicted(min(told, key=told.__getitem__) if told else None)
    return Exchange(
        **row,
        method=sampled.method,
        sampling_s=sampled.total_s,
        slowdown=predicted(sampled.total_s.known / plain_s),
        accuracy=measured(sampled.accuracy.known),
        gain=measured(sampled.accuracy.known - accuracy_one),
        sampling_right_s=predicted(sampled_right),
        better=better,
    )


def _over(seconds: float, accuracy: float) -> float | None:
    return seconds / accuracy if accuracy > 0 else None
