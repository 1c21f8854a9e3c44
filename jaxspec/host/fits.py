"""From a table of times to a machine's parameters: products, steps, the rest, cycles."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares, nnls

from hwmodels import (
    Architecture,
    Device,
    DraftCost,
    MemoryTier,
    OperatorWork,
    step_cost,
    step_operators,
    uniform_weight_bits,
)
from hwmodels.analysis.calibration.least_squares import Parameter, fit, predicted_rows
from hwmodels.analysis.calibration.report import ErrorSummary, interval_record, relative_error
from hwmodels.compute.measured_host import Between, HostAttention, HostProducts, MeasuredHost, put_out
from hwmodels.compute.roofline import RowCosts
from hwmodels.compute.tile_counts import products_of
from hwmodels.network.operators import StepShape
from hwmodels.network.operators.work import MATRIX_OPERATORS, OPERATORS
from hwmodels.numerics.smoothing import smooth_maximum
from hwmodels.speculation.engine_logs import NO_ENGINE
from jaxspec.errors import InputError
from jaxspec.host.table import Row
from jaxspec.settings.draft_kinds import DRAFT_KINDS
from jaxspec.studies.measured.stopwatch import predict_ways

#: Numbers of rows, in double precision.
Numbers = npt.NDArray[np.float64]


#: Groups of rows are held out in so many turns, or as many as there are groups.
FOLDS = 4


#: Bounds of a rate, as factors of the highest one that was seen.
_SLOWER, _FASTER = 1e4, 4.0


#: Of the robust loss: log ratios well below it count squared.
_LOSS_SCALE = 0.05


@dataclasses.dataclass(frozen=True)
class PartFit:
    """One part of the machine.

    Attributes:
        part: as of `hwmodels.compute.unit.SPREAD_PARTS`, or of a table.
        bits: per weight, 32 where there are none.
        estimates, standard_errors: name -> number; an error is NaN on a bound.
        at_bound: names of numbers on a bound of the fit.
        rows: numbers of the table's rows that it was fitted to.
        predicted: seconds of these rows, by the fit to all of them.
        held_out: seconds of these rows, each by a fit that saw none of its group; NaN where groups or rows are too few.
        errors: of `held_out`.
        interval: of measured over `held_out`: low, high, coverage, covered; None where `held_out` is NaN.
    """

    part: str
    bits: float
    estimates: dict[str, float]
    standard_errors: dict[str, float]
    at_bound: tuple[str, ...]
    rows: npt.NDArray[np.int64]
    predicted: Numbers
    held_out: Numbers
    errors: ErrorSummary
    interval: dict[str, Any] | None


def robust_fit(
    predict: Any,
    parameters: Sequence[Parameter],
    conditions: Mapping[str, Numbers],
    seconds: Numbers,
    groups: Sequence[str],
    train: npt.NDArray[np.int64] | None = None,
) -> Any:
    """`least_squares.fit` with the loss of measurements; rows of one group err together.

    Args:
        train: rows to fit to, all of them unless given; the program is the same for any number of them.
    """
    train = np.arange(len(seconds)) if train is None else train
    return fit(
        predict,
        parameters,
        {name: values[train] for name, values in conditions.items()},
        seconds[train],
        loss_scale=_LOSS_SCALE,
        groups=np.asarray(groups)[train],
        padded_rows=len(seconds),
    )


def within_reach(parameters: Sequence[Parameter], **fastest: float) -> list[Parameter]:
    """The same parameters with rates that begin near what was seen and stay within reach of it.

    Where launches take most of the time, times say little of a rate, which would otherwise run away.

    Args:
        fastest: name of a rate -> the highest one that was seen, all of a time counted for it.
    """
    return [
        Parameter(one.name, fastest[one.name], fastest[one.name] / _SLOWER, fastest[one.name] * _FASTER)
        if one.name in fastest
        else one
        for one in parameters
    ]


def folds_of(groups: Sequence[str]) -> list[npt.NDArray[np.bool_]]:
    """For each fold the rows that it holds out; none where there is one group. Whole groups, drawn by a hash."""
    names = sorted(set(groups), key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    count = min(FOLDS, len(names))
    if count < 2:
        return []
    fold = {name: place % count for place, name in enumerate(names)}
    of_row = np.array([fold[name] for name in groups])
    return [of_row == one for one in range(count)]


def cross_fitted(
    groups: Sequence[str],
    seconds: Numbers,
    least_rows: int,
    predict_without: Callable[[npt.NDArray[np.int64]], Numbers],
) -> tuple[Numbers, ErrorSummary, dict[str, Any] | None]:
    """Seconds of each row by a fit that saw none of its group, their errors, and their interval.

    Args:
        least_rows: that a fit needs; where a fold leaves fewer, nothing is held out.
        predict_without: from the rows to fit to, to the seconds of all rows.
    """
    held = np.full(len(seconds), np.nan)
    folds = folds_of(groups)
    if all(np.count_nonzero(~out) >= least_rows for out in folds):
        for out in folds:
            held[out] = predict_without(np.flatnonzero(~out))[out]
    known = np.isfinite(held)
    if not known.all():
        return held, relative_error([], []), None
    return held, relative_error(held, seconds), interval_record(held, seconds, known, list(groups))


def simple_part(
    part: str,
    predict: Any,
    parameters: Sequence[Parameter],
    conditions: Mapping[str, Numbers],
    seconds: Numbers,
    groups: Sequence[str],
    rows: npt.NDArray[np.int64],
    bits: float = 32.0,
) -> PartFit:
    """A part whose form is the whole model: fitted to all rows, and to those of other groups for the errors."""
    fit = robust_fit(predict, parameters, conditions, seconds, groups)

    def without(train: npt.NDArray[np.int64]) -> Numbers:
        one = robust_fit(predict, parameters, conditions, seconds, groups, train)
        return predicted_rows(predict, one.estimates, conditions)

    held, errors, interval = cross_fitted(groups, seconds, len(parameters), without)
    return PartFit(
        part,
        bits,
        fit.estimates,
        fit.standard_errors,
        fit.at_bound,
        rows,
        predicted_rows(predict, fit.estimates, conditions),
        held,
        errors,
        interval,
    )


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
    fits = {widest: _Format.of(table, by_bits[widest], overlap, None).fitted()}
    cache = {name: fits[widest].fit.estimates.get(name, default) for name, default in _NO_CACHE.items()}
    for bits, places in sorted(by_bits.items(), reverse=True):
        if bits != widest:
            fits[bits] = _Format.of(table, places, overlap, cache).fitted()
    return fits, overlap


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
        fit = robust_fit(_form(self.overlap), self.parameters, self.conditions, self.seconds, self.groups)
        return float(np.mean(np.abs(fit.log_residuals)))

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
    """`hwmodels.compute.roofline.row_factor` in double precision, on the host."""
    place, size = np.log(rows), np.log(weights)
    each = [np.interp(place, np.log(costs.rows), np.log(row)) for row in costs.factors]
    if len(each) == 1:
        return np.exp(each[0])
    position = np.interp(size, np.log(costs.weights), np.arange(len(each)))
    low = np.minimum(position.astype(int), len(each) - 2)
    stacked, at = np.stack(each), np.arange(len(rows))
    return np.exp(stacked[low, at] + (position - low) * (stacked[low + 1, at] - stacked[low, at]))


_STEPS = (
    Parameter("turn_s", 3e-5, 1e-8, 1e-1),
    Parameter("norm_s", 1e-5, 1e-9, 1e-2),
    Parameter("element_s", 1e-9, 1e-14, 1e-5),
)


#: A product takes no more than so many times longer or shorter in a step than by itself; what is further is another matter.
_MOST = 3.0


#: Scatter of a step's time, and how far from 1 a factor is expected to be: what the times leave open stays near 1.
_SCATTER, _USUAL = 0.05, 0.5


@dataclasses.dataclass(frozen=True)
class StepFit:
    """Whole steps.

    Attributes:
        part: numbers of what stands between products, and errors of whole steps.
        factors: of the time of products, by rows and size of the matrix.
    """

    part: PartFit
    factors: RowCosts


def _step_form(v: Mapping[str, Any], c: Mapping[str, Any]) -> Any:
    return c["known_s"] + v["turn_s"] + v["norm_s"] * c["norms"] + v["element_s"] * c["elements"]


def fit_steps(
    table: Sequence[Row], conditions: Mapping[str, Numbers], sizes: Sequence[float], places: npt.NDArray[np.int64]
) -> StepFit | None:
    """What whole steps take beside what is known of them; a network is held out as a whole. None without enough rows.

    Args:
        conditions: "row" of the steps: known_s, products_s (a part of it), norms, elements, rows, weights (elements of a
            typical matrix).
        sizes: of the matrices that have row costs.
        places: of the steps in the table.
    """
    if len(places) <= len(_STEPS):
        return None
    groups = [f"{table[i].architecture}-{table[i].layers:g}-{table[i].vocab_size:g}" for i in places]
    seconds = np.array([table[i].seconds for i in places])
    everything = np.arange(len(places))

    def fitted_on(train: npt.NDArray[np.int64]) -> tuple[Any, RowCosts, Numbers]:
        """The form, the factors, and seconds of all rows, from some of them."""
        costs = _factors_of_products({n: v[train] for n, v in conditions.items()}, seconds[train], sizes)
        scale = factors(costs, conditions["rows"], conditions["weights"])
        now = dict(conditions) | {"known_s": conditions["known_s"] + (scale - 1.0) * conditions["products_s"]}
        one = robust_fit(_step_form, _STEPS, now, seconds, groups, train)
        total = predicted_rows(_step_form, one.estimates, now)
        return one, costs, total

    one, costs, predicted = fitted_on(everything)
    held, errors, interval = cross_fitted(groups, seconds, len(_STEPS), lambda train: fitted_on(train)[2])
    part = PartFit(
        "steps", 32.0, one.estimates, one.standard_errors, one.at_bound, places, predicted, held, errors, interval
    )
    return StepFit(part, costs)


def _factors_of_products(c: Mapping[str, Numbers], seconds: Numbers, sizes: Sequence[float]) -> RowCosts:
    """Factors by rows and by the nearest of `sizes`, fitted together with what stands between products.

    What the times leave open stays near 1. Rows that no network of a size has shown are on the line between.
    """
    nearest = np.argmin(np.abs(np.log(c["weights"])[:, None] - np.log(np.asarray(sizes))), axis=1)
    kinds, kind = np.unique(np.stack([nearest, c["rows"]], axis=-1), axis=0, return_inverse=True)
    between = np.stack([np.ones_like(seconds), c["norms"], c["elements"]], axis=-1)
    # In units in which each number of the three makes up the time of an average step.
    unit = np.mean(seconds) / np.mean(between, axis=0)
    own = c["products_s"][:, None] * (kind.reshape(-1, 1) == np.arange(len(kinds)))
    matrix = np.hstack([between * unit, own]) / seconds[:, None]
    wanted = (seconds - c["known_s"] + c["products_s"]) / seconds
    prior = np.hstack([np.zeros((len(kinds), between.shape[1])), np.eye(len(kinds))]) * (_SCATTER / _USUAL)
    everything, wishes = np.vstack([matrix, prior]), np.concatenate([wanted, prior.sum(axis=1)])
    step_factors = least_squares(
        lambda x: everything @ x - wishes,
        np.concatenate([np.full(between.shape[1], 1e-3), np.ones(len(kinds))]),
        bounds=(
            [0.0] * between.shape[1] + [1.0 / _MOST] * len(kinds),
            [np.inf] * between.shape[1] + [_MOST] * len(kinds),
        ),
        loss="soft_l1",
        f_scale=_SCATTER,
    ).x[between.shape[1] :]
    rows, knots = kinds[:, 1], np.unique(c["rows"])
    tables = []
    for place in np.unique(nearest):
        here = kinds[:, 0] == place
        line = np.interp(np.log(knots), np.log(rows[here]), np.log(step_factors[here]))
        tables.append((float(sizes[place]), tuple(np.exp(line).tolist())))
    return RowCosts(tuple(size for size, _ in tables), tuple(knots.tolist()), tuple(one for _, one in tables))


def in_steps(costs: RowCosts, steps: RowCosts) -> RowCosts:
    """Row costs of products as steps have them."""
    rows, by_row = np.array(costs.rows), []
    for size, own in zip(costs.weights, costs.factors, strict=True):
        by_row.append(tuple((np.array(own) * factors(steps, rows, np.full(len(rows), size))).tolist()))
    return RowCosts(costs.weights, costs.rows, tuple(by_row))


#: Keys and values are held in float32.
ELEMENT_BYTES = 4.0


_ATTENTION = (
    Parameter("launch_s", 1e-5, 1e-8, 1e-2),
    Parameter("pair_s", 1e-7, 1e-11, 1e-3),
    Parameter("slot_s", 1e-9, 1e-12, 1e-5),
    Parameter("score_s", 1e-9, 1e-14, 1e-5),
    Parameter("flops_per_s", 5e10, 1e7, 1e16),
    Parameter("bytes_per_s", 2e10, 1e7, 1e14),
)


_LOOKUP = (Parameter("base_s", 1e-6, 1e-9, 1e-1), Parameter("row_s", 1e-7, 1e-11, 1e-2))


_SAMPLING = (
    Parameter("base_s", 1e-6, 1e-9, 1e-1),
    Parameter("sample_s", 1e-6, 1e-10, 1e-1),
    Parameter("logit_s", 1e-8, 1e-14, 1e-3),
)


@functools.cache
def _attention_form(overlap: float) -> Any:
    def predict(v: Mapping[str, Any], c: Mapping[str, Any]) -> Any:
        visible = c["context_tokens"] + (c["tokens"] + 1.0) / 2.0
        scores = c["batch"] * c["heads"] * c["tokens"] * visible
        flops = 4.0 * c["head_dim"] * scores
        cached = 2.0 * c["batch"] * c["context_tokens"] * c["kv_heads"] * c["head_dim"] * ELEMENT_BYTES
        times = jnp.stack([v["score_s"] * scores + flops / v["flops_per_s"], cached / v["bytes_per_s"]], axis=-1)
        along = v["pair_s"] * c["batch"] * c["kv_heads"] + v["slot_s"] * visible
        return v["launch_s"] + along + smooth_maximum(times, overlap)

    return predict


def fit_attention(table: Sequence[Row], overlap: float) -> PartFit | None:
    """Attention; a context with its heads is held out as a whole. None without enough rows."""
    places = _places(table, "attention")
    if len(places) <= len(_ATTENTION):
        return None
    groups = [
        f"{table[i].heads:g}-{table[i].kv_heads:g}-{table[i].head_dim:g}-{table[i].context_tokens:g}" for i in places
    ]
    names = ("batch", "tokens", "context_tokens", "heads", "kv_heads", "head_dim")
    rows = [table[i] for i in places]
    flops = [4 * r.head_dim * r.batch * r.heads * r.tokens * (r.context_tokens + 1) / r.seconds for r in rows]
    moved = [2 * r.batch * r.context_tokens * r.kv_heads * r.head_dim * ELEMENT_BYTES / r.seconds for r in rows]
    parameters = within_reach(_ATTENTION, flops_per_s=max(flops), bytes_per_s=max(*moved, 1.0))
    return _fitted("attention", _attention_form(overlap), parameters, table, places, names, groups)


def _lookup_form(v: Mapping[str, Any], c: Mapping[str, Any]) -> Any:
    return v["base_s"] + v["row_s"] * c["rows"]


def fit_lookups(table: Sequence[Row]) -> PartFit | None:
    """Look-ups of a token's row. None without enough rows."""
    places = _places(table, "lookup")
    if len(places) <= len(_LOOKUP):
        return None
    groups = [f"{table[i].rows:g}" for i in places]
    return _fitted("lookup", _lookup_form, _LOOKUP, table, places, ("rows",), groups)


