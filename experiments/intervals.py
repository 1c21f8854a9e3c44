"""Paired bootstrap: statistics of the same units under several variants, with central 95 % intervals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from jaxspec.speculate.acceptance import Interval

__all__ = ["bootstrap"]

_RESAMPLES = 2000
_CENTRAL = (2.5, 97.5)

#: Units that are resampled at once.
_ROWS = 200


def bootstrap(
    statistic: Callable[..., Float[np.ndarray, " resample"]], *columns: Float[np.ndarray, " unit"], seed: int = 0
) -> Interval:
    """A statistic of several columns over the same units, which are drawn again together.

    Args:
        statistic: sums of columns -> value; it is given sums over the units of each resample.
        columns: a number of each unit.
    Raises:
        ValueError: columns of unequal lengths, or without a unit.
    """
    lengths = {len(column) for column in columns}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(f"columns of {sorted(lengths)} units came; give columns over the same units, one or more")
    table = np.stack([np.asarray(column, np.float64) for column in columns])
    units = table.shape[1]
    rng = np.random.default_rng(seed)
    ratios = [
        statistic(*table[:, rng.integers(0, units, (_ROWS, units))].sum(axis=-1)) for _ in range(_RESAMPLES // _ROWS)
    ]
    low, high = np.percentile(np.concatenate(ratios), _CENTRAL)
    return Interval(float(statistic(*table.sum(axis=-1)[:, None])[0]), float(low), float(high))
