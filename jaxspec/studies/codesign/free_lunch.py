"""Variables that would cost nothing, refused before any search: what is free ends at its bound and says nothing."""

from __future__ import annotations

import numpy as np

from hwmodels.compute.roofline import unit_of
from hwmodels.numerics.scalars import as_float
from jaxspec.errors import InputError
from jaxspec.studies.codesign.config import BUDGETS
from jaxspec.studies.codesign.problem import Problem

__all__ = ["refuse_free_lunches"]

#: Slopes of logarithms over the whole range of a variable: of the objective, and of a cost. Less is rounding.
_SLOPE, _COST = 1e-3, 1e-6


def refuse_free_lunches(problem: Problem, places: np.ndarray) -> None:
    """Every number of the device takes from a budget where it makes designs better; a larger array takes area and power.

    Args:
        places: "design variable", of the unit cube, at which slopes are taken.
    Raises:
        InputError: a variable for which that is not so, by its name.
    """
    _, slopes = problem.smooth(places)
    better = -slopes[:, 0]
    spent = slopes[:, [1 + i for i, name in enumerate(problem.limits) if name in BUDGETS]]
    for i, name in enumerate(problem.variables.names):
        if not name.startswith("device."):
            continue
        direction = np.where(np.abs(better[:, i]) > _SLOPE, np.sign(better[:, i]), 0.0)[:, None]
        rises = np.where(direction != 0, direction * spent[:, :, i] > _COST, np.abs(spent[:, :, i]) > _COST)
        if not rises.any():
            budgets = ", ".join(name for name in problem.limits if name in BUDGETS)
            raise InputError(
                f"variables.{name} is a free lunch: making it better costs nothing under {budgets}; add what it costs, as "
                f"[costs.name] with of = {{ {_key(name)} = 1 }}, or a budget that it counts in, or take it out"
            )
    _refuse_free_arrays(problem)


def _refuse_free_arrays(problem: Problem) -> None:
    variables = problem.variables
    middle = np.clip(problem.before, variables.low, variables.high)
    for i, name in enumerate(variables.names):
        ends = np.stack([middle, middle])
        ends[:, i] = variables.low[i], variables.high[i]
        counts = [unit_of(problem.model.tree(row)["device"]).elements for row in ends]
        if counts[0] is None or float(as_float(counts[0])) == float(as_float(counts[1] or 0.0)):
            continue
        found = problem.numbers(ends)
        for cost in ("area_mm2", "power_w"):
            small, large = map(float, getattr(found, cost))
            if not (large > small if float(counts[1] or 0.0) > float(counts[0]) else large < small):
                raise InputError(
                    f"variables.{name} is a free lunch: a larger array costs no {cost}; add [costs.name] with "
                    f"of = {{ elements = 1 }} and {cost}"
                )


def _key(name: str) -> str:
    """As a key of TOML."""
    inner = name.removeprefix("device.")
    return f'"{inner}"' if "." in inner else inner