def _sampling_form(v: Mapping[str, Any], c: Mapping[str, Any]) -> Any:
    return v["base_s"] + c["rows"] * (v["sample_s"] + v["logit_s"] * c["vocab_size"])


def fit_sampling(table: Sequence[Row]) -> PartFit | None:
    """Tokens chosen out of rows of logits. None without enough rows."""
    places = _places(table, "sampling")
    if len(places) <= len(_SAMPLING):
        return None
    groups = [f"{table[i].rows:g}-{table[i].vocab_size:g}" for i in places]
    return _fitted("sampling", _sampling_form, _SAMPLING, table, places, ("rows", "vocab_size"), groups)


def _places(table: Sequence[Row], part: str) -> np.ndarray:
    return np.array([place for place, row in enumerate(table) if row.part == part], np.int64)


def _fitted(
    part: str,
    form: Any,
    parameters: Sequence[Parameter],
    table: Sequence[Row],
    places: np.ndarray,
    names: Sequence[str],
    groups: Sequence[str],
) -> PartFit:
    conditions = {name: np.array([float(getattr(table[i], name)) for i in places]) for name in names}
    seconds = np.array([table[i].seconds for i in places])
    return simple_part(part, form, parameters, conditions, seconds, groups, places)


#: Terms that are fitted, in the order of their counts.
_TERMS: tuple[str, ...] = ("cycle_s", "draft_layer_s", "draft_pass_s", "drafted_token_s")


