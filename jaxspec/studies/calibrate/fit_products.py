"""Fit products of matrices: a form with few numbers per format, and the measured steps of rows on it.

The form is that of `hwmodels.compute.measured_host`, in rates instead of shares. The numbers of the cache come from the widest
format, whose matrices are the largest, and hold for all.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from hwmodels.analysis.calibration.least_squares import Parameter, predicted_rows
from hwmodels.analysis.calibration.report import relative_error
from hwmodels.compute.row_costs import RowCosts
from hwmodels.numerics.smoothing import smooth_maximum
from jaxspec.studies.calibrate.fitted import Numbers, PartFit, cross_fitted, robust_fit, within_reach
from jaxspec.studies.calibrate.table import Row

__all__ = ["OVERLAPS", "ProductFit", "fit_products", "row_costs_of"]

#: Candidates of the smooth maximum that joins arithmetic and traffic, from "the longer one" to "their sum".
OVERLAPS = (0.25, 0.5, 1.0)

_FORM = (
    Parameter("launch_s", 3e-6, 1e-8, 1e-3),
    Parameter("flops_per_s", 1e11, 1e8, 1e16),
    Parameter("near_bytes_per_s", 2e10, 1e7, 1e14),
)
_FAR = Parameter("far_share", 0.4, 1e-3, 1.0)
_SHARPNESS = Parameter("cache_sharpness", 2.0, 1.0, 8.0)
#: So many times the cache was read at most in between, so that the far rate is that of the
#: largest stack, and no line beyond it.
_CACHES_READ = 4.0
#: Stacks whose sizes differ by less than this say nothing of a cache.
_SIZES_APART = 8.0
#: A cache that nobody saw: everything streams at one rate.
_NO_CACHE = {"far_share": 1.0, "cache_bytes": 1e9, "cache_sharpness": 1.0}

#: Sizes of matrices that have row costs of their own, and the least number of matrices of each.
_SIZES, _MATRICES_OF_A_SIZE = 3, 2


@dataclasses.dataclass(frozen=True)
class ProductFit:
    """Products in one format.

    Attributes:
        fit: numbers of the form and errors of the form with row costs.
        costs: measured steps of rows.
        smooth_error: mean error of the form alone on the same held-out rows.
    """

    fit: PartFit
    costs: RowCosts
    smooth_error: float


@functools.cache
def _form(overlap: float) -> Any:
    """The form to fit, for `least_squares.fit`; one object for each overlap, so that fits share its program."""

    def predict(values: Mapping[str, Any], conditions: Mapping[str, Any]) -> Any:
        v = dict(values)
        c = {name: v.get(name, conditions[name]) for name in _NO_CACHE}
        near = jax.nn.sigmoid(-c["cache_sharpness"] * jnp.log(conditions["read"] / c["cache_bytes"]))
        rate = v["near_bytes_per_s"] / (near + (1.0 - near) / c["far_share"])
        m, k, n = conditions["rows"], conditions["inner"], conditions["outer"]
        moved = n * k * conditions["weight_bits"] / 8.0 + 2.0 * (m * k + m * n)
        times = jnp.stack([2.0 * m * k * n / v["flops_per_s"], moved / rate], axis=-1)
        return v["launch_s"] + smooth_maximum(times, overlap)

    return predict


def fit_products(table: Sequence[Row]) -> tuple[dict[float, ProductFit], float]:
    """Fit each format.

    Args:
        table: all measured rows.
    Returns:
        bits per weight -> the fit, and the overlap that all of them were fitted with: the one of `OVERLAPS` that describes the
        widest format best.
    """
    by_bits: dict[float, list[int]] = {}
    for place, row in enumerate(table):
        if row.part == "product":
            by_bits.setdefault(row.weight_bits, []).append(place)
    widest = max(by_bits)
    overlap = min(OVERLAPS, key=lambda one: _Format.of(table, by_bits[widest], one, None).mean_distance())
    found = {widest: _Format.of(table, by_bits[widest], overlap, None).fitted()}
    cache = {name: found[widest].fit.estimates.get(name, default) for name, default in _NO_CACHE.items()}
    for bits, places in sorted(by_bits.items(), reverse=True):
        if bits != widest:
            found[bits] = _Format.of(table, places, overlap, cache).fitted()
    return found, overlap


@dataclasses.dataclass(frozen=True)
class _Format:
    """Products of one format, ready to be fitted."""

    places: npt.NDArray[np.int64]
    seconds: Numbers
    groups: list[str]
    conditions: dict[str, Numbers]
    parameters: list[Parameter]
    fixed: dict[str, float]
    overlap: float

    @classmethod
    def of(
        cls, table: Sequence[Row], places: Sequence[int], overlap: float, cache: Mapping[str, float] | None
    ) -> _Format:
        """Of some rows of a table; the cache's numbers are fitted unless given, if the table says something of them."""
        rows = [table[place] for place in places]
        names = ("rows", "inner", "outer", "weight_bits", "read")
        conditions = {name: np.array([float(getattr(row, name)) for row in rows]) for name in names}
        seconds = np.array([row.seconds for row in rows])
        flops = 2.0 * conditions["rows"] * conditions["inner"] * conditions["outer"]
        moved = conditions["inner"] * conditions["outer"] * conditions["weight_bits"] / 8.0
        fastest = {"flops_per_s": np.max(flops / seconds), "near_bytes_per_s": np.max(moved / seconds)}
        read = conditions["read"]
        parameters = within_reach(_FORM, **{name: float(rate) for name, rate in fastest.items()})
        if cache is None and read.max() / read.min() >= _SIZES_APART:
            low, high = float(read.min()), float(read.max()) / _CACHES_READ
            parameters += [_FAR, Parameter("cache_bytes", math.sqrt(low * high), low, high), _SHARPNESS]
        elif cache is not None and cache["far_share"] < 1.0:
            parameters += [_FAR]
        fixed = dict(_NO_CACHE if cache is None else cache)
        conditions |= {name: np.full(len(rows), value) for name, value in fixed.items()}
        return cls(
            np.asarray(places, np.int64),
            seconds,
            [f"{row.inner:g}x{row.outer:g}" for row in rows],
            conditions,
            parameters[: max(1, len(rows) - 1)],
            fixed,
            overlap,
        )

    def mean_distance(self) -> float:
        """Mean distance of the form from the measured times, in logarithms; steps of rows count little."""
        found = robust_fit(_form(self.overlap), self.parameters, self.conditions, self.seconds, self.groups)
        return float(np.mean(np.abs(found.log_residuals)))

    def stepped(self, train: npt.NDArray[np.int64]) -> tuple[Any, RowCosts, Numbers, Numbers]:
        """The form fitted to some rows, steps of rows from these, and seconds of all rows by the form and by both."""
        predict, counts = _form(self.overlap), self.conditions["rows"]
        weights = self.conditions["inner"] * self.conditions["outer"]

        def once(scale: Numbers) -> tuple[Any, RowCosts, Numbers]:
            one = robust_fit(predict, self.parameters, self.conditions, self.seconds / scale, self.groups, train)
            form = predicted_rows(predict, one.estimates, self.conditions)
            return one, row_costs_of(counts[train], weights[train], np.log(self.seconds / form)[train]), form

        # Twice: rows whose steps are known do not draw the form to themselves.
        _, costs, _ = once(np.ones(len(counts)))
        one, costs, form = once(factors(costs, counts, weights))
        return one, costs, form, form * factors(costs, counts, weights)

    def fitted(self) -> ProductFit:
        """The fit to all rows, and errors of those of other matrices."""
        everything = np.arange(len(self.seconds))
        one, costs, _, predicted = self.stepped(everything)
        smooth = np.full(len(everything), np.nan)

        def without(train: npt.NDArray[np.int64]) -> Numbers:
            _, _, form, both = self.stepped(train)
            out = ~np.isin(everything, train)
            smooth[out] = form[out]
            return both

        held, errors, interval = cross_fitted(self.groups, self.seconds, len(self.parameters), without)
        part = PartFit(
            "products",
            float(self.conditions["weight_bits"][0]),
            self.fixed | one.estimates,
            one.standard_errors,
            one.at_bound,
            self.places,
            predicted,
            held,
            errors,
            interval,
        )
        return ProductFit(part, costs, relative_error(smooth, self.seconds).mean if errors.rows else math.nan)


