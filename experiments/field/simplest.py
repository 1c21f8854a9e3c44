"""What the simplest predictors say of the same rows, for comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.field.networks import draft_of, named_architecture
from experiments.field.rows import FieldRow
from experiments.field.stored import NotPricedError, stored, weight_bits
from hwmodels import Architecture, parameters

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
        own = target if draft.architecture is None else draft.architecture
        read = _read(own, row.draft_precision), _read(target, row.target_precision)
    except NotPricedError:
        return float("nan")
    share = float(draft.passes) * read[0] / read[1]
    return tokens_alone(row) / (1.0 + row.draft_length * share)


def constant_per_group(rows: Sequence[FieldRow]) -> Mapping[str, float]:
    """Median measured speedup of each group: it has seen the answers."""
    groups: dict[str, list[float]] = {}
    for row in rows:
        if row.speedup is not None and not row.excluded:
            groups.setdefault(row.group, []).append(row.speedup)
    return {group: float(np.median(found)) for group, found in groups.items()}


def _read(architecture: Architecture, precision: str) -> float:
    """Bits that a step reads: of all but an embedding table that is no head, and of experts those of one token."""
    counts = {kind: float(count) for kind, count in parameters(architecture).items()}
    if not float(architecture.tied_embeddings):
        counts["embed"] = 0.0
    bits = weight_bits(stored(precision), architecture)
    return sum(count * float(bits[kind]) for kind, count in counts.items())


#: Name in the table -> predicted speedup of a row.
SIMPLEST = {"tokens per cycle alone": tokens_alone, "weights read": weights_ratio}