#: Places that a draft network processes anew, by the registry.
_TAKES_IN = next(kind.takes_in for kind in DRAFT_KINDS.values() if kind.directory == "network")


def fit_cycles(table: Sequence[Row], device: Device, shape: Callable[[Row], Architecture]) -> PartFit | None:
    """`EngineTerms`, none below 0, by least squares of the relative errors of cycles. None without enough rows.

    A draft with its number of sequences is held out as a whole.

    Args:
        device: that prices the networks' steps.
        shape: from a row to the network that ran.
    """
    places = np.array([i for i, row in enumerate(table) if row.part == "cycle"], np.int64)
    if len(places) <= len(_TERMS):
        return None
    rows = [table[i] for i in places]
    groups = [f"{row.architecture}-{row.layers:g}-{row.draft_layers:g}-{row.batch:g}" for row in rows]
    seconds = np.array([row.seconds for row in rows])
    kernels_s = _kernels_s(device, shape, rows)
    passes = [row.tokens * (row.draft_layers > 0) for row in rows]
    counts = np.array([[1.0, row.draft_layers, n, row.tokens * row.batch] for row, n in zip(rows, passes, strict=True)])

    def solved_on(train: npt.NDArray[np.int64]) -> Numbers:
        scaled = counts[train] / seconds[train, None]
        sizes = np.maximum(np.abs(scaled).max(axis=0), 1e-30)  # columns of like size
        return nnls(scaled / sizes, 1.0 - kernels_s[train] / seconds[train])[0] / sizes

    estimates = solved_on(np.arange(len(rows)))
    held, errors, interval = cross_fitted(
        groups, seconds, len(_TERMS), lambda train: kernels_s + counts @ solved_on(train)
    )
    numbers = dict(zip(_TERMS, estimates.tolist(), strict=True))
    none = tuple(name for name, value in numbers.items() if value == 0.0)
    predicted = kernels_s + counts @ estimates
    return PartFit("cycles", 32.0, numbers, {}, none, places, predicted, held, errors, interval)


