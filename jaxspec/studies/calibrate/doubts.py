"""Where a fit does not describe what was measured, in sentences: for the report, and inside the device file."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from jaxspec.studies.calibrate.fitted import PartFit
from jaxspec.studies.calibrate.machine import Machine
from jaxspec.studies.calibrate.table import Row

__all__ = ["LARGEST_ERROR", "doubts_of"]

#: Mean error of rows that the fit did not see from which a sentence is due.
LARGEST_ERROR = 0.10

#: A time so many times from the fit to all of them is another unit, or a slip.
_FAR = 30.0

#: Operations per second that any processor of today exceeds in its fastest product, and that none exceeds.
_SLOWEST, _FASTEST = 1e10, 2e16

#: Share of the rows that a fit did not see within its 90 % interval below which a sentence is due, where there are enough rows.
_LEAST_COVERED, _ENOUGH_ROWS = 0.5, 6

#: Rows of products that are judged together, ends included.
_RANGES = ((1, 1), (2, 9), (10, 33), (34, 144), (145, math.inf))


def doubts_of(machine: Machine, table: Sequence[Row]) -> list[str]:
    """What a reader of the device's times should know."""
    found = [*machine.missing, *_slow(table)]
    for fit in machine.fits:
        what = f"products of {fit.bits:g}-bit weights" if fit.part == "products" else fit.part
        if fit.errors.rows == 0:
            found.append(f"{what}: too few shapes were measured, so that nothing could be held out")
        elif fit.errors.mean > LARGEST_ERROR:
            found.append(f"{what}: held-out error {100 * fit.errors.mean:.0f} % in the mean{_worst(fit, table)}")
        covered = [] if fit.interval is None else fit.interval["covered"]
        if covered and len(fit.rows) >= _ENOUGH_ROWS and np.mean(covered) < _LEAST_COVERED:
            shares = " and ".join(f"{100 * share:.0f} %" for share in covered)
            found.append(
                f"{what}: 90 % intervals hold {shares} of the times that they were not made from; do not rely on them"
            )
        found += _far(fit, what, table)
        if fit.at_bound:
            found.append(f"{what}: on a bound of the fit: {', '.join(fit.at_bound)}")
    return found


def _slow(table: Sequence[Row]) -> list[str]:
    """Whether all times may be in another unit."""
    fastest = max(row.rate for row in table if row.part == "product")
    if _SLOWEST <= fastest <= _FASTEST:
        return []
    return [f"the fastest product runs at {fastest:.1e} operations per second: check that all times are in seconds"]


def _far(fit: PartFit, what: str, table: Sequence[Row]) -> list[str]:
    """Whether some times may be in another unit."""
    seconds = np.array([table[i].seconds for i in fit.rows])
    ratio = seconds / fit.predicted
    away = np.maximum(ratio, 1.0 / ratio)
    count = int(np.count_nonzero(away > _FAR))
    if not count:
        return []
    worst = int(np.argmax(away))
    return [
        f"{what}: {count} of {len(seconds)} times are more than {_FAR:g} times from the fit, most "
        f"{described(table[fit.rows[worst]])}, {away[worst]:.0f} times {'longer' if ratio[worst] > 1 else 'shorter'}: "
        "check that they are in seconds"
    ]


def _worst(fit: PartFit, table: Sequence[Row]) -> str:
    """The range of rows, or the shape, that is described worst."""
    seconds = np.array([table[i].seconds for i in fit.rows])
    error = np.abs(fit.held_out / seconds - 1)
    if fit.part == "products":
        counts = np.array([table[i].rows for i in fit.rows])
        means = {
            _range(low, high): float(error[inside].mean())
            for low, high in _RANGES
            if (inside := (counts >= low) & (counts <= high)).any()
        }
        name = max(means, key=lambda one: means[one])
        return f", {100 * means[name]:.0f} % at {name}"
    worst = int(np.argmax(error))
    return f", worst {described(table[fit.rows[worst]])} with {100 * error[worst]:.0f} %"


def _range(low: float, high: float) -> str:
    if low == high:
        return f"{low:g} row"
    return f"{low:g} rows and more" if math.isinf(high) else f"{low:g} to {high:g} rows"


def described(row: Row) -> str:
    """A row's shape in words."""
    if row.part == "product":
        return f"{row.rows:g} x {row.inner:g} x {row.outer:g}"
    if row.part == "attention":
        return (
            f"{row.batch:g} x {row.tokens:g} tokens over {row.context_tokens:g}, {row.heads:g} heads on {row.kv_heads:g} "
            f"of {row.head_dim:g}"
        )
    if row.part == "step":
        cut = "" if math.isnan(row.layers) else f" in {row.layers:g} layers"
        return f"{row.batch:g} x {row.tokens:g} tokens of {row.architecture}{cut}"
    if row.part == "cycle":
        draft = f"a {row.draft_layers:g}-layer draft" if row.draft_layers else "a lookup"
        return f"{row.batch:g} x cycle of {row.tokens:g} tokens by {draft} for {row.architecture}"
    if row.part == "stream":
        return f"{row.read_bytes:g} bytes"
    if row.part in ("lookup", "sampling"):
        return f"{row.rows:g} rows of {row.vocab_size:g}"
    return row.part