def row_costs_of(rows: Numbers, weights: Numbers, log_ratio: Numbers) -> RowCosts:
    """Measured steps of rows: for a few sizes of matrix the median of measured over the form's time, by rows.

    Args:
        rows, weights: "row", of each product.
        log_ratio: "row", logarithm of measured over the form's time.
    """
    sizes = np.unique(weights)
    count = max(1, min(_SIZES, len(sizes) // _MATRICES_OF_A_SIZE))
    knots = np.unique(rows)
    middles, factors = [], []
    for group in np.array_split(sizes, count):
        inside = np.isin(weights, group)
        here = np.unique(rows[inside])
        medians = [np.median(log_ratio[inside & (rows == row)]) for row in here]
        # Rows that were measured with other matrices alone: on the line between neighbours.
        factors.append(tuple(np.exp(np.interp(np.log(knots), np.log(here), medians)).tolist()))
        middles.append(float(np.exp(np.mean(np.log(group)))))
    return RowCosts(tuple(middles), tuple(knots.tolist()), tuple(factors))


def factors(costs: RowCosts, rows: Numbers, weights: Numbers) -> Numbers:
    """`hwmodels.compute.row_costs.row_factor` in double precision, on the host."""
    place, size = np.log(rows), np.log(weights)
    each = [np.interp(place, np.log(costs.rows), np.log(row)) for row in costs.factors]
    if len(each) == 1:
        return np.exp(each[0])
    position = np.interp(size, np.log(costs.weights), np.arange(len(each)))
    low = np.minimum(position.astype(int), len(each) - 2)
    stacked, at = np.stack(each), np.arange(len(rows))
    return np.exp(stacked[low, at] + (position - low) * (stacked[low + 1, at] - stacked[low, at]))