def _kernels_s(device: Device, shape: Callable[[Row], Architecture], rows: Sequence[Row]) -> Numbers:
    """Of the networks of each cycle alone; cycles that differ by their drafted tokens are priced together."""
    alike: dict[Row, list[int]] = {}
    for place, row in enumerate(rows):
        alike.setdefault(dataclasses.replace(row, seconds=0.0, tokens=0.0, read_bytes=0.0), []).append(place)
    cycles_s = np.zeros(len(rows))
    for places in alike.values():
        row, network = rows[places[0]], shape(rows[places[0]])
        own = dataclasses.replace(network, num_layers=row.draft_layers)
        ways = predict_ways(
            device,
            network,
            DraftCost(architecture=own) if row.draft_layers else DraftCost(passes=0.0),
            [np.arange(int(rows[place].tokens)) - 1 for place in places],
            takes_in=_TAKES_IN if row.draft_layers else None,
            batch=int(row.batch),
            slots=row.context_tokens,
            bits=row.weight_bits,
            terms=NO_ENGINE,
        )
        cycles_s[places] = [way.cycle_s for way in ways]
    return cycles_s


#: Products that the widest format needs at least: more than the form has numbers.
LEAST_PRODUCTS = 8


#: Products that each other format needs at least, likewise: the numbers of the cache come from the widest.
_LEAST_NARROWER = 4


