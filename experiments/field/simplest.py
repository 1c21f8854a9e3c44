"""What the simplest predictors say of the same rows, for comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.field.networks import NotPricedError, draft_of, named_architecture
from experiments.field.rows import FieldRow
from hwmodels import parameters

__all__ = ["SIMPLEST", "constant_per_group"]


def tokens_alone(row: FieldRow) -> float:
    """Tokens per cycle: drafting is free and a verification takes a step."""
    assert row.tokens_per_cycle is not None
    return row.tokens_per_cycle


def weights_ratio(row: FieldRow) -> float:
    """Tokens per cycle over what a cycle reads of weights in units of a step: all is bound by memory."""
    try:
        target = named_architecture(row.target)
        draft = draft_of(row, target)
    except NotPricedError:
        return float("nan")
    own = target if draft.architecture is None else draft.architecture
    share = float(draft.passes) * _read(own) / _read(target)
    return tokens_alone(row) / (1.0 + row.draft_length * share)


def constant_per_group(rows: Sequence[FieldRow]) -> Mapping[str, float]:
    """Median measured speedup of each group: it has seen the answers."""
    groups: dict[str, list[float]] = {}
    for row in rows:
        if row.speedup is not None and not row.excluded:
            groups.setdefault(row.group, []).append(row.speedup)
    return {group: float(np.median(found)) for group, found in groups.items()}


def _read(architecture) -> float:
    """Parameters that a step reads: all but an embedding table that is no head, and of experts those of one token."""
    counts = {kind: float(count) for kind, count in parameters(architecture).items()}
    if not float(architecture.tied_embeddings):
        counts["embed"] = 0.0
    return sum(counts.values())


#: Name in the table -> predicted speedup of a row.
SIMPLEST = {"tokens per cycle alone": tokens_alone, "weights read": weights_ratio}
