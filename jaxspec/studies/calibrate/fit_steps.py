"""Fit whole steps: everything between the products, and by how much products of so many rows differ in a step.

A product that is timed in a loop of its own keeps its operands in other caches than within a step, and copies what a step does
not. Measured steps say by how much: a factor for each number of rows and size of matrix, on top of the product's row costs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from hwmodels.analysis.calibration.least_squares import Parameter, predicted_rows
from hwmodels.compute.row_costs import RowCosts
from jaxspec.studies.calibrate.fit_products import factors
from jaxspec.studies.calibrate.fitted import Numbers, PartFit, cross_fitted, robust_fit
from jaxspec.studies.calibrate.table import Row

__all__ = ["StepFit", "fit_steps", "in_steps"]

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


def _form(v: Mapping[str, Any], c: Mapping[str, Any]) -> Any:
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

    def found(train: npt.NDArray[np.int64]) -> tuple[Any, RowCosts, Numbers]:
        """The form, the factors, and seconds of all rows, from some of them."""
        costs = _factors_of_products({n: v[train] for n, v in conditions.items()}, seconds[train], sizes)
        scale = factors(costs, conditions["rows"], conditions["weights"])
        now = dict(conditions) | {"known_s": conditions["known_s"] + (scale - 1.0) * conditions["products_s"]}
        one = robust_fit(_form, _STEPS, now, seconds, groups, train)
        total = predicted_rows(_form, one.estimates, now)
        return one, costs, total

    one, costs, predicted = found(everything)
    held, errors, interval = cross_fitted(groups, seconds, len(_STEPS), lambda train: found(train)[2])
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
    found = least_squares(
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
        line = np.interp(np.log(knots), np.log(rows[here]), np.log(found[here]))
        tables.append((float(sizes[place]), tuple(np.exp(line).tolist())))
    return RowCosts(tuple(size for size, _ in tables), tuple(knots.tolist()), tuple(one for _, one in tables))


def in_steps(costs: RowCosts, steps: RowCosts) -> RowCosts:
    """Row costs of products as steps have them."""
    rows, found = np.array(costs.rows), []
    for size, own in zip(costs.weights, costs.factors, strict=True):
        found.append(tuple((np.array(own) * factors(steps, rows, np.full(len(rows), size))).tolist()))
    return RowCosts(costs.weights, costs.rows, tuple(found))