#: Seconds of an element where nobody measured steps: next to nothing, as it must be something.
_NOTHING_S = 1e-15


@dataclasses.dataclass(frozen=True)
class Machine:
    """A device and the fits behind it.

    Attributes:
        device: with a `MeasuredHost`, without remarks and spreads.
        products: bits per weight -> the fit.
        parts: attention, lookup, sampling, steps, cycles: those that were measured.
        step_rows: numbers of the table's rows that are steps.
        step_s: predicted seconds of these by the whole device.
        missing: sentences on what was not measured.
    """

    device: Device
    products: dict[float, ProductFit]
    parts: dict[str, PartFit]
    step_rows: np.ndarray
    step_s: np.ndarray
    missing: tuple[str, ...]

    @property
    def fits(self) -> list[PartFit]:
        """All fits, products first, the widest format first."""
        return [product.fit for _, product in sorted(self.products.items(), reverse=True)] + list(self.parts.values())


def check_layers(rows: Sequence[Row], networks: Mapping[str, Architecture]) -> None:
    """Check that steps ran no more layers than their networks have. Raises InputError: one did."""
    for row in rows:
        if row.architecture and row.layers > (most := float(networks[row.architecture].num_layers)):
            raise InputError(
                f"a {row.part} of the measurements ran {row.layers:g} layers of {row.architecture}, which has {most:g}; "
                "correct column layers, or name the network that ran"
            )


def check_products(table: Sequence[Row]) -> None:
    """Every format has enough products to fit to. Raises InputError: otherwise."""
    different = {(row.weight_bits, row.rows, row.inner, row.outer, row.read) for row in table if row.part == "product"}
    counts = Counter(bits for bits, *_ in different)
    if not counts:
        raise InputError(
            f"no product came; at least {LEAST_PRODUCTS} of one format are needed, of several matrices and numbers of rows"
        )
    for bits, count in counts.items():
        least = LEAST_PRODUCTS if bits == max(counts) else _LEAST_NARROWER
        if count < least:
            raise InputError(
                f"products of {bits:g}-bit weights: {count} different ones came; at least {LEAST_PRODUCTS} of the widest "
                f"format and {_LEAST_NARROWER} of each other one are needed, of several matrices and numbers of rows: measure "
                "more, or leave this format out"
            )


def fit_machine(table: Sequence[Row], network: Callable[[str], Architecture], *, capacity_bytes: float) -> Machine:
    """Fit everything that the table has.

    Args:
        table: measured times.
        network: from a name of a step's row to its architecture.
        capacity_bytes: of the memory.
    Raises:
        InputError: see `check_products`.
    """
    check_products(table)
    products, overlap = fit_products(table)
    optional = {
        "attention": fit_attention(table, overlap),
        "lookup": fit_lookups(table),
        "sampling": fit_sampling(table),
    }
    parts = {name: part for name, part in optional.items() if part is not None}
    device = _device(table, products, parts, overlap, capacity_bytes)
    missing = [f"no {_WORDS[name]}: {_INSTEAD[name]}" for name, part in optional.items() if part is None]
    places = np.array([i for i, row in enumerate(table) if row.part == "step"], np.int64)
    works = _works([table[i] for i in places], network)
    if len(places):
        bits = min(products, key=lambda bits: abs(bits - table[places[0]].weight_bits))
        sizes = products[bits].costs.weights
        steps = fit_steps(table, _step_conditions(device, works), sizes, places)
        if steps is not None:
            parts["steps"] = steps.part
            one = products[bits]
            products[bits] = dataclasses.replace(one, costs=in_steps(one.costs, steps.factors))
            device = _with(_device(table, products, parts, overlap, capacity_bytes), **steps.part.estimates)
    if "steps" not in parts:
        missing.append(f"no {_WORDS['steps']}: {_INSTEAD['steps']}")
    step_s = _priced(device, works) if len(places) else np.zeros(0)
    cycles = fit_cycles(table, device, lambda row: _network(row, network))
    if cycles is not None:
        parts["cycles"] = cycles
    return Machine(device, products, parts, places, step_s, tuple(missing))


_WORDS = {"attention": "attention", "lookup": "look-ups", "sampling": "sampling", "steps": "whole steps"}


_INSTEAD = {
    "attention": "it runs at the rates of the products",
    "lookup": "they take no time",
    "sampling": "choosing tokens takes no time",
    "steps": "norms, loops and all else between products take no time, so that steps are priced too fast",
}


def _device(
    table: Sequence[Row],
    products: dict[float, ProductFit],
    parts: dict[str, PartFit],
    overlap: float,
    capacity_bytes: float,
) -> Device:
    forms = {bits: product.fit.estimates for bits, product in sorted(products.items())}
    widest = forms[max(forms)]
    if "attention" in parts:
        attention = dict(parts["attention"].estimates)
    else:
        attention = {
            "launch_s": 2 * widest["launch_s"],
            "pair_s": 0.0,
            "slot_s": 0.0,
            "score_s": 0.0,
            "flops_per_s": widest["flops_per_s"],
            "bytes_per_s": widest["near_bytes_per_s"],
        }
    streams = [row.read_bytes / row.seconds for row in table if row.part == "stream"]
    largest = max((row for row in table if row.part == "stream"), key=lambda row: row.read_bytes, default=None)
    # So fast that every share stays below 1, also where a few rows beat the form.
    fastest = [
        form["near_bytes_per_s"] / min(1.0, min(min(row) for row in products[bits].costs.factors))
        for bits, form in forms.items()
    ]
    bandwidth = max([*fastest, attention["bytes_per_s"], *streams])
    peak = max([*(form["flops_per_s"] for form in forms.values()), attention["flops_per_s"]])
    far = widest["near_bytes_per_s"] * widest["far_share"] if largest is None else largest.read_bytes / largest.seconds
    sampling = parts["sampling"].estimates if "sampling" in parts else {"sample_s": 0.0, "logit_s": 0.0}
    unit = MeasuredHost(
        formats=tuple(
            HostProducts(
                launch_s=form["launch_s"],
                compute_efficiency=form["flops_per_s"] / peak,
                near_efficiency=form["near_bytes_per_s"] / bandwidth,
                far_efficiency=form["near_bytes_per_s"] * form["far_share"] / bandwidth,
            )
            for form in forms.values()
        ),
        cache_bytes=widest["cache_bytes"],
        cache_sharpness=widest["cache_sharpness"],
        attention=HostAttention(
            launch_s=attention["launch_s"],
            pair_s=attention["pair_s"],
            slot_s=attention["slot_s"],
            score_s=attention["score_s"],
            compute_efficiency=attention["flops_per_s"] / peak,
            memory_efficiency=attention["bytes_per_s"] / bandwidth,
            element_bytes=ELEMENT_BYTES,
        ),
        between=Between(
            turn_s=0.0,
            row_s=parts["lookup"].estimates["row_s"] if "lookup" in parts else 0.0,
            norm_s=0.0,
            element_s=_NOTHING_S,
            sample_s=sampling["sample_s"],
            logit_s=sampling["logit_s"],
        ),
        weight_widths=tuple(forms),
        row_costs=tuple(product.costs for _, product in sorted(products.items())),
        overlap_temperature=overlap,
    )
    return Device(
        peak_flops_per_s=peak,
        compute_efficiency=1.0,
        memory=MemoryTier(
            bandwidth_bytes_per_s=bandwidth, efficiency=min(1.0, far / bandwidth), capacity_bytes=capacity_bytes
        ),
        operator_latency_s=widest["launch_s"],
        matrix_unit=unit,
    )


def _with(device: Device, **numbers: float) -> Device:
    between = dataclasses.replace(device.matrix_unit.between, **numbers)
    return dataclasses.replace(device, matrix_unit=dataclasses.replace(device.matrix_unit, between=between))


def _network(row: Row, network: Callable[[str], Architecture]) -> Architecture:
    """What of a network ran."""
    changed = {"num_layers": row.layers, "vocab_size": row.vocab_size}
    known: dict[str, Any] = {name: value for name, value in changed.items() if not math.isnan(value)}
    return dataclasses.replace(network(row.architecture), **known)


def _works(rows: Sequence[Row], network: Callable[[str], Architecture]) -> Any:
    """The work of each step, "step operator"."""
    if not rows:
        return None
    works: list[OperatorWork] = []
    for row in rows:
        works.append(
            step_operators(
                _network(row, network),
                StepShape(
                    tokens=row.tokens,
                    batch=row.batch,
                    context_tokens=row.context_tokens,
                    weight_bits=uniform_weight_bits(row.weight_bits),
                    kv_bits=8 * ELEMENT_BYTES,
                ),
            )
        )
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf, np.float32) for leaf in leaves]), *works)


def _step_conditions(device: Device, works: OperatorWork) -> dict[str, np.ndarray]:
    """What `fit_steps` asks for, "step"."""
    shapes, inside = products_of(works), np.array([name in MATRIX_OPERATORS for name in OPERATORS])
    known_s = _priced(device, works)
    count = np.where(inside, shapes.products * works.launches, 0.0)
    size = np.log(np.maximum(shapes.k * shapes.n, 1.0))
    return {
        "known_s": known_s,
        # All row costs doubled add the products once more.
        "products_s": _priced(_slower(device), works) - known_s,
        "norms": np.asarray(works.launches)[:, OPERATORS.index("norm")].astype(np.float64),
        "elements": np.asarray(put_out(works), np.float64),
        "rows": np.asarray(shapes.m)[:, OPERATORS.index("qkv")].astype(np.float64),
        "weights": np.exp(np.sum(count * size, axis=1) / np.sum(count, axis=1)).astype(np.float64),
    }


def _slower(device: Device) -> Device:
    unit = device.matrix_unit
    costs = [
        dataclasses.replace(one, factors=tuple(tuple(2.0 * factor for factor in row) for row in one.factors))
        for one in unit.row_costs
    ]
    return dataclasses.replace(device, matrix_unit=dataclasses.replace(unit, row_costs=tuple(costs)))


@jax.jit
def _total(device: Device, works: OperatorWork) -> Any:
    return jax.vmap(lambda work: step_cost(device, work).total_s)(works)


def _priced(device: Device, works: Any) -> np.ndarray:
    return np.asarray(_total(device, works), np.float64)
